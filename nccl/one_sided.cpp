#include "one_sided.hpp"

#include <tutti/distributed.hpp>

#include <cstring>
#include <utility>

namespace tutti::nccl_library {
namespace {

constexpr int header_tag = 1, data_tag = 2;          // ncclSend's messages have tag 0
constexpr std::chrono::hours forever{24 * 365 * 9};  // a receive that no time limit ends

TensorView bytes_view(void* data, std::size_t bytes) {
    return {data, Extents::of(static_cast<std::int64_t>(bytes)), DType::uint8};
}
ConstTensorView bytes_view(const void* data, std::size_t bytes) {
    return {data, Extents::of(static_cast<std::int64_t>(bytes)), DType::uint8};
}

}  // namespace

// ---- Listening ------------------------------------------------------------------------------------------------------

void OneSided::listen(const ProcessGroup& group, std::function<void(const Failure&)> on_wrong_put) {
    {
        const std::lock_guard lock(mutex_);
        if (listens_) return;
        listens_ = true;
        group_ = group;
        on_wrong_put_ = std::move(on_wrong_put);
    }
    if (group.size() > 1) receive_next();
}

bool OneSided::listens() const {
    const std::lock_guard lock(mutex_);
    return listens_;
}

void OneSided::stop() noexcept {
    const std::lock_guard lock(mutex_);
    listens_ = false;
    group_ = {};
}

void OneSided::fail(const Failure& failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    changed_.notify_all();
}

// Headers that have come already are taken here; the next one is taken by the continuation of its receive.
void OneSided::receive_next() {
    while (true) {
        ProcessGroup group;
        {
            const std::lock_guard lock(mutex_);
            if (!listens_) return;
            group = group_;
        }
        auto header = std::make_shared<Header>();
        Work work =
            irecv(bytes_view(header.get(), sizeof(Header)), {.tag = header_tag, .group = group, .timeout = forever});
        if (!work.is_completed()) {
            const std::weak_ptr<OneSided> weak = weak_from_this();
            work.get_future_result().add_done_callback([weak, work, header](const auto&) mutable {
                const auto self = weak.lock();
                if (self == nullptr || !self->take(work, *header)) return;
                try {
                    self->receive_next();
                } catch (...) {
                    self->end(std::current_exception());
                }
            });
            return;
        }
        if (!take(work, *header)) return;
    }
}

bool OneSided::take(Work& work, const Header& header) noexcept {
    try {
        work.wait();
        const int source = work.source_rank();
        ProcessGroup group;
        {
            const std::lock_guard lock(mutex_);
            if (!listens_) return false;
            group = group_;
        }
        if (header.bytes > 0) {
            recv(bytes_view(place_of(header, source), header.bytes),
                 {.tag = data_tag, .group = group, .group_src = source});
        }
        const std::lock_guard lock(mutex_);
        ++arrived_[source];
        changed_.notify_all();
        return true;
    } catch (...) {
        end(std::current_exception());
        return false;
    }
}

// What ends the receives is a failure only for those who wait for signals: the others may have left for good. A put
// that has no place is one for all ranks.
void OneSided::end(const std::exception_ptr& error) noexcept {
    const Failure failure = as_failure(error);
    std::function<void(const Failure&)> on_wrong_put;
    {
        const std::lock_guard lock(mutex_);
        if (!listens_) return;
        if (!failure_) failure_ = failure;
        changed_.notify_all();
        if (failure.code() == ncclInvalidUsage) on_wrong_put = on_wrong_put_;
    }
    if (on_wrong_put) on_wrong_put(failure);
}

void* OneSided::place_of(const Header& header, int source) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, window] : registered_) {
        if (!window.is_symmetric() || window.number != header.window) continue;
        if (header.offset > window.bytes || header.bytes > window.bytes - header.offset) break;
        return static_cast<std::byte*>(window.memory) + header.offset;
    }
    nccl_library::fail(ncclInvalidUsage, "rank ", source, " has put ", header.bytes, " bytes to offset ", header.offset,
                       " of window #", header.window, ", which is not registered here any more");
}

