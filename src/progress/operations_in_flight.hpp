// OperationsInFlight: the operations that a rank of a world has in flight (collectives of active groups, and
// PostedMessages), the lock that guards them (the world's lock), and the code that moves them.
//
// Invariants: an execution is not destroyed while it runs, so a failure inside it takes effect when it has returned.
// After the first failure nothing is in flight, and nothing will be.
//
// Threads: any; functions need the lock unless they say otherwise. Clang checks this within the class only, since its
// users name the lock in other ways.
#pragma once

#include "core/biased_mutex.hpp"
#include "core/huge_pages.hpp"
#include "core/thread_safety.hpp"
#include "failure/verdicts.hpp"
#include "operation/completed_operations.hpp"
#include "operation/failable.hpp"
#include "operation/group_table.hpp"
#include "operation/member.hpp"
#include "operation/operation.hpp"
#include "progress/driver.hpp"
#include "progress/mailboxes.hpp"
#include "progress/posted_messages.hpp"
#include "transport/links.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::detail {

/// The parts of a world that carry messages.
struct WorldPaths {
    transport::Neighbours* neighbours = nullptr;
    transport::Links* links = nullptr;
    transport::Mailbox* mailbox = nullptr;
    HugePages* huge_pages = nullptr;  ///< null: the kernel copies nothing between ranks
    int news_fd = -1;                 ///< readable when there are new connections or news
};

class OperationsInFlight final : public Driven, public Failable {
 public:
    /// Both must outlive the OperationsInFlight.
    OperationsInFlight(GroupTable& groups, Verdicts& verdicts)
        : groups_(groups), verdicts_(verdicts), mailboxes_(groups, verdicts), messages_(verdicts) {}
    /// Call it before anything is in flight; takes the lock. The objects in `ways` must outlive this.
    void attach(const WorldPaths& ways) {
        const BiasedMutex::Lock lock(mutex_);
        ways_ = ways;
        mailboxes_.attach(*ways.mailbox);
    }

