// PostedMessages: the sends and receives that a rank of a world has posted to mailboxes and that are not complete, of
// all groups, in the order of their issue; and how they complete when their bytes have been sent or received, when
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
    /// The oldest; only while there is one.
    const std::shared_ptr<Operation>& front() const noexcept { return messages_.front(); }
    /// Whether that mailbox carries at least one of them.
    bool use(const transport::Mailbox& mailbox) const;
    /// Whether that mailbox carries all of them.
    bool use_only(const transport::Mailbox& mailbox) const;
    /// Whether threads of a transport's library carry all of them.
    bool are_moved_by_threads() const;
    /// The first deadline, but not later than `limit`.
    Instant first_deadline(Instant limit) const;

    /// Just before it is given to its group's mailbox.
    void add(const std::shared_ptr<Operation>& message);
    /// Completes those whose bytes have all been sent, or received. True if there were any.
    bool end_done();
    /// Completes all of them with the error.
    void drop(const std::exception_ptr& error);

    /// One whose deadline has passed; null: there is none.
    std::shared_ptr<Operation> overdue(Instant now) const;
    /// Those that can never be matched, as their peer has left without them and this rank has read all that it sent.
    std::vector<std::shared_ptr<Operation>> in_vain() const;
    /// Completes a send with PeerLost, as its receiver has left without receiving it. That affects no other rank: the
    /// streams are intact.
    void give_up(const std::shared_ptr<Operation>& send);
    /// While this rank leaves a group, or all groups (null): the ranks of the world that have yet to receive this
    /// rank's messages, or to finish sending a message that a receive has matched. Completes all other messages with
    /// errors.
    std::vector<int> awaited_receivers(const Member* group);
    /// Notes in the recorder for which ranks they have waited from `since` to `now`.
    void record_waits(Instant since, Instant now) const;

 private:
    using Messages = std::list<std::shared_ptr<Operation>>;
    /// Returns the one behind it.
    Messages::iterator remove(Messages::iterator message);
    bool is_in_vain(const Operation& message) const;

    const Verdicts& verdicts_;
    Messages messages_;
    Messages spare_;  // list nodes for the next messages
};

}  // namespace tutti::detail
