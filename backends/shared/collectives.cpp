#include "shared/collectives.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::backends {
namespace {

// Up to so many bytes of one rank, every rank sends all its bytes to every rank that needs them: one round, not two.
constexpr std::size_t one_round_bytes_max = 16 << 10;

// Messages with one common wait.
class Batch {
 public:
    Batch(Messages& messages, std::uint64_t channel, std::uint64_t tag) : messages_(messages), label_{channel, tag} {}
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() { give_up(); }

    void send(int to, const void* data, std::size_t bytes) {
        begin();
        messages_.send(to, label_, data, bytes, [this](int, const auto& error) { over(error); });
    }
    void receive(int from, void* data, std::size_t bytes) {
        begin();
        messages_.receive(from, label_, data, bytes, [this](int, const auto& error) { over(error); });
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return open_ == 0 || error_; });
        if (!error_) return;
        const std::exception_ptr error = error_;
        lock.unlock();
        give_up();
        std::rethrow_exception(error);
    }

 private:
    void begin() {
        const std::lock_guard lock(mutex_);
        ++open_;
    }
    void over(const std::exception_ptr& error) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = error;
        --open_;
        changed_.notify_all();
    }
    // Nothing touches the buffers afterwards.
    void give_up() {
        std::unique_lock lock(mutex_);
        if (open_ == 0) return;
        const std::exception_ptr error = error_;
        lock.unlock();
        messages_.cancel(label_.channel, error);
        lock.lock();
        changed_.wait(lock, [&] { return open_ == 0; });
    }

    Messages& messages_;
    const Label label_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int open_ = 0;
    std::exception_ptr error_;
};

class Run {
 public:
    Run(const BackendRequest& request, const Place& place, std::uint64_t channel)
        : r_(request), rank_(place.rank), size_(place.size), messages_(place.messages), channel_(channel) {}

    void all() {
        switch (r_.call) {
            case BackendCall::broadcast: return broadcast();
            case BackendCall::all_reduce: return all_reduce();
            case BackendCall::reduce: return reduce();
            case BackendCall::all_gather: return all_gather();
            case BackendCall::gather: return gather();
            case BackendCall::scatter: return scatter();
            case BackendCall::reduce_scatter: return reduce_scatter();
            case BackendCall::all_to_all: return all_to_all();
            case BackendCall::barrier: return barrier();
            default: throw InternalError("no messages make up " + std::string(to_string(r_.call)));
        }
    }

 private:
    using Counts = std::vector<std::uint64_t>;

