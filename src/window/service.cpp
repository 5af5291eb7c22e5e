#include "window/service.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "operation/channel.hpp"
#include "window/atomics.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tutti::window {
namespace {

constexpr const char* name = "Window service";  // of its messages
constexpr std::byte done{1};                    // the answer to a flush

}  // namespace

Service::Service(std::shared_ptr<Group> group, std::shared_ptr<const Memory> memory, std::shared_ptr<Remote> remote,
                 std::uint32_t number)
    : group_(std::move(group)),
      memory_(std::move(memory)),
      remote_(std::move(remote)),
      messages_(*group_, number),
      sources_(static_cast<std::size_t>(group_->size())) {
    TUTTI_ASSERT(memory_ != nullptr && remote_ != nullptr);
    TUTTI_ASSERT(!memory_->is_mapped_by_all());
}

void Service::end() noexcept {
    try {
        group_->submit(messages_.send(name, group_->rank(), {.kind = Request::Kind::end}, Messages::no_limit), true);
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the group has ended, and with it the receive
    }
}

void Service::let_go() noexcept {
    try {
        std::vector<int> unaware;
        {
            const MutexLock lock(mutex_);
            let_go_ = true;
            for (int rank = 0; rank < group_->size(); ++rank) {
                if (rank != group_->rank() && !memory_->is_mapped(rank) && !remote_->was_let_go_by(rank))
                    unaware.push_back(rank);
            }
            unaware_ = {unaware.begin(), unaware.end()};
        }
        for (const int rank : unaware) remote_->tell(rank, Request::Kind::let_go);
        if (unaware.empty()) end();
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the group has ended, and with it the receive
    }
}

// False: there will be no more requests.
bool Service::take_news(Request::Kind kind, int source) {
    TUTTI_ASSERT(kind == Request::Kind::let_go || kind == Request::Kind::heard);
    TUTTI_ASSERT(source >= 0 && source < group_->size());
    bool answers = false;
    {
        const MutexLock lock(mutex_);
        unaware_.erase(source);
        answers = kind == Request::Kind::let_go && !let_go_;
        if (let_go_ && unaware_.empty()) return false;
    }
    if (kind == Request::Kind::let_go) remote_->note_let_go(source, answers);
    return true;
}

// Called where the group may have ended, by which all that is under way ends, too.
void Service::listen() {
    try {
        for (;;) {
            const std::span room(reinterpret_cast<std::byte*>(&incoming_), sizeof incoming_);
            const auto receive =
                messages_.receive(name, Messages::any_rank, WindowMessage::request, room, Messages::no_limit);
            const auto go_on = [self = shared_from_this(), receive] {
                if (self->take(*receive)) self->listen();
            };
            if (!messages_.is_complete_at_once(receive, go_on) || !take(*receive)) return;
        }
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the callers of the group hear of it
    }
}

// False: there will be no more.
bool Service::take(const Operation& receive) {
    if (receive.error()) return false;
    const Request request = incoming_;
    const int source = group_->ranks().rank_of(receive.transfer.peer);
    if (request.kind == Request::Kind::end && source == group_->rank()) return false;
    const bool is_news = request.kind == Request::Kind::let_go || request.kind == Request::Kind::heard;
    if (is_news && source >= 0) return take_news(request.kind, source);
    if (source < 0 || !fits(request)) {
        group_->abort(fmt::format("rank {} asked rank {} for {} bytes at {} of a window of {} bytes with {} signals",
                                  receive.transfer.peer, group_->ranks().own_global(), request.bytes, request.offset,
                                  memory_->byte_count(group_->rank()), memory_->signal_count()));
        return false;
    }
    {
        const MutexLock lock(mutex_);
        Source& from = sources_[static_cast<std::size_t>(source)];
        from.waiting.push_back(request);
        if (std::exchange(from.busy, true)) return true;
    }
    serve(source);
    return true;
}

void Service::serve(int source) {
    TUTTI_ASSERT(source >= 0 && source < group_->size());
    try {
        while (const auto request = next_of(source)) {
            Tensor room;  // for a payload that the request does not carry, and that must not go to the elements at once
            const std::shared_ptr<Operation> step = first_step(*request, source, room);
            const auto go_on = [self = shared_from_this(), step, request = *request, source, room] {
                if (!step->error() && self->finish(request, source, room)) self->serve(source);
            };
            if (step && (!messages_.is_complete_at_once(step, go_on) || step->error())) return;
            if (!finish(*request, source, room)) return;
        }
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the callers of the group hear of it
    }
}

