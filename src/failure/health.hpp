// Health: what a rank knows of the other ranks of its world: those that have died, left or fallen silent; the verdict
// that ends the world; accusations, and the verdict of the rank whose accusation prevails (the judge).
//
// News arrives on the thread of the membership (rendezvous/membership: the connections by which ranks notice deaths),
// in any order, and several items may have one cause: a cause (a death) takes precedence over a symptom (a goodbye),
// and of two accusations one outranks the other, the same one on all ranks.
//
// Threads: any.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/thread_safety.hpp"
#include "rendezvous/membership.hpp"
#include "transport/mailbox.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace tutti::detail {

class Health {
 public:
    explicit Health(int rank) : rank_(rank) {}

    /// Receives one item of news.
    void hear(const rendezvous::Verdict& verdict);
    /// This rank itself has found a cause. False: there is already a verdict.
    bool blame(const rendezvous::Verdict& verdict);
    /// Whether there is a verdict that take_news() has not returned yet.
    bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }
    rendezvous::Verdict take_news();
    /// The verdict that ends the world; nullopt: there is none yet.
    std::optional<rendezvous::Verdict> cause() const;
    /// Raised with the first verdict: it aborts connection attempts.
    const AbortFlag& bad_news() const noexcept { return bad_news_; }

    /// After this rank has sent its accusation to all ranks: blocks until `all_know`, at most until `limit`. True: this
    /// rank is the judge; false: another rank is.
    bool is_judge_of(const rendezvous::Verdict& accusation, const std::function<bool()>& all_know,
                     const Deadline& limit);
    /// Waits for the judge's verdict; returns the accusation itself if none arrives by `limit`.
    rendezvous::Verdict await_judgement(const Deadline& limit);

    /// Why no more data will arrive from a rank: it has left, or cannot be reached. `end`: how its stream ended; null:
    /// the stream is open or does not exist. `all_read`: no stream from it can hold unread data. nullopt: data may
    /// still arrive.
    std::optional<rendezvous::Verdict> gone(int peer, const transport::StreamEnd* end, bool all_read,
                                            Instant now) const;
    /// Whether `rank` has announced that it leaves the world.
    bool has_said_goodbye(int rank) const;
    /// Ranks that do not answer: they are stopped, or cut off from the network.
    std::vector<int> silent() const;
    /// Ranks that have died or left; for a lost host, all ranks with its host key.
    std::vector<int> gone_for_good(std::span<const rendezvous::Card> cards) const;
    bool is_gone_for_good(int rank) const;

    /// In a forked child: frees the lock, whose holder exists only in the parent, and forgets unread news.
    void renew() noexcept;

 private:
    void note(const rendezvous::Verdict& verdict) TUTTI_REQUIRES(mutex_);

    const int rank_;
    mutable Mutex mutex_;
    std::condition_variable_any changed_;
    std::optional<rendezvous::Verdict> verdict_ TUTTI_GUARDED_BY(mutex_);
    std::optional<rendezvous::Verdict> accusation_ TUTTI_GUARDED_BY(mutex_);  // the one that prevails
    std::optional<rendezvous::Verdict> judgement_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> silent_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> goodbyes_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> gone_for_good_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> on_lost_hosts_ TUTTI_GUARDED_BY(mutex_);  // one rank of each lost host
    std::atomic<bool> has_news_{false};
    AbortFlag bad_news_;
};

}  // namespace tutti::detail