    std::size_t bytes(std::uint64_t count) const { return static_cast<std::size_t>(count) * size_of(r_.dtype); }
    const char* in(std::uint64_t offset = 0) const { return static_cast<const char*>(r_.input) + bytes(offset); }
    char* out(std::uint64_t offset = 0) const { return static_cast<char*>(r_.output) + bytes(offset); }
    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
    static void copy(void* to, const void* from, std::size_t size) {
        if (size > 0 && to != from) std::memmove(to, from, size);
    }
    static Counts offsets_of(const Counts& counts) {
        Counts offsets(counts.size());
        std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::uint64_t{0});
        return offsets;
    }
    // Every rank's share of `count` elements.
    Counts shares(std::uint64_t count) const {
        const auto n = static_cast<std::uint64_t>(size_);
        Counts counts(index(size_), count / n);
        for (std::size_t i = 0; i < count % n; ++i) ++counts[i];
        return counts;
    }
    template <class F>
    void for_others(F f) const {  // beginning with the next, so that not all begin with the same
        for (int step = 1; step < size_; ++step) f((rank_ + step) % size_);
    }

    // Combines all ranks' values for this one: block `rank` of every rank's input.
    void combine_own(const Counts& counts, char* result, std::uint64_t phase) {
        const Counts offsets = offsets_of(counts);
        const std::size_t own = bytes(counts[index(rank_)]);
        std::vector<char> others(own * index(size_));
        std::vector<const void*> inputs(index(size_));
        Batch batch(messages_, channel_, phase);
        for_others([&](int other) {
            const std::size_t theirs = bytes(counts[index(other)]);
            inputs[index(other)] = others.data() + own * index(other);
            if (own > 0) batch.receive(other, others.data() + own * index(other), own);
            if (theirs > 0) batch.send(other, in(offsets[index(other)]), theirs);
        });
        batch.wait();
        inputs[index(rank_)] = in(offsets[index(rank_)]);
        if (own > 0) combine(r_.op, r_.dtype, result, inputs, counts[index(rank_)]);
    }

    void broadcast() {  // a binomial tree
        const int own = (rank_ - r_.root + size_) % size_;
        int step = 1;
        while (step <= own) step *= 2;  // this rank gets it in the round of its highest bit
        if (own != 0) {
            Batch batch(messages_, channel_, 0);
            batch.receive((own - step / 2 + r_.root) % size_, out(), bytes(r_.count));
            batch.wait();
        }
        Batch batch(messages_, channel_, 0);
        for (; own + step < size_; step *= 2) batch.send((own + step + r_.root) % size_, out(), bytes(r_.count));
        batch.wait();
    }

    void all_reduce() {
        if (bytes(r_.count) <= one_round_bytes_max) {
            const std::size_t own = bytes(r_.count);
            std::vector<char> others(own * index(size_));
            std::vector<const void*> inputs(index(size_), r_.input);
            Batch batch(messages_, channel_, 0);
            for_others([&](int other) {
                char* place = others.data() + own * index(other);
                inputs[index(other)] = place;
                batch.receive(other, place, own);
                batch.send(other, in(), own);
            });
            batch.wait();
            if (own > 0) combine(r_.op, r_.dtype, r_.output, inputs, r_.count);
            return;
        }
        const Counts counts = shares(r_.count), offsets = offsets_of(counts);
        combine_own(counts, out(offsets[index(rank_)]), 0);
        Batch batch(messages_, channel_, 1);
        for_others([&](int other) {
            batch.receive(other, out(offsets[index(other)]), bytes(counts[index(other)]));
            batch.send(other, out(offsets[index(rank_)]), bytes(counts[index(rank_)]));
        });
        batch.wait();
    }

    void reduce() {
        if (bytes(r_.count) <= one_round_bytes_max) {
            Counts counts(index(size_), 0);  // all of it is the root's
            counts[index(r_.root)] = r_.count;
            return combine_own(counts, out(), 0);
        }
        const Counts counts = shares(r_.count), offsets = offsets_of(counts);
        std::vector<char> part(bytes(counts[index(rank_)]));
        combine_own(counts, part.data(), 0);
        Batch batch(messages_, channel_, 1);
        if (rank_ != r_.root) {
            batch.send(r_.root, part.data(), part.size());
        } else {
            for_others([&](int from) { batch.receive(from, out(offsets[index(from)]), bytes(counts[index(from)])); });
            copy(out(offsets[index(rank_)]), part.data(), part.size());
        }
        batch.wait();
    }

    void reduce_scatter() { combine_own(r_.counts, out(), 0); }

    void all_gather() {
        const Counts offsets = offsets_of(r_.counts);
        const std::size_t own = bytes(r_.counts[index(rank_)]);
        Batch batch(messages_, channel_, 0);
        for_others([&](int other) {
            batch.receive(other, out(offsets[index(other)]), bytes(r_.counts[index(other)]));
            batch.send(other, in(), own);
        });
        copy(out(offsets[index(rank_)]), in(), own);
        batch.wait();
    }

    void gather() {
        Batch batch(messages_, channel_, 0);
        if (rank_ != r_.root) {
            batch.send(r_.root, in(), bytes(r_.count));
        } else {
            for_others([&](int from) {
                batch.receive(from, out(r_.count * static_cast<std::uint64_t>(from)), bytes(r_.count));
            });
            copy(out(r_.count * static_cast<std::uint64_t>(rank_)), in(), bytes(r_.count));
        }
        batch.wait();
    }

    void scatter() {
        Batch batch(messages_, channel_, 0);
        if (rank_ != r_.root) {
            batch.receive(r_.root, out(), bytes(r_.count));
        } else {
            for_others([&](int to) { batch.send(to, in(r_.count * static_cast<std::uint64_t>(to)), bytes(r_.count)); });
            copy(out(), in(r_.count * static_cast<std::uint64_t>(rank_)), bytes(r_.count));
        }
        batch.wait();
    }

    void all_to_all() {
        Batch batch(messages_, channel_, 0);
        for_others([&](int other) {
            const std::size_t i = index(other);
            batch.receive(other, out(r_.receive_offsets[i]), bytes(r_.receive_counts[i]));
            batch.send(other, in(r_.send_offsets[i]), bytes(r_.send_counts[i]));
        });
        const std::size_t i = index(rank_);
        copy(out(r_.receive_offsets[i]), in(r_.send_offsets[i]),
             bytes(std::min(r_.receive_counts[i], r_.send_counts[i])));
        batch.wait();
    }

    void barrier() {  // dissemination: in round k each rank hears of 2^k more ranks
        for (int step = 1; step < size_; step *= 2) {
            Batch batch(messages_, channel_, static_cast<std::uint64_t>(step));
            batch.receive((rank_ + size_ - step) % size_, nullptr, 0);
            batch.send((rank_ + step) % size_, nullptr, 0);
            batch.wait();
        }
    }

    const BackendRequest& r_;
    const int rank_, size_;
    Messages& messages_;
    const std::uint64_t channel_;
};

}  // namespace

void run_collective(const BackendRequest& request, const Place& place, std::uint64_t channel) {
    Run(request, place, channel).all();
}

}  // namespace tutti::backends
