#include "failure/health.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace tutti::detail {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

namespace {

constexpr std::chrono::milliseconds cause_patience{500};  // for news of why a stream has ended

Verdict left(int rank) {
    return {VerdictKind::left, rank, fmt::format("rank {} has left the group", rank)};
}

}  // namespace

void Health::hear(const Verdict& verdict) {
    TUTTI_ASSERT(verdict.rank >= 0 || (verdict.kind != VerdictKind::left && verdict.kind != VerdictKind::peer_lost));
    const MutexLock lock(mutex_);
    note(verdict);
    changed_.notify_all();
    if (verdict.kind == VerdictKind::silent || verdict.kind == VerdictKind::judged) return;
    if (verdict.kind == VerdictKind::left && verdict.text.empty()) {
        goodbyes_.insert(verdict.rank);
        return;
    }
    // A cause beats a symptom.
    if (!verdict_ || verdict_->kind == VerdictKind::left) verdict_ = verdict;
    TUTTI_ASSERT(verdict_.has_value());
    has_news_.store(true, std::memory_order_release);
    bad_news_.raise(verdict_->text);
}

void Health::note(const Verdict& verdict) {
    switch (verdict.kind) {
        case VerdictKind::silent: silent_.insert(verdict.rank); break;
        case VerdictKind::judged:
            if (!judgement_) judgement_ = verdict;
            break;
        case VerdictKind::mismatch:
        case VerdictKind::timed_out:
            if (!accusation_ || outranks(verdict, *accusation_)) accusation_ = verdict;
            break;
        case VerdictKind::left:
        case VerdictKind::peer_lost: gone_for_good_.insert(verdict.rank); break;
        case VerdictKind::host_lost: on_lost_hosts_.insert(verdict.rank); break;
        case VerdictKind::aborted:
        case VerdictKind::damaged: break;
    }
}

bool Health::blame(const Verdict& verdict) {
    TUTTI_ASSERT(verdict.kind != VerdictKind::silent && verdict.kind != VerdictKind::judged);
    const MutexLock lock(mutex_);
    if (verdict_) return false;
    verdict_ = verdict;
    has_news_ = true;
    return true;
}

Verdict Health::take_news() {
    const MutexLock lock(mutex_);
    has_news_.store(false, std::memory_order_relaxed);
    TUTTI_ASSERT(verdict_.has_value());
    return *verdict_;
}

std::optional<Verdict> Health::cause() const {
    const MutexLock lock(mutex_);
    return verdict_;
}

bool Health::is_judge_of(const Verdict& accusation, const std::function<bool()>& all_know, const Deadline& limit) {
    TUTTI_ASSERT(rendezvous::is_accusation(accusation.kind) && accusation.from == rank_);
    {
        const MutexLock lock(mutex_);
        note(accusation);
    }
    for (;;) {
        const bool known = all_know() || limit.expired();
        const MutexLock lock(mutex_);
        TUTTI_ASSERT(accusation_.has_value());
        if (judgement_ || accusation_->from != rank_) return false;
        if (known) return true;
        changed_.wait_for(mutex_, std::chrono::milliseconds(1));
    }
}

Verdict Health::await_judgement(const Deadline& limit) {
    const MutexLock lock(mutex_);
    while (!judgement_ && !(accusation_ && gone_for_good_.contains(accusation_->from))) {
        if (changed_.wait_until(mutex_, limit.when()) == std::cv_status::timeout) break;
    }
    TUTTI_ASSERT(judgement_ || accusation_ || verdict_);
    return judgement_ ? *judgement_ : accusation_ ? *accusation_ : *verdict_;
}

// A goodbye travels apart from the data: bytes that a connection still holds count first. Where a stream has ended
// nothing more comes in any case; a goodbye or a verdict, which may still be on its way, tells why.
std::optional<Verdict> Health::gone(int peer, const transport::StreamEnd* end, bool all_read, Instant now) const {
    TUTTI_ASSERT(peer >= 0);
    if ((end != nullptr || all_read) && has_said_goodbye(peer)) return left(peer);
    TUTTI_ASSERT(end == nullptr || end->when <= now);
    if (end == nullptr || now - end->when < cause_patience) return std::nullopt;
    if (end->broken.empty()) return left(peer);
    return Verdict{VerdictKind::peer_lost, peer,
                   fmt::format("rank {} cannot be reached any more: {}", peer, end->broken)};
}

bool Health::has_said_goodbye(int rank) const {
    const MutexLock lock(mutex_);
    TUTTI_ASSERT(rank >= 0);
    return goodbyes_.contains(rank);
}

std::vector<int> Health::silent() const {
    const MutexLock lock(mutex_);
    return {silent_.begin(), silent_.end()};
}

std::vector<int> Health::gone_for_good(std::span<const rendezvous::Card> cards) const {
    const MutexLock lock(mutex_);
    std::set<int> gone = gone_for_good_;
    for (const int lost : on_lost_hosts_) {
        TUTTI_ASSERT(static_cast<std::size_t>(lost) < cards.size());
        const std::string& host = cards[static_cast<std::size_t>(lost)].host_key;
        for (std::size_t rank = 0; rank < cards.size(); ++rank) {
            if (cards[rank].host_key == host) gone.insert(static_cast<int>(rank));
        }
    }
    return {gone.begin(), gone.end()};
}

bool Health::is_gone_for_good(int rank) const {
    const MutexLock lock(mutex_);
    TUTTI_ASSERT(rank >= 0);
    return gone_for_good_.contains(rank);
}

void Health::renew() noexcept {
    new (&mutex_) Mutex;
    has_news_.store(false, std::memory_order_relaxed);
}

}  // namespace tutti::detail
