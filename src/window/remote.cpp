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

// The message that follows a request; null: the request carries the payload.
std::shared_ptr<Operation> Remote::payload_of(const char* name, int target, const Request& request, const void* payload,
                                              std::chrono::milliseconds timeout) const {
    if (request.is_whole()) return nullptr;
    TUTTI_ASSERT(payload != nullptr);
    return messages_.send(name, target, WindowMessage::payload,
                          {static_cast<const std::byte*>(payload), request.sent_bytes()}, timeout);
}

std::shared_ptr<Operation> Remote::write(const char* name, int target, Request request, const void* payload,
                                         std::chrono::milliseconds timeout) {
    if (request.is_whole() && request.sent_bytes() > 0)
        std::memcpy(request.payload.data(), payload, request.sent_bytes());
    auto first = messages_.send(name, target, request, timeout);
    auto second = payload_of(name, target, request, payload, timeout);
    const Sending sending(*this);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(first, true);
    if (second == nullptr) return first;
    messages_.group().submit(second, true);
    return second;
}

std::shared_ptr<Operation> Remote::read(const char* name, int target, Request request, const void* payload,
                                        std::span<std::byte> answer, std::chrono::milliseconds timeout) {
    TUTTI_ASSERT(!answer.empty());
    auto receiving = messages_.receive(name, target, WindowMessage::answer, answer, timeout);
    Tensor copy;  // the answer may complete before this rank notices that the payload has left
    if (!request.is_whole()) {
        copy = empty(uint8, Extents::of(static_cast<std::int64_t>(request.sent_bytes())));
        std::memcpy(copy.raw_data(), payload, request.sent_bytes());
    } else if (request.sent_bytes() > 0) {
        std::memcpy(request.payload.data(), payload, request.sent_bytes());
    }
    auto second = payload_of(name, target, request, copy.raw_data(), timeout);
    if (second != nullptr) second->temporaries.push_back(std::move(copy));
    auto first = messages_.send(name, target, request, timeout);
    const Sending sending(*this);
    check(name, target);
    unflushed_[static_cast<std::size_t>(target)] = true;
    messages_.group().submit(receiving, true);
    messages_.group().submit(first, true);
    if (second != nullptr) messages_.group().submit(second, true);
    return receiving;
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
