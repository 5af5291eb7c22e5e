// A backend of one file: ranks pin what they give to the group's store, and read what others have pinned. Slow, and
// whole: every operation of tutti runs on it. Built as libtutti-backend-pinboard.so, it is found by its name:
//   TUTTI_BACKEND_PATH=FOLDER, init_process_group({.backend = "pinboard"})
#include <tutti/backend.hpp>
#include <tutti/error.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace tutti;

std::string key(const std::string& kind, std::uint64_t number, int from, int to) {
    return kind + "/" + std::to_string(number) + "/" + std::to_string(from) + "-" + std::to_string(to);
}

class Pinboard : public CustomBackend {
 public:
    Pinboard(Store store, int rank, int size) : store_(std::move(store)), rank_(rank), size_(size) {
        worker_ = std::thread([this] { work(); });
    }
    ~Pinboard() override {
        abort("the group has gone");
        worker_.join();
    }

    // Pins what this rank gives at once; a worker looks for what it needs.
    void run(const BackendRequest& request, BackendCompletion completion) override {
        const std::lock_guard lock(mutex_);
        if (!reason_.empty()) return completion.failure(std::make_exception_ptr(Aborted(reason_)));
        if (request.call == BackendCall::send) {
            const std::uint64_t number = sent_[{request.root, request.tag}]++;
            pin(message_key(rank_, request.root, request.tag, number), request.input, bytes(request, request.count));
            return completion.success();
        }
        if (request.call == BackendCall::receive) {
            receives_.push_back({&request, completion});
        } else {
            give(request);
            collectives_.push_back({&request, completion});
        }
        changed_.notify_one();
    }

    void abort(const std::string& reason) noexcept override {
        std::list<Pending> open;
        {
            const std::lock_guard lock(mutex_);
            if (reason_.empty()) reason_ = reason;
            open.splice(open.end(), collectives_);
            open.splice(open.end(), receives_);
            changed_.notify_one();
        }
        for (const Pending& one : open) one.completion.failure(std::make_exception_ptr(Aborted(reason)));
    }

 private:
    struct Pending {
        const BackendRequest* request;
        BackendCompletion completion;
    };

    static std::size_t bytes(const BackendRequest& r, std::uint64_t count) { return count * size_of(r.dtype); }
    static std::string message_key(int from, int to, std::uint64_t tag, std::uint64_t number) {
        return key("message/" + std::to_string(tag), number, from, to);
    }
    void pin(const std::string& name, const void* data, std::size_t size) {
        store_.set(name, {size > 0 ? static_cast<const char*>(data) : "", size});
    }

    // What other ranks need of this one; to -1: all that read it read the same.
    void give(const BackendRequest& r) {
        const auto at = [&](std::uint64_t offset) {
            return static_cast<const char*>(r.input) + static_cast<std::size_t>(offset) * size_of(r.dtype);
        };
        const auto pin_for = [&](int to, std::uint64_t offset, std::uint64_t count) {
            pin(key("part", r.sequence, rank_, to), at(offset), bytes(r, count));
        };
        switch (r.call) {
            case BackendCall::broadcast:
                if (rank_ == r.root) pin(key("part", r.sequence, rank_, -1), r.output, bytes(r, r.count));
                return;
            case BackendCall::all_reduce:
            case BackendCall::scan:
            case BackendCall::exscan: return pin_for(-1, 0, r.count);
            case BackendCall::reduce:
            case BackendCall::gather:
                if (rank_ != r.root) pin_for(r.root, 0, r.count);
                return;
            case BackendCall::all_gather: return pin_for(-1, 0, r.counts[static_cast<std::size_t>(rank_)]);
            case BackendCall::scatter:
                for (int to = 0; rank_ == r.root && to < size_; ++to)
                    pin_for(to, static_cast<std::uint64_t>(to) * r.count, r.count);
                return;
            case BackendCall::reduce_scatter: {
                std::uint64_t offset = 0;
                for (int to = 0; to < size_; ++to) {
                    pin_for(to, offset, r.counts[static_cast<std::size_t>(to)]);
                    offset += r.counts[static_cast<std::size_t>(to)];
                }
                return;
            }
            case BackendCall::gather_v:
                if (rank_ != r.root) {
                    const auto root = static_cast<std::size_t>(r.root);
                    pin_for(r.root, r.send_offsets[root], r.send_counts[root]);
                }
                return;
            case BackendCall::scatter_v:
                if (rank_ != r.root) return;
                [[fallthrough]];
            case BackendCall::all_to_all:
                for (int to = 0; to < size_; ++to) {
                    const auto i = static_cast<std::size_t>(to);
                    pin_for(to, r.send_offsets[i], r.send_counts[i]);
                }
                return;
            case BackendCall::barrier: return pin(key("part", r.sequence, rank_, -1), nullptr, 0);
            default: throw InvalidArgument("pinboard: this collective is not one that it knows");
        }
    }

