#include "progress/posted_messages.hpp"

#include "core/assert.hpp"
#include "failure/failure_inquiry.hpp"
#include "failure/verdicts.hpp"
#include "operation/member.hpp"
#include "operation/recording.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::detail {
namespace {

constexpr std::size_t spare_max = 4096;

}  // namespace

bool PostedMessages::only_await_requests() const noexcept {
    return std::ranges::all_of(messages_, [](const auto& one) {
        return one->transfer.standing && one->transfer.peer == transport::any_source && !one->transfer.done;
    });
}

bool PostedMessages::use(const transport::Mailbox& mailbox) const {
    return std::ranges::any_of(messages_, [&](const auto& one) { return &one->group->mailbox() == &mailbox; });
}

bool PostedMessages::use_only(const transport::Mailbox& mailbox) const {
    return std::ranges::all_of(messages_, [&](const auto& one) { return &one->group->mailbox() == &mailbox; });
}

bool PostedMessages::are_moved_by_threads() const {
    return std::ranges::all_of(messages_, [](const auto& one) { return one->group->mailbox().has_threads(); });
}

Instant PostedMessages::first_deadline(Instant limit) const {
    for (const auto& message : messages_) limit = std::min(limit, message->deadline.when());
    return limit;
}

void PostedMessages::add(const std::shared_ptr<Operation>& message) {
    TUTTI_ASSERT(message != nullptr && !message->is_collective && !message->done());
    if (spare_.empty()) return messages_.push_back(message);
    spare_.front() = message;
    messages_.splice(messages_.end(), spare_, spare_.begin());
}

PostedMessages::Messages::iterator PostedMessages::remove(Messages::iterator message) {
    TUTTI_ASSERT(spare_.size() <= spare_max);
    TUTTI_ASSERT(message != messages_.end());
    const auto next = std::next(message);
    if (spare_.size() >= spare_max) return messages_.erase(message);
    message->reset();
    spare_.splice(spare_.begin(), messages_, message);
    return next;
}

bool PostedMessages::end_done() {
    bool any = false;
    for (auto it = messages_.begin(); it != messages_.end();) {
        if (!(*it)->transfer.done) {
            ++it;
            continue;
        }
        const std::shared_ptr<Operation> message = std::move(*it);
        it = remove(it);
        TUTTI_ASSERT(!message->done());
        message->group->end(message, nullptr);
        any = true;
    }
    return any;
}

void PostedMessages::drop(const std::exception_ptr& error) {
    TUTTI_ASSERT(error != nullptr);
    for (const auto& message : std::exchange(messages_, {})) message->group->end(message, error);
}

std::shared_ptr<Operation> PostedMessages::overdue(Instant now) const {
    const auto found = std::ranges::find_if(messages_, [&](const auto& one) { return one->deadline.expired(now); });
    return found == messages_.end() ? nullptr : *found;
}

std::vector<std::shared_ptr<Operation>> PostedMessages::in_vain() const {
    std::vector<std::shared_ptr<Operation>> messages;
    for (const auto& message : messages_) {
        if (is_in_vain(*message)) messages.push_back(message);
    }
    return messages;
}

bool PostedMessages::is_in_vain(const Operation& message) const {
    TUTTI_ASSERT(!message.is_collective);
    const transport::Transfer& transfer = message.transfer;
    if (transfer.done || transfer.peer < 0 || transfer.peer == verdicts_.rank()) return false;
    return transfer.refused || verdicts_.gone(transfer.peer, message.group->transport()).has_value();
}

void PostedMessages::give_up(const std::shared_ptr<Operation>& send) {
    TUTTI_ASSERT(!send->is_receive && !send->is_collective);
    send->group->mailbox().cancel_send(send->transfer);
    std::erase(messages_, send);
    TUTTI_ASSERT(!send->done() && std::ranges::find(messages_, send) == messages_.end());
    ErrorContext context = send->group->inquiry().context_of(*send);
    context.peer = send->transfer.peer;
    send->group->end(send, std::make_exception_ptr(
                               PeerLost(fmt::format("{}: rank {} has left the group, and has not received this message",
                                                    send->group->inquiry().title_of(*send), context.peer),
                                        std::move(context))));
}

std::vector<int> PostedMessages::awaited_receivers(const Member* group) {
    std::vector<int> awaited;
    for (auto it = messages_.begin(); it != messages_.end();) {
        const std::shared_ptr<Operation> message = *it++;
        transport::Transfer& transfer = message->transfer;
        if ((group != nullptr && message->group.get() != group) || transfer.done) continue;
        const bool in_vain = is_in_vain(*message);
        if (!message->is_receive && (transfer.peer == verdicts_.rank() || in_vain)) {
            give_up(message);
        } else if (message->is_receive && message->group->mailbox().cancel_receive(transfer)) {
            std::erase(messages_, message);
            message->group->end(
                message,
                std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", message->group->name()))));
        } else if (!in_vain) {
            awaited.push_back(transfer.peer);
        }
    }
    return awaited;
}

void PostedMessages::record_waits(Instant since, Instant now) const {
    TUTTI_ASSERT(since <= now);
    for (const auto& message : messages_) {
        if (message->transfer.peer < 0) continue;
        Member& group = *message->group;
        const int peer = group.ranks().rank_of(message->transfer.peer);
        TUTTI_ASSERT(peer >= 0);
        recording::waits(group.recorder(), *message, {&peer, 1}, since, now);
    }
}

}  // namespace tutti::detail
