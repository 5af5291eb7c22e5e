// News of a world: how they travel, also around ranks that are silent.
#include "core/hash.hpp"
#include "core/log.hpp"
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/tree.hpp"

#include <tutti/error.hpp>

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace tutti::rendezvous {
namespace {

// How long a neighbour may take to show a sign of life. This rank can see whether a process of its host is stopped: one
// that is not merely waits for a core.
constexpr std::chrono::milliseconds patience_with_far{700};
constexpr std::chrono::milliseconds patience_with_near{2000};
constexpr std::chrono::milliseconds contact_attempt{1000};

}  // namespace

bool outranks(const Verdict& a, const Verdict& b) {
    if (a.kind != b.kind) return a.kind == VerdictKind::mismatch;
    return a.from < b.from;
}

// Forwards each piece of news once: while lifelines move there may be two ways to a rank. False if it was known, or an
// accusation that counts more was.
bool Membership::forward(const Verdict& verdict, const Edge* teller) {
    const std::string_view text = std::string_view(verdict.text).substr(0, news_text_max);
    News news{verdict.kind, verdict.rank, static_cast<std::uint32_t>(text.size()), verdict.group, verdict.from};
    const auto bytes = [&] { return std::string(reinterpret_cast<const char*>(&news), sizeof news).append(text); };
    news.id = fnv1a(bytes());  // equal for the same news from any rank
    const std::string told = bytes();
    const bool asks = wants_answer(verdict);
    const Instant now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (!heard_.insert(news.id).second) return false;
    if (is_accusation(verdict.kind)) {
        // A rank that has answered for another's accusation does not accuse any more: the other may judge already.
        if (accusation_ && (teller == nullptr || outranks(*accusation_, verdict))) return false;
        accusation_ = verdict;
    }
    news_ += told;  // goodbyes too: a rank that is accepted later counts on none that has gone
    if (verdict.kind == VerdictKind::left)
        gone_[static_cast<std::size_t>(verdict.rank)] = true;
    else if (verdict.kind != VerdictKind::silent)
        fatal_ = true;
    if (verdict.kind == VerdictKind::host_lost)
        lost_hosts_.insert(cards_[static_cast<std::size_t>(verdict.rank)].host_key);
    changed_.notify_all();
    if (asks) ledger_.open(news.id, teller != nullptr ? teller->rank : Ledger::own);
    for (const auto& edge : edges_) {
        if (edge.get() == teller || !edge->fd) continue;
        // News are few and short; a neighbour whose socket is full has stopped, and will be noticed otherwise.
        say(*edge, std::as_bytes(std::span(told)));
        if (asks && !edge->left && !unreachable_.contains(edge->rank)) ledger_.ask(news.id, edge->rank, now);
    }
    if (asks && teller == nullptr) ledger_.told(news.id);
    ::eventfd_write(stop_.get(), 1);  // the service thread looks after the answers
    return true;
}

// Sends a new lifeline the news flooded before it existed (mutex_ is held).
void Membership::tell_what_happened(Edge& edge) {
    if (!news_.empty()) say(edge, std::as_bytes(std::span(news_)));
}

void Membership::say(Edge& edge, std::span<const std::byte> bytes) {
    if (!edge.wire.post(edge.fd.get(), bytes) && is_silence(errno)) edge.error = errno;
}

bool Membership::flood(const Verdict& verdict) {
    return forward(verdict, nullptr);
}

bool Membership::settled() {
    const std::lock_guard lock(mutex_);
    return ledger_.settled();
}

void Membership::answer(Edge& edge, VerdictKind how, Ledger::Id id) const {
    const News words{.kind = how, .rank = options_.rank, .id = id};
    if (edge.fd) say(edge, bytes_of(words));
}

void Membership::send_answers() {
    const std::lock_guard lock(mutex_);
    for (const auto [to, id] : ledger_.take_answers()) {
        for (const auto& edge : edges_) {
            if (edge->rank == to) answer(*edge, all_have_it, id);
        }
    }
}

// ---- Silent ranks

void Membership::look_for_silent() {
    note_refusals();
    std::vector<int> silent;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [rank, since] : ledger_.unheard()) {
            if (is_silent(rank, since)) silent.push_back(rank);
        }
    }
    for (const int rank : silent) {
        const Verdict verdict{VerdictKind::silent, rank};
        if (forward(verdict, nullptr)) hear(verdict);
        go_around({rank});
        const std::lock_guard lock(mutex_);
        ledger_.drop(rank);
    }
    send_answers();
}

bool Membership::is_silent(int rank, Instant since) const {
    const auto waited = Clock::now() - since;
    if (!can_watch(rank)) return waited >= patience_with_far;
    return waited >= patience_with_near || is_stopped(cards_[static_cast<std::size_t>(rank)].process);
}

// Contacts their neighbours: this rank may be the only one that can tell them.
void Membership::go_around(const std::vector<int>& ranks) {
    std::vector<int> targets;
    {
        const std::lock_guard lock(mutex_);
        unreachable_.insert(ranks.begin(), ranks.end());
        for (const int rank : ranks) {
            for (const int other : neighbours_of(rank, gone_)) {
                if (other == options_.rank || unreachable_.contains(other) || is_connected(other)) continue;
                if (contacted_.insert(other).second) targets.push_back(other);
            }
        }
        for (const int target : targets) ledger_.ask_all(target, Clock::now());
    }
    for (const int target : targets) contact(target);
}

// Makes a lifeline to a rank that is neither parent nor child.
void Membership::contact(int rank) {
    if (UniqueFd fd = attach_unseen(rank)) {
        const std::lock_guard lock(mutex_);
        return add_edge(rank, {std::move(fd), {}}, false, false);
    }
    try {
        messengers_.emplace_back([this, rank] {
            serving = true;
            const Instant start = Clock::now();
            try {
                security::Connection made = dial(rank, true, Deadline::after(contact_attempt), &closing_);
                const std::lock_guard lock(mutex_);
                add_edge(rank, std::move(made), false, true);
            } catch (const DistError& error) {
                TUTTI_DEBUG("rank {} cannot be told directly: {}", rank, error.what());
                const std::lock_guard lock(mutex_);
                if (Clock::now() - start < contact_attempt) refused_.push_back(rank);
            }
            ::eventfd_write(stop_.get(), 1);
        });
    } catch (const std::system_error& error) {
        TUTTI_DEBUG("rank {} cannot be told directly: {}", rank, error.what());
    }
}

// Notes ranks that have gone, as the ranks beside them may not have the news either.
void Membership::note_refusals() {
    std::vector<int> ranks;
    {
        const std::lock_guard lock(mutex_);
        ranks.swap(refused_);
    }
    if (ranks.empty()) return;
    go_around(ranks);
    const std::lock_guard lock(mutex_);
    for (const int rank : ranks) ledger_.drop(rank);
}

}  // namespace tutti::rendezvous