    // The keys that this rank needs, by rank; empty: nothing of that rank.
    std::vector<std::string> needs(const BackendRequest& r) const {
        std::vector<std::string> names(static_cast<std::size_t>(size_));
        for (int from = 0; from < size_; ++from) {
            const bool rooted =
                r.call == BackendCall::reduce || r.call == BackendCall::gather || r.call == BackendCall::gather_v;
            const bool from_root =
                r.call == BackendCall::broadcast || r.call == BackendCall::scatter || r.call == BackendCall::scatter_v;
            if (rooted && (rank_ != r.root || from == r.root)) continue;
            if (from_root && from != r.root) continue;
            const bool parts = rooted || r.call == BackendCall::scatter || r.call == BackendCall::scatter_v ||
                               r.call == BackendCall::reduce_scatter || r.call == BackendCall::all_to_all;
            names[static_cast<std::size_t>(from)] = key("part", r.sequence, from, parts ? rank_ : -1);
        }
        return names;
    }

    // True when all was there, and the operation is done.
    bool try_collective(const BackendRequest& r) {
        const std::vector<std::string> names = needs(r);
        std::vector<std::string> wanted;
        std::ranges::copy_if(names, std::back_inserter(wanted), [](const auto& name) { return !name.empty(); });
        if (!wanted.empty() && !store_.check(wanted)) return false;
        const std::vector<std::string> values = wanted.empty() ? wanted : store_.multi_get(wanted);
        std::vector<const void*> inputs;  // by rank
        std::size_t next = 0;
        for (const std::string& name : names)
            inputs.push_back(name.empty() ? r.input : static_cast<const void*>(values[next++].data()));
        auto* output = static_cast<char*>(r.output);
        switch (r.call) {
            case BackendCall::all_reduce: combine(r.op, r.dtype, output, inputs, r.count); break;
            case BackendCall::scan:
            case BackendCall::exscan:  // of the ranks up to this one, or before it
                inputs.resize(static_cast<std::size_t>(rank_) + (r.call == BackendCall::scan ? 1 : 0));
                if (!inputs.empty()) combine(r.op, r.dtype, output, inputs, r.count);
                break;
            case BackendCall::reduce_scatter:
                combine(r.op, r.dtype, output, inputs, r.counts[static_cast<std::size_t>(rank_)]);
                break;
            case BackendCall::reduce:
                if (rank_ == r.root) combine(r.op, r.dtype, output, inputs, r.count);
                break;
            case BackendCall::broadcast:
                if (rank_ == r.root) break;
                [[fallthrough]];
            case BackendCall::scatter: copy(output, values[0], bytes(r, r.count)); break;
            case BackendCall::gather:
                for (int from = 0; rank_ == r.root && from < size_; ++from) {
                    const std::size_t size = bytes(r, r.count);
                    if (size > 0)
                        std::memcpy(output + static_cast<std::size_t>(from) * size,
                                    inputs[static_cast<std::size_t>(from)], size);
                }
                break;
            case BackendCall::all_gather:
                for (std::size_t from = 0; from < inputs.size(); ++from) {
                    copy(output, values[from], bytes(r, r.counts[from]));
                    output += bytes(r, r.counts[from]);
                }
                break;
            case BackendCall::gather_v:
                for (std::size_t from = 0, given = 0; rank_ == r.root && from < inputs.size(); ++from) {
                    char* const to = output + bytes(r, r.receive_offsets[from]);
                    const std::size_t size = bytes(r, r.receive_counts[from]);
                    if (!names[from].empty()) {
                        copy(to, values[given++], size);
                    } else if (const char* own = static_cast<const char*>(r.input) + bytes(r, r.send_offsets[from]);
                               size > 0 && own != to) {
                        std::memcpy(to, own, size);
                    }
                }
                break;
            case BackendCall::scatter_v: {
                const auto root = static_cast<std::size_t>(r.root);
                copy(output + bytes(r, r.receive_offsets[root]), values[0], bytes(r, r.receive_counts[root]));
                break;
            }
            case BackendCall::all_to_all:
                for (std::size_t from = 0; from < inputs.size(); ++from)
                    copy(output + bytes(r, r.receive_offsets[from]), values[from], bytes(r, r.receive_counts[from]));
                break;
            default: break;
        }
        unpin(r, names);
        return true;
    }
    void copy(char* to, const std::string& value, std::size_t size) const {
        if (value.size() != size) {
            throw CollectiveMismatch("pinboard: a rank gave " + std::to_string(value.size()) + " bytes, rank " +
                                     std::to_string(rank_) + " expects " + std::to_string(size));
        }
        if (size > 0) std::memcpy(to, value.data(), size);
    }
    // What only this rank reads goes at once; what all read goes with the last reader.
    void unpin(const BackendRequest& r, const std::vector<std::string>& names) {
        const std::string own = key("part", r.sequence, 0, -1);
        const bool shared = std::ranges::any_of(names, [](const auto& name) { return name.ends_with("--1"); });
        const std::string readers = "readers/" + std::to_string(r.sequence);
        if (shared && store_.add(readers, 1) < size_) return;
        for (const std::string& name : names) {
            if (!name.empty()) store_.delete_key(name);
        }
        if (shared) store_.delete_key(readers);
    }

