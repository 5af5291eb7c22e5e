// PostedMessages: the sends and receives that a rank of a world has posted to a mailbox and that are not over, of all
// groups, in the order of their issue; how they end when their bytes have gone or come, when their other side has left,
// and when this rank leaves.
//
// Invariant: a message is in here from its post until Member::end() has heard of it, once.
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
    /// `verdicts` say who has left; they must outlive it.
    explicit PostedMessages(const Verdicts& verdicts) : verdicts_(verdicts) {}

    bool empty() const noexcept { return messages_.empty(); }
    /// The oldest; only while there is one.
    const std::shared_ptr<Operation>& front() const noexcept { return messages_.front(); }
    /// Whether one of them goes through that mailbox.
    bool use(const transport::Mailbox& mailbox) const;
    /// Whether all of them do.
    bool use_only(const transport::Mailbox& mailbox) const;
    /// Whether threads of a transport's library carry all of them.
    bool are_moved_by_threads() const;
    /// The first deadline, but not later than `limit`.
    Instant first_deadline(Instant limit) const;

    /// Just before it is given to its group's mailbox.
    void add(const std::shared_ptr<Operation>& message);
    /// Those whose bytes have all gone, or come, end well. True if any did.
    bool end_done();
    /// All end with it.
    void drop(const std::exception_ptr& error);

    /// One whose time is up; null: there is none.
    std::shared_ptr<Operation> overdue(Instant now) const;
    /// Those whose other side has left without them, as far as this rank has looked.
    std::vector<std::shared_ptr<Operation>> in_vain() const;
    /// A send ends with PeerLost, as its receiver has left without it. That concerns no other rank: the streams are as
    /// they were.
    void give_up(const std::shared_ptr<Operation>& send);
    /// While this rank leaves one group, or all (null): the ranks of the world that have yet to take the messages sent
    /// to them, or to finish sending a message that a receive has met. Other messages end here.
    std::vector<int> awaited_receivers(const Member* group);
    /// The recorder learns for which ranks they have waited between these two looks.
    void record_waits(Instant since, Instant now) const;

 private:
    using Messages = std::list<std::shared_ptr<Operation>>;
    /// Returns the one behind it.
    Messages::iterator remove(Messages::iterator message);
    bool is_in_vain(const Operation& message) const;

    const Verdicts& verdicts_;
    Messages messages_;
    Messages spare_;  // the memory of those that are over, for the next ones
};

}  // namespace tutti::detail
