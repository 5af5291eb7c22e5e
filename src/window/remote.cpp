#include "window/remote.hpp"

#include "core/assert.hpp"
#include "operation/channel.hpp"

#include <tutti/error.hpp>
#include <tutti/tensor.hpp>

#include <fmt/format.h>

#include <cstring>

namespace tutti::window {

// From a request to the last message that belongs to it. News that come meanwhile are taken afterwards: a submit may
// run the continuation that brings them in this very thread, and the answer to them must not overtake what belongs
// together.
class Remote::Sending {
 public:
    explicit Sending(Remote& remote) : remote_(remote) {
        remote_.mutex_.lock();
        set_busy(true);
    }
    ~Sending() {
        set_busy(false);
        remote_.mutex_.unlock();
        remote_.take_news();
    }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

 private:
    void set_busy(bool busy) {
        const std::lock_guard lock(remote_.news_mutex_);
        remote_.busy_ = busy;
    }
    Remote& remote_;
};

std::shared_ptr<Operation> Remote::put(const char* name, int target, std::uint64_t offset,
                                       std::span<const std::byte> source, Raise raise,
                                       std::chrono::milliseconds timeout) {
    TUTTI_ASSERT(raise.value == 0 || raise.signal >= 0);
    Request request{.kind = Request::Kind::put,
                    .signal = static_cast<std::uint32_t>(raise.signal),
                    .value = raise.value,
                    .offset = offset,
                    .bytes = source.size()};
    if (request.is_whole() && !source.empty()) std::memcpy(request.payload.data(), source.data(), source.size());
    auto last = messages_.send(name, target, request, timeout);
    const Sending sending(*this);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(last, true);
    if (request.is_whole()) return last;
    last = messages_.send(name, target, WindowMessage::payload, source, timeout);
    messages_.group().submit(last, true);
    return last;
}

std::shared_ptr<Operation> Remote::get(const char* name, int target, std::uint64_t offset,
                                       std::span<std::byte> destination, std::chrono::milliseconds timeout) {
    TUTTI_ASSERT(!destination.empty());
    const Request request{.kind = Request::Kind::get, .offset = offset, .bytes = destination.size()};
    auto answer = messages_.receive(name, target, WindowMessage::answer, destination, timeout);
    const Sending sending(*this);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(answer, true);
    messages_.group().submit(messages_.send(name, target, request, timeout), true);
    return answer;
}

std::shared_ptr<Operation> Remote::flush(int target, std::chrono::milliseconds timeout) {
    TUTTI_ASSERT(timeout.count() > 0);
    constexpr const char* name = "Window.flush";
    const Sending sending(*this);
    check(name, target);
    if (!unflushed_[static_cast<std::size_t>(target)]) return nullptr;
    Tensor room = empty(uint8, Extents::of(1));
    auto answer =
        messages_.receive(name, target, WindowMessage::answer, {static_cast<std::byte*>(room.raw_data()), 1}, timeout);
    answer->temporaries.push_back(std::move(room));
    messages_.group().submit(answer, true);
    messages_.group().submit(messages_.send(name, target, {.kind = Request::Kind::flush}, timeout), true);
    unflushed_[static_cast<std::size_t>(target)] = false;
    return answer;
}

void Remote::note_let_go(int rank, bool answers) {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < let_go_.size());
    {
        const std::lock_guard lock(news_mutex_);
        news_.push_back({rank, answers});
        if (busy_) return;
    }
    take_news();
}

void Remote::take_news() noexcept {
    std::vector<News> news;
    {
        const std::lock_guard lock(news_mutex_);
        news.swap(news_);
    }
    if (news.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        for (const News& one : news) let_go_[static_cast<std::size_t>(one.rank)] = true;
    }
    try {
        for (const News& one : news) {
            if (one.answers) tell(one.rank, Request::Kind::heard);
        }
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the group has ended, and nobody waits for the answer
    }
}

// A rank that has left does not hear it.
void Remote::tell(int rank, Request::Kind kind) const {
    TUTTI_ASSERT(kind == Request::Kind::let_go || kind == Request::Kind::heard);
    messages_.group().submit(messages_.send("Window service", rank, {.kind = kind}, Messages::no_limit), true);
}

void Remote::check(const char* name, int target) const {
    TUTTI_ASSERT(static_cast<std::size_t>(target) < let_go_.size());
    if (let_go_[static_cast<std::size_t>(target)]) refuse(name, target);
}

void Remote::refuse(const char* name, int owner) const {
    TUTTI_ASSERT(static_cast<std::size_t>(owner) < let_go_.size());
    const Group& group = messages_.group();
    const int peer = group.ranks().global(owner);
    throw InvalidArgument(
        fmt::format(
            "{}: rank {} has let go of the {} without close(): expected a window that all ranks keep until they "
            "close it together",
            name, peer, title_),
        {.operation = name, .group = group.name(), .rank = group.ranks().own_global(), .peer = peer});
}

}  // namespace tutti::window
