// Flight: the operations that a rank of a world has in flight (collectives of active groups, and PostedMessages), the
// lock that guards them, and the code that moves them.
//
// Invariants: an execution is not destroyed while it runs, so a failure inside takes effect when it has returned. After
// the first failure nothing is in flight, and nothing will be.
//
// Threads: any; functions need the lock unless they say otherwise.
#pragma once

#include "core/biased_mutex.hpp"
#include "core/huge_pages.hpp"
#include "group/driver.hpp"
#include "group/group_table.hpp"
#include "group/mailboxes.hpp"
#include "group/operation.hpp"
#include "group/posted_messages.hpp"
#include "group/verdicts.hpp"
#include "transport/links.hpp"

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::detail {

class Collectives;

/// The parts of a world through which messages go.
struct Ways {
    transport::Neighbours* neighbours = nullptr;
    transport::Links* links = nullptr;
    transport::Mailbox* mailbox = nullptr;
    HugePages* huge_pages = nullptr;  ///< null: the kernel copies nothing between ranks
    int news_fd = -1;                 ///< readable when there are connections or news
};

class Flight final : public Driven {
 public:
    /// Both must outlive it.
    Flight(GroupTable& groups, Verdicts& verdicts)
        : groups_(groups), verdicts_(verdicts), mailboxes_(groups, verdicts), messages_(verdicts) {}
    /// Before anything is in flight. The objects that it names must outlive this.
    void attach(const Ways& ways) {
        ways_ = ways;
        mailboxes_.attach(*ways.mailbox);
    }

    Mailboxes& mailboxes() noexcept { return mailboxes_; }
    PostedMessages& messages() noexcept { return messages_; }
    transport::Links& links() noexcept { return *ways_.links; }
    BiasedMutex& mutex() noexcept { return mutex_; }
    /// The lock, held. Continuations of operations completed meanwhile run when it is free again: they may issue more.
    class Guard {
     public:
        explicit Guard(Flight& flight) : flight_(flight) { flight_.mutex_.lock(); }
        /// The lock that this thread holds already.
        Guard(Flight& flight, std::adopt_lock_t /*held*/) : flight_(flight) {}
        ~Guard();
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

     private:
        Flight& flight_;
    };

    /// Nothing is in flight, and nothing is wrong.
    bool quiet() const noexcept { return active_.empty() && messages_.empty() && sound(); }
    bool sound() const noexcept { return !failure_ && !verdicts_.health().has_news(); }
    const std::exception_ptr& failure() const noexcept { return failure_; }
    bool failing() const noexcept { return failure_ || deferred_; }
    /// An operation in flight, of collectives first, and its group's inquest; null: there is none.
    struct InFlight {
        std::shared_ptr<Operation> operation{};
        Inquest* inquest = nullptr;
    };
    InFlight any() const;
    /// The first deadline of the operations in flight, but not later than `limit`.
    Deadline first_deadline(const Deadline& limit) const;
    /// The collective that moves in a group, or in any group (null); takes the lock.
    std::shared_ptr<Operation> collective_of(const Group* group);

    /// A group has collectives in flight, from now on until it has none.
    void activate(Collectives& collectives);
    void post(const std::shared_ptr<Operation>& message);
    /// Moves all operations as far as they go; true if anything moved.
    bool progress();
    /// Fails, if the news says so. Data that had come from a rank before it died or left count first: operations that
    /// need no more than these succeed.
    void hear();
    /// Moves an execution on; a failure inside takes effect when it has returned. Where a user's function fails the
    /// world does, on all ranks.
    bool run(engine::Running& execution);
    /// The operation is over: with an error, or well. Its record has been written (Group::end).
    void complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error);
    /// Every operation of every group fails with it.
    void fail(const std::exception_ptr& error);
    /// The checks that a rank makes now and then: deadlines, ranks that left, mismatches that no message shows.
    void check();
    /// From now on check() ends no message: the rank that leaves looks after them.
    void leave() noexcept { leaving_ = true; }
    /// In a forked child, where nothing can be done: the lock is free, and this is the failure.
    void inherit(const std::exception_ptr& failure) noexcept;

    // For the driver; these take the lock.
    bool move() override;
    bool is_busy() override;
    void look_after() override;
    bool has_failed() override;
    void pollables(std::vector<transport::Pollable>& into) override;
    int news_fd() const noexcept override { return ways_.news_fd; }
    void end_of_thread() noexcept override;

 private:
    bool has_native() const;
    bool take_connections();
    bool move_all();
    void take_what_has_come();
    bool progress_collectives();
    /// The parts of check(). False: it has ended.
    bool check_messages(Instant now);
    bool check_collectives(Instant now);
    void check_last_collectives();

    GroupTable& groups_;
    Verdicts& verdicts_;
    Ways ways_;
    Mailboxes mailboxes_;
    PostedMessages messages_;
    BiasedMutex mutex_;
    std::vector<Collectives*> active_;                   // their operations keep the groups alive
    std::vector<Collectives*> checked_;                  // of one check: meanwhile others may become active
    std::vector<std::shared_ptr<Operation>> completed_;  // whose continuations have not been called yet
    std::exception_ptr failure_;
    bool executing_ = false;       // inside an execution
    std::exception_ptr deferred_;  // the failure meanwhile
    bool leaving_ = false;         // no receive will come
    Instant next_check_{}, last_check_{};
    std::vector<std::shared_ptr<Group>> no_groups_;  // the memory of the last check's list
};

}  // namespace tutti::detail