    // The sender's rank when the message was there, or -1.
    int try_receive(const BackendRequest& r) {
        for (int from = r.root < 0 ? 0 : r.root; from < (r.root < 0 ? size_ : r.root + 1); ++from) {
            std::uint64_t& number = received_[{from, r.tag}];
            const std::string name = message_key(from, rank_, r.tag, number);
            if (!store_.check({name})) continue;
            copy(static_cast<char*>(r.output), store_.get(name), bytes(r, r.count));
            store_.delete_key(name);
            ++number;
            return from;
        }
        return -1;
    }

    void work() {
        std::unique_lock lock(mutex_);
        while (reason_.empty()) {
            bool moved = false;
            if (!collectives_.empty()) {
                moved |= attempt(lock, collectives_, collectives_.begin(),
                                 [this](const BackendRequest& r) { return try_collective(r) ? 0 : -1; });
            }
            // Receives of one sender and tag are served in the order of their calls.
            std::vector<std::pair<int, std::uint64_t>> tried;
            for (auto it = receives_.begin(); it != receives_.end() && !moved;) {
                const auto current = it++;
                const std::pair<int, std::uint64_t> lane(current->request->root, current->request->tag);
                if (std::ranges::find(tried, lane) != tried.end()) continue;
                tried.push_back(lane);
                moved |= attempt(lock, receives_, current, [this](const BackendRequest& r) { return try_receive(r); });
            }
            if (moved) continue;
            const bool pending = !collectives_.empty() || !receives_.empty();
            changed_.wait_for(lock, pending ? std::chrono::microseconds(200) : std::chrono::milliseconds(100));
        }
    }

    // Completions are told without the lock: whoever hears of one may call run().
    template <class Try>
    bool attempt(std::unique_lock<std::mutex>& lock, std::list<Pending>& list, std::list<Pending>::iterator at,
                 Try try_it) {
        int source = -1;
        std::exception_ptr error;
        try {
            source = try_it(*at->request);
        } catch (...) {
            error = std::current_exception();
        }
        if (source < 0 && !error) return false;
        const BackendCompletion completion = at->completion;
        list.erase(at);
        lock.unlock();
        if (error)
            completion.failure(error);
        else
            completion.success(source);
        lock.lock();
        return true;
    }

    Store store_;
    const int rank_, size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Pending> collectives_, receives_;
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> sent_, received_;  // by peer and tag
    std::string reason_;                                                      // why it has ended
    std::thread worker_;
};

}  // namespace

TUTTI_BACKEND_LIBRARY {
    tutti::Backend::register_backend(
        "pinboard",
        [](const tutti::Store& store, int rank, int world_size, std::chrono::milliseconds) {
            return std::make_shared<Pinboard>(store, rank, world_size);
        },
        {tutti::Device::Type::cpu});
}