    Mailboxes& mailboxes() noexcept { return mailboxes_; }
    /// Mailboxes::add.
    void add(const std::shared_ptr<transport::Mailbox>& mailbox) TUTTI_REQUIRES(mutex_);
    PostedMessages& messages() noexcept { return messages_; }
    transport::Links& links() noexcept { return *ways_.links; }
    BiasedMutex& mutex() noexcept TUTTI_THREAD_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }
    /// Holds the lock. After it has released the lock it calls the continuations of operations completed meanwhile.
    class TUTTI_THREAD_ATTRIBUTE(scoped_lockable) Guard {
     public:
        explicit Guard(OperationsInFlight& flight) TUTTI_THREAD_ATTRIBUTE(acquire_capability(flight.mutex_))
            : flight_(flight) {
            flight_.mutex_.lock();
        }
        /// Adopts the lock, which this thread holds already.
        Guard(OperationsInFlight& flight, std::adopt_lock_t /*held*/) TUTTI_REQUIRES(flight.mutex_) : flight_(flight) {}
        ~Guard() TUTTI_THREAD_ATTRIBUTE(release_capability());
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

     private:
        OperationsInFlight& flight_;
    };

    /// Whether nothing is in flight that a call would hold up which runs without the driver, and there is neither a
    /// failure nor news of one. The progress thread receives what standing receives wait for.
    bool quiet() const noexcept TUTTI_REQUIRES(mutex_) {
        return active_.empty() && (messages_.empty() || (messages_.only_await_requests() && !lacks_thread_)) && sound();
    }
    bool sound() const noexcept TUTTI_REQUIRES(mutex_) { return !failure_ && !verdicts_.health().has_news(); }
    /// As sound(), from any thread without the lock.
    bool looks_sound() const noexcept {
        return !failed_.load(std::memory_order_acquire) && !verdicts_.health().has_news();
    }
    const std::exception_ptr& failure() const noexcept override { return failure_; }
    bool failing() const noexcept override TUTTI_REQUIRES(mutex_) { return failure_ || deferred_; }
    InFlight any() const override TUTTI_REQUIRES(mutex_);
    /// The first deadline of the operations in flight, but not later than `limit`.
    Deadline first_deadline(const Deadline& limit) const TUTTI_REQUIRES(mutex_);
    /// The current collective of `group`, or, if null, of any group; null: there is none. Takes the lock.
    std::shared_ptr<Operation> collective_of(const Member* group);

    /// From now on moves the collectives of a group, until it has none in flight.
    void activate(IssuedCollectives& collectives) TUTTI_REQUIRES(mutex_);
    void post(const std::shared_ptr<Operation>& message) TUTTI_REQUIRES(mutex_);
    /// Moves all operations forward without blocking; true if anything moved.
    bool progress() TUTTI_REQUIRES(mutex_);
    /// Fails if there is news of a failure. First processes data that arrived from a rank before it died or left:
    /// operations that need no more data complete with success.
    void hear() TUTTI_REQUIRES(mutex_);
    /// Moves an execution forward; a failure inside it takes effect when it has returned. If a user's function throws,
    /// the world fails on all ranks.
    bool run(engine::Running& execution) TUTTI_REQUIRES(mutex_);
    /// Completes the operation, with an error or (null) success, after Group::end() has written its record.
    void complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error) TUTTI_REQUIRES(mutex_);
    void fail(const std::exception_ptr& error) override TUTTI_REQUIRES(mutex_);
    void with_lock(const std::function<void()>& act) override {
        const Guard guard(*this);
        act();
    }
    /// The periodic checks, every 10 ms: deadlines, ranks that left, mismatches that no message shows.
    void check() TUTTI_REQUIRES(mutex_);
    /// From now on check() completes no message: Departure does.
    void leave() noexcept TUTTI_REQUIRES(mutex_) { leaving_ = true; }
    /// In a forked child, where no operation can run: frees the lock, and sets `failure`.
    void inherit(const std::exception_ptr& failure) noexcept;

    // For the driver; these take the lock.
    bool move() override;
    bool is_busy() override;
    bool only_awaits_sockets() override;
    void note_thread(bool there) noexcept override { lacks_thread_ = !there; }
    void look_after() override;
    bool has_failed() override;
    void pollables(std::vector<transport::Pollable>& into) override;
    int news_fd() const noexcept override { return ways_.news_fd; }
    bool is_moved_by_threads() override;
    void end_of_thread() noexcept override;

 private:
    /// How much of the operations in flight the world's own streams and memory carry.
    enum class Share : std::uint8_t { none, some, all };
    Share native_share() const TUTTI_REQUIRES(mutex_);
    bool take_connections() TUTTI_REQUIRES(mutex_);
    bool move_all() TUTTI_REQUIRES(mutex_);
    void end_what_precedes(const rendezvous::Verdict& news) TUTTI_REQUIRES(mutex_);
    bool progress_collectives() TUTTI_REQUIRES(mutex_);
    /// The parts of check(). False: the check has ended.
    bool check_messages(Instant now) TUTTI_REQUIRES(mutex_);
    bool check_collectives(Instant now) TUTTI_REQUIRES(mutex_);
    void check_last_collectives() TUTTI_REQUIRES(mutex_);

    GroupTable& groups_;
    Verdicts& verdicts_;
    WorldPaths ways_;                       // set by attach(), then constant
    std::atomic<bool> lacks_thread_{true};  // the progress thread has not been created
    std::atomic<bool> has_threads_{false};  // a mailbox other than the world's has, or had, threads
    BiasedMutex mutex_;
    Mailboxes mailboxes_ TUTTI_GUARDED_BY(mutex_);
    PostedMessages messages_ TUTTI_GUARDED_BY(mutex_);
    std::vector<IssuedCollectives*> active_ TUTTI_GUARDED_BY(mutex_);  // their operations keep the groups alive
    std::vector<IssuedCollectives*> checked_
        TUTTI_GUARDED_BY(mutex_);  // of one check: meanwhile others may become active
    CompletedOperations completed_ TUTTI_GUARDED_BY(mutex_);
    std::exception_ptr failure_ TUTTI_GUARDED_BY(mutex_);
    std::atomic<bool> failed_{false};                       // there is a failure_; for those without the lock
    bool executing_ TUTTI_GUARDED_BY(mutex_) = false;       // inside an execution
    std::exception_ptr deferred_ TUTTI_GUARDED_BY(mutex_);  // a failure inside the execution
    bool leaving_ TUTTI_GUARDED_BY(mutex_) = false;         // no further receive will be posted
    Instant next_check_ TUTTI_GUARDED_BY(mutex_){}, last_check_ TUTTI_GUARDED_BY(mutex_){};
    std::vector<std::shared_ptr<Member>> no_groups_ TUTTI_GUARDED_BY(mutex_);  // kept for the memory of its list
};

}  // namespace tutti::detail
