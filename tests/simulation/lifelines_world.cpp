#include "simulation/lifelines_world.hpp"

#include "simulation/chance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::simulation {
namespace {

using namespace rendezvous;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds silence_limit{13'500};
constexpr milliseconds strikes_within{800}, arrivals_within{200}, settling{4000};
const Instant begun{std::chrono::hours(1)};

}  // namespace

// Beside a rank: what only the promises are about.
struct LifelinesWorld::Account {
    std::vector<int> witnesses{};  // that a lifeline showed its death
    std::vector<Verdict> heard{};
    bool began_news = false, all_had_joined = false, was_settled = false;

    bool knows_the_end() const {
        return std::ranges::any_of(heard, [](const Verdict& verdict) { return ends_the_world(verdict.kind); });
    }
};

LifelinesWorld::LifelinesWorld(std::uint64_t seed) : LifelineNetwork(chance_, now_, silence_limit), chance_(seed) {
    const int size = 2 + static_cast<int>(below(chance_, 9));
    const std::uint64_t hosts = below(chance_, 5) < 2 ? 1 : 2 + below(chance_, 2);
    std::vector<Card> cards(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
        Card& card = cards[static_cast<std::size_t>(rank)];
        card.host_key = card.host_name = fmt::format("host{}", below(chance_, hosts));
        card.process = 1000 + rank;
    }
    add_ranks(std::move(cards), seed);
    accounts_.resize(ranks().size());
    for (int rank = 0; rank < size; ++rank)
        at(now_ + microseconds(below(chance_, microseconds(arrivals_within).count())),
           [this, rank] { come(this->rank(rank)); });
    plan_strikes();
}

LifelinesWorld::~LifelinesWorld() = default;

std::string LifelinesWorld::run() {
    // A rank that waits for its first lifeline may hold others that have joined it: they hear when it gives up.
    const auto joins = [](const auto& rank) { return rank->runs() && !rank->joined; };
    while (wrong_.empty() && !events_.empty() &&
           (events_.top().when <= quiet_after_ || std::ranges::any_of(ranks(), joins))) {
        const Event event = events_.top();
        events_.pop();
        now_ = event.when;
        event.act();
    }
    if (wrong_.empty()) check_end();
    return wrong_;
}

void LifelinesWorld::wrong(const std::string& what) {
    if (!wrong_.empty()) return;
    wrong_ = fmt::format("after {} ms: {};", (now_ - begun) / milliseconds(1), what);
    for (const auto& rank : ranks()) {
        wrong_ += fmt::format(" {}:{}{}{}{}{}{}", rank->number(), rank->host(), rank->lines ? "" : " absent",
                              rank->stopped ? " stopped" : "", rank->leaving ? " leaving" : "",
                              rank->closed ? " closed" : "", rank->died ? " died" : "");
        for (const Verdict& verdict : account(*rank).heard)
            wrong_ += fmt::format(" [{} of {}]", static_cast<int>(verdict.kind), verdict.rank);
    }
}

// ---- Time and processes

void LifelinesWorld::at(Instant when, std::function<void()> act) {
    events_.push({std::max(when, now_), next_event_++, std::move(act)});
}

// ---- What may happen

// Of faults one kind: two of different kinds beside each other may keep the news from those behind them.
void LifelinesWorld::plan_strikes() {
    constexpr std::array faults{Strike::death, Strike::death, Strike::stop, Strike::host_loss, Strike::cut};
    const auto plan = [this](Strike strike, std::uint64_t most) {
        for (std::uint64_t count = below(chance_, most + 1); count > 0; --count) {
            const Instant when = now_ + microseconds(below(chance_, microseconds(strikes_within).count()));
            at(when, [this, strike] { this->strike(strike); });
        }
    };
    plan(Strike::leave, 2);
    plan(Strike::news, 2);
    plan(faults.at(below(chance_, faults.size())), 2);
    quiet_after_ = now_ + strikes_within + settling;
}

void LifelinesWorld::strike(Strike strike) {
    Rank& rank = *ranks()[below(chance_, ranks().size())];
    if (!rank.runs()) return;
    strikes_.insert(strike);
    switch (strike) {
        case Strike::leave: return leave(rank);
        case Strike::stop: return stop_for_a_while(rank);
        case Strike::death: return end(rank);
        case Strike::host_loss: return end_host(rank.host());
        case Strike::cut: return cut(rank);
        case Strike::news: return begin_news(rank);
    }
}

// It cannot join: an error, and its end.
void LifelinesWorld::cannot_join(Rank& rank) {
    quiet_after_ = std::max(quiet_after_, now_ + settling);
    end(rank);
}

void LifelinesWorld::has_left(Rank& rank) {
    at(now_ + microseconds(below(chance_, 100'000)), [&rank] { rank.process_ended = true; });
}

bool LifelinesWorld::loses() {
    const bool lost = loses_ && below(chance_, 10) == 0;
    has_lost_ |= lost;
    return lost;
}

void LifelinesWorld::stop_for_a_while(Rank& rank) {
    stop(rank);
    if (below(chance_, 3) == 0) return;
    at(now_ + microseconds(below(chance_, 2'500'000)), [this, &rank] {
        if (!rank.closed) resume(rank);
    });
}

void LifelinesWorld::end(Rank& rank) {
    note_witnesses(rank);
    die(rank);
}

void LifelinesWorld::end_host(const std::string& host) {
    lose_host(host);
    if (!is_lost(host)) return;
    quiet_after_ = std::max(quiet_after_, now_ + silence_limit + settling);
    for (const auto& rank : ranks()) {
        if (rank->host() == host) note_witnesses(*rank);
    }
}

// It is one of those for which the promises are.
bool LifelinesWorld::counts(const Rank& rank) {
    return rank.joined && rank.runs() && !rank.leaving;
}

// The ranks to which a lifeline shows its death.
void LifelinesWorld::note_witnesses(Rank& rank) {
    if (rank.leaving) return;
    // It dies before its parent knows it: only the ranks that have joined it hear, if they stay until it shows. When
    // the time to join is over they do, and the others may know of another end.
    const auto knows = [this](const auto& other) { return counts(*other) && account(*other).knows_the_end(); };
    const bool all_hear =
        now_ >= begun + joining_limit && !account(rank).knows_the_end() && std::ranges::any_of(ranks(), knows);
    if (!rank.joined && !all_hear) may_stay_unknown_ = true;
    for (const auto& [own, side] : rank.sides) {
        const Connection::End& other = side.connection->other(side);
        const Rank& peer = this->rank(other.rank);
        if (!other.open || other.line == 0 || peer.closed) continue;
        const Lifeline& line = peer.lines->tree().lines().at(other.line);
        if (!line.may_end && line.confirmed) account(rank).witnesses.push_back(other.rank);
    }
}

void LifelinesWorld::begin_news(Rank& rank) {
    if (!counts(rank)) return;
    constexpr std::array kinds{VerdictKind::mismatch, VerdictKind::timed_out, VerdictKind::aborted};
    const Verdict verdict{kinds.at(below(chance_, kinds.size())), rank.number(), "news", 0, rank.number()};
    const bool has_answered =
        std::ranges::any_of(account(rank).heard, [](const Verdict& heard) { return is_accusation(heard.kind); });
    if (rank.lines->flood(verdict, now_)) {
        if (has_answered && is_accusation(verdict.kind))
            wrong(fmt::format("rank {} accuses after it has answered for an accusation", rank.number()));
        account(rank).began_news = true;
        account(rank).all_had_joined =
            std::ranges::all_of(ranks(), [this](const auto& other) { return is_attached(*other); });
        account(rank).heard.push_back(verdict);
    }
    after_event(rank);
}

// It has joined, and its lifelines are there at both ends.
bool LifelinesWorld::is_attached(const Rank& rank) const {
    return rank.joined && std::ranges::all_of(rank.sides, [](const auto& entry) {
               return entry.second.connection->other(entry.second).line != 0;
           });
}

// ---- Checks

void LifelinesWorld::inform(Rank& rank, const Inform& news) {
    const Verdict& verdict = news.verdict;
    account(rank).heard.push_back(verdict);
    check_verdict(rank, verdict);
    if (verdict.kind == VerdictKind::peer_lost || verdict.kind == VerdictKind::host_lost) death_is_known_ = true;
    if (news.id) rank.lines->informed(*news.id);
}

// Nobody is accused who has done nothing.
void LifelinesWorld::check_verdict(const Rank& rank, const Verdict& verdict) {
    const Rank& about = *ranks()[static_cast<std::size_t>(std::max(0, verdict.rank))];
    bool excused = true;
    switch (verdict.kind) {
        case VerdictKind::peer_lost: excused = about.died || about.cut; break;
        case VerdictKind::host_lost: excused = is_lost(about.host()); break;
        case VerdictKind::silent:
            excused = about.died || about.has_been_stopped || about.cut || is_lost(about.host());
            break;
        case VerdictKind::left: excused = about.leaving; break;
        case VerdictKind::damaged:
        case VerdictKind::judged: excused = false; break;
        case VerdictKind::mismatch:
        case VerdictKind::timed_out:
        case VerdictKind::aborted: excused = account(about).began_news; break;
    }
    if (!excused)
        wrong(fmt::format("rank {} hears a false verdict: {} of {}: {}", rank.number(), static_cast<int>(verdict.kind),
                          verdict.rank, verdict.text));
}

// Where ranks stop and begin news, and nothing else happens, a rank whose news are settled knows that all have them
// that never stopped. All had joined when it began: those behind a rank that waits for its first lifeline cannot be
// reached.
void LifelinesWorld::after(Rank& rank) {
    if (!account(rank).began_news || account(rank).was_settled || !rank.lines->settled()) return;
    account(rank).was_settled = true;
    // An accusation that counts more goes its own way, and a rank that has it takes no other: this one does not judge.
    const auto is_outranked = [&](const Verdict& own) {
        return own.from == rank.number() && std::ranges::any_of(account(rank).heard, [&](const Verdict& other) {
                   return is_accusation(own.kind) && is_accusation(other.kind) && outranks(other, own);
               });
    };
    if (std::ranges::any_of(account(rank).heard, is_outranked)) return;
    if (!account(rank).all_had_joined || has(Strike::death) || has(Strike::host_loss) || has(Strike::cut) ||
        has(Strike::leave))
        return;
    for (const auto& other : ranks()) {
        if (!counts(*other) || other->has_been_stopped || other->sides.empty() || account(*other).knows_the_end())
            continue;
        wrong(
            fmt::format("rank {} takes its news for known, and rank {} has not heard", rank.number(), other->number()));
    }
}

void LifelinesWorld::check_end() {
    bool never_answered = false;
    for (const auto& rank : ranks()) {
        // Only the end that leaves accuses the other.
        if (rank->cut && rank->leaving) may_stay_unknown_ = true;
        // It is stopped for ever. It has said that it has the news, passes them no further, and cannot say that all
        // have them.
        never_answered |= rank->stopped && account(*rank).knows_the_end();
    }
    may_stay_unknown_ |= never_answered;
    const bool known = std::ranges::any_of(ranks(), [this](const auto& rank) {
        return (counts(*rank) && account(*rank).knows_the_end()) ||
               std::ranges::any_of(account(*rank).witnesses,
                                   [this](int witness) { return counts(this->rank(witness)); });
    });
    for (const auto& rank : ranks()) {
        if (rank->leaving && rank->runs()) wrong(fmt::format("rank {} does not get away", rank->number()));
        if (!counts(*rank)) continue;
        if (known && !may_stay_unknown_ && !account(*rank).knows_the_end() && !is_given_up(*rank))
            wrong(fmt::format("rank {} does not know that the world has ended", rank->number()));
        if (account(*rank).began_news && !account(*rank).was_settled && !never_answered)
            wrong(fmt::format("the news of rank {} are never settled", rank->number()));
    }
    if (!known) check_tree();
}

// Those that turned to it while it was stopped got no answer; and since it runs again no lifeline leads from it to a
// rank that runs.
bool LifelinesWorld::is_given_up(const Rank& rank) const {
    return rank.has_been_stopped && std::ranges::none_of(rank.sides, [this](const auto& entry) {
               const Connection::End& other = entry.second.connection->other(entry.second);
               return other.open && other.line != 0 && this->rank(other.rank).runs();
           });
}

// Each rank that is left has its parent, which knows it; but the lowest.
void LifelinesWorld::check_tree() {
    bool lowest = true;
    for (const auto& rank : ranks()) {
        const bool may_be_awaited = rank->stopped || (rank->lines && !rank->joined);
        if (may_be_awaited && !rank->closed) return;
        if (!counts(*rank)) continue;
        int parents = 0;
        for (const auto& [id, line] : rank->lines->tree().lines()) {
            if (line.role != Role::parent) continue;
            ++parents;
            const Side side = rank->sides.at(id);
            const Connection::End& other = side.connection->other(side);
            const bool holds = line.rank < rank->number() && line.confirmed && other.open && other.line != 0 &&
                               this->rank(line.rank).runs() && !this->rank(line.rank).leaving;
            if (!holds) wrong(fmt::format("rank {} has a parent that is none: {}", rank->number(), line.rank));
        }
        if (parents != (lowest ? 0 : 1)) wrong(fmt::format("rank {} has {} parents", rank->number(), parents));
        lowest = false;
    }
}

}  // namespace tutti::simulation
