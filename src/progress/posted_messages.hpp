// PostedMessages: the sends and receives, of all groups, that a rank of a world has posted to mailboxes and that are
// not complete, in the order of their issue; and how they complete when their bytes have been sent or received, when
// their peer has left, and when this rank leaves.
//
// Invariant: a message is in here from its post until Member::end() is called for it, once.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/deadline.hpp"
#include "operation/operation.hpp"
#include "transport/mailbox.hpp"

#include <exception>
#include <list>
#include <memory>
#include <vector>

namespace tutti::detail {

class Verdicts;

class PostedMessages {
 public:
    /// `verdicts` knows which ranks have left; it must outlive this.
    explicit PostedMessages(const Verdicts& verdicts) : verdicts_(verdicts) {}

    bool empty() const noexcept { return messages_.empty(); }
    /// Whether they are all standing receives: a service waits with them, for as long as it lives, for requests of
    /// other hosts, and none has come.
    bool only_await_requests() const noexcept;
    /// The oldest message; there must be one.
    const std::shared_ptr<Operation>& front() const noexcept { return messages_.front(); }
    /// Whether `mailbox` carries at least one of them.
    bool use(const transport::Mailbox& mailbox) const;
    /// Whether `mailbox` carries all of them.
    bool use_only(const transport::Mailbox& mailbox) const;
    /// Whether threads of a transport's library carry all of them.
    bool are_moved_by_threads() const;
    /// The first deadline, but not later than `limit`.
    Instant first_deadline(Instant limit) const;

    /// Adds a message, just before it is posted to its group's mailbox.
    void add(const std::shared_ptr<Operation>& message);
    /// Completes the messages whose bytes have all been sent, or received. True if there were any.
    bool end_done();
    /// Completes all of them with the error.
    void drop(const std::exception_ptr& error);

    /// A message whose deadline has passed; null: there is none.
    std::shared_ptr<Operation> overdue(Instant now) const;
    /// The messages that can never be matched: their peer has left, and this rank has read all that it sent.
    std::vector<std::shared_ptr<Operation>> in_vain() const;
    /// Completes a send with PeerLost, since its receiver has left without receiving it. No other rank is affected: the
    /// streams are intact.
    void give_up(const std::shared_ptr<Operation>& send);
    /// While this rank leaves a group, or all groups (null): the ranks of the world that have yet to receive this
    /// rank's messages, or to finish sending a message that a receive has matched. Completes all other messages with
    /// errors.
    std::vector<int> awaited_receivers(const Member* group);
    /// Notes in the recorder for which ranks the messages have waited from `since` to `now`.
    void record_waits(Instant since, Instant now) const;

 private:
    using Messages = std::list<std::shared_ptr<Operation>>;
    /// Removes a message; returns the one behind it.
    Messages::iterator remove(Messages::iterator message);
    bool is_in_vain(const Operation& message) const;

    const Verdicts& verdicts_;
    Messages messages_;
    Messages spare_;  // list nodes for the next messages
};

}  // namespace tutti::detail
