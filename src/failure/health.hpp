// Health: a rank's news of the ranks of its world: those that have died, left or fallen silent; the verdict that ends
// the world; the accusations, and the word of the rank that judges.
//
// News arrive on the membership's thread, in any order, several for one cause: a cause counts before a symptom, and of
// two accusations the one that outranks the other, equal on all ranks.
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

    /// One piece of news.
    void hear(const rendezvous::Verdict& verdict);
    /// This rank has found a cause by itself. False: there is one already.
    bool blame(const rendezvous::Verdict& verdict);
    /// Whether a verdict waits for take_news().
    bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }
    rendezvous::Verdict take_news();
    /// The verdict that ends the world; nothing: there is none yet.
    std::optional<rendezvous::Verdict> cause() const;
    /// Raised with the first verdict: a thread that is connecting need not go on.
    const AbortFlag& bad_news() const noexcept { return bad_news_; }

    /// This rank accuses, and has told all others. Returns when `all_know`, at the latest at `limit`; true: this rank
    /// judges, false: another does.
    bool is_judge_of(const rendezvous::Verdict& accusation, const std::function<bool()>& all_know,
                     const Deadline& limit);
    /// The word of the rank that judges; the accusation itself when none comes by `limit`.
    rendezvous::Verdict await_judgement(const Deadline& limit);

    /// Why nothing comes from a rank any more: it has left, or cannot be reached. `end`: of its stream, null: it is
    /// open or there is none; `all_read`: no stream to it can hold anything yet. Nothing: something may come.
    std::optional<rendezvous::Verdict> gone(int peer, const transport::StreamEnd* end, bool all_read,
                                            Instant now) const;
    /// Ranks that have left the world.
    bool has_said_goodbye(int rank) const;
    /// Ranks that show no sign of life; they are stopped, or cut off.
    std::vector<int> silent() const;
    /// Ranks that have died or said goodbye; with a lost host all ranks that have its key.
    std::vector<int> gone_for_good(std::span<const rendezvous::Card> cards) const;
    bool is_gone_for_good(int rank) const;

    /// In a forked child: the thread that held the lock is in another process, and no news arrive.
    void renew() noexcept;

 private:
    void note(const rendezvous::Verdict& verdict) TUTTI_REQUIRES(mutex_);

    const int rank_;
    mutable Mutex mutex_;
    std::condition_variable_any changed_;
    std::optional<rendezvous::Verdict> verdict_ TUTTI_GUARDED_BY(mutex_);
    std::optional<rendezvous::Verdict> accusation_ TUTTI_GUARDED_BY(mutex_);  // the one that counts
    std::optional<rendezvous::Verdict> judgement_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> silent_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> goodbyes_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> gone_for_good_ TUTTI_GUARDED_BY(mutex_);
    std::set<int> on_lost_hosts_ TUTTI_GUARDED_BY(mutex_);  // one of each host
    std::atomic<bool> has_news_{false};
    AbortFlag bad_news_;
};

}  // namespace tutti::detail