// ---- Windows --------------------------------------------------------------------------------------------------------

std::uint64_t OneSided::next_window() noexcept {
    const std::lock_guard lock(mutex_);
    return windows_++;
}

void OneSided::add(const void* handle, Registered window) {
    const std::lock_guard lock(mutex_);
    registered_.emplace(handle, std::move(window));
}

bool OneSided::remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return registered_.erase(handle) > 0;
}

std::optional<Registered> OneSided::find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = registered_.find(handle);
    return found == registered_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Registered> OneSided::find_symmetric(const void* memory, std::size_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(memory);
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, window] : registered_) {
        const auto* first = static_cast<const std::byte*>(window.memory);
        if (window.is_symmetric() && begin >= first && begin <= first + window.bytes &&
            bytes <= static_cast<std::size_t>(first + window.bytes - begin))
            return window;
    }
    return std::nullopt;
}

std::size_t OneSided::table_bytes() const {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = sizeof *this;
    for (const auto& [handle, window] : registered_)
        bytes += sizeof window + window.rank_bytes.size() * sizeof(std::uint64_t);
    return bytes;
}

// ---- Puts and signals -----------------------------------------------------------------------------------------------

void OneSided::Sending::wait() {
    for (Work& work : works) work.wait();
}

OneSided::Sending OneSided::put(const ProcessGroup& group, int peer, std::uint64_t window, std::uint64_t offset,
                                const void* data, std::size_t bytes) {
    auto header = std::make_shared<const Header>(Header{window, offset, bytes});
    if (peer == group.rank()) {
        if (bytes > 0) std::memmove(place_of(*header, peer), data, bytes);
        const std::lock_guard lock(mutex_);
        ++sent_[peer];
        ++arrived_[peer];
        changed_.notify_all();
        return {};
    }
    Sending sending{header,
                    {isend(bytes_view(header.get(), sizeof(Header)), peer, {.tag = header_tag, .group = group})}};
    if (bytes > 0) sending.works.push_back(isend(bytes_view(data, bytes), peer, {.tag = data_tag, .group = group}));
    const std::lock_guard lock(mutex_);
    ++sent_[peer];
    return sending;
}

std::vector<std::uint64_t> OneSided::sent(int ranks) const {
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks));
    const std::lock_guard lock(mutex_);
    for (const auto& [peer, count] : sent_) counts[static_cast<std::size_t>(peer)] = count;
    return counts;
}

void OneSided::await(const std::vector<Wanted>& wanted, std::chrono::milliseconds limit) {
    std::map<int, std::uint64_t> counts;
    {
        const std::lock_guard lock(mutex_);
        for (const Wanted& one : wanted) counts[one.peer] = awaited_[one.peer] += one.count;
    }
    wait_until(counts, limit);
}

void OneSided::await_all(const std::vector<std::uint64_t>& counts, std::chrono::milliseconds limit) {
    std::map<int, std::uint64_t> by_rank;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) by_rank[static_cast<int>(rank)] = counts[rank];
    wait_until(by_rank, limit);
}

void OneSided::wait_until(const std::map<int, std::uint64_t>& counts, std::chrono::milliseconds limit) {
    std::string missing;
    std::unique_lock lock(mutex_);
    const auto is_there = [&] {
        missing.clear();
        for (const auto& [peer, count] : counts) {
            if (arrived_[peer] < count) missing += text(" rank ", peer, " (", count - arrived_[peer], " missing)");
        }
        return missing.empty() || failure_.has_value();
    };
    if (!changed_.wait_for(lock, limit, is_there)) {
        nccl_library::fail(ncclRemoteError, "signals have not come within ", limit.count(), " ms from", missing);
    }
    if (!missing.empty()) throw Failure(*failure_);
}

}  // namespace tutti::nccl_library