std::optional<Request> Service::next_of(int source) {
    TUTTI_ASSERT(static_cast<std::size_t>(source) < sources_.size());
    const MutexLock lock(mutex_);
    Source& from = sources_[static_cast<std::size_t>(source)];
    TUTTI_ASSERT(from.busy);
    if (from.waiting.empty()) {
        from.busy = false;
        return std::nullopt;
    }
    const Request request = from.waiting.front();
    from.waiting.pop_front();
    return request;
}

// A message that has to be through before the request is; null: there is none. Elements that a get sends must stay as
// they are until they have left.
std::shared_ptr<Operation> Service::first_step(const Request& request, int source, Tensor& room) const {
    TUTTI_ASSERT(fits(request));
    const std::span elements(memory_->elements(group_->rank()) + request.offset, request.bytes);
    if (request.kind == Request::Kind::get)
        return messages_.send(name, source, WindowMessage::answer, elements, Messages::no_limit);
    if (request.kind == Request::Kind::flush)
        return messages_.send(name, source, WindowMessage::answer, {&done, 1}, Messages::no_limit);
    if (request.is_whole()) return nullptr;
    if (request.kind == Request::Kind::put)
        return messages_.receive(name, source, WindowMessage::payload, elements, Messages::no_limit);
    room = empty(uint8, Extents::of(static_cast<std::int64_t>(request.sent_bytes())));
    return messages_.receive(name, source, WindowMessage::payload,
                             {static_cast<std::byte*>(room.raw_data()), room.byte_count()}, Messages::no_limit);
}

// False: the group has ended.
bool Service::finish(const Request& request, int source, const Tensor& room) const {
    TUTTI_ASSERT(fits(request));
    using Kind = Request::Kind;
    if (request.kind == Kind::accumulate || request.kind == Kind::get_accumulate ||
        request.kind == Kind::compare_and_swap) {
        try {
            update(request, source, request.is_whole() ? request.payload.data() : room.raw_data());
        } catch (const DistError&) {
            return false;
        }
    }
    if (request.kind != Kind::put) return true;
    if (request.is_whole() && request.bytes > 0)
        std::memcpy(memory_->elements(group_->rank()) + request.offset, request.payload.data(), request.bytes);
    if (request.value != 0) (void)memory_->raise(group_->rank(), static_cast<int>(request.signal), request.value);
    return true;
}

// The answer, which nobody waits for, has memory of its own.
void Service::update(const Request& request, int source, const void* payload) const {
    const DType dtype = memory_->dtype();
    std::byte* const elements = memory_->elements(group_->rank()) + request.offset;
    const std::size_t count = request.bytes / size_of(dtype);
    if (request.kind == Request::Kind::accumulate)
        return window::update(request.op, dtype, elements, payload, nullptr, count);
    Tensor before = empty(uint8, Extents::of(static_cast<std::int64_t>(request.bytes)));
    if (request.kind == Request::Kind::compare_and_swap) {
        const auto* const expected = static_cast<const std::byte*>(payload);
        compare_and_swap(dtype, elements, expected, expected + request.bytes, before.raw_data());
    } else {
        window::update(request.op, dtype, elements, payload, before.raw_data(), count);
    }
    const std::span answer(static_cast<const std::byte*>(before.raw_data()), before.byte_count());
    const auto sending = messages_.send(name, source, WindowMessage::answer, answer, Messages::no_limit);
    sending->temporaries.push_back(std::move(before));
    group_->submit(sending, true);
}

bool Service::fits(const Request& request) const noexcept {
    using Kind = Request::Kind;
    const DType dtype = memory_->dtype();
    const std::size_t all = memory_->byte_count(group_->rank());
    if (request.offset > all || request.bytes > all - request.offset) return false;
    switch (request.kind) {
        case Kind::put:
            return request.value == 0 || request.signal < static_cast<std::uint32_t>(memory_->signal_count());
        case Kind::get:
        case Kind::flush: return true;
        case Kind::accumulate:
        case Kind::get_accumulate:
            return is_supported(request.op, dtype) && request.bytes % size_of(dtype) == 0 &&
                   request.offset % size_of(dtype) == 0;
        case Kind::compare_and_swap:
            return has_one_value(dtype) && request.bytes == size_of(dtype) && request.offset % size_of(dtype) == 0;
        case Kind::end:
        case Kind::let_go:
        case Kind::heard: break;
    }
    return false;
}

}  // namespace tutti::window
