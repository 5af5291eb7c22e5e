#include "simulation/lifelines_world.hpp"

#include "rendezvous/linger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

namespace tutti::simulation {
namespace {

using namespace rendezvous;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using How = LineEnd::How;

constexpr milliseconds silence_limit{13'500}, joining_limit{20'000};
constexpr milliseconds strikes_within{800}, arrivals_within{200}, settling{4000};
const Instant begun{std::chrono::hours(1)};

}  // namespace

struct LifelinesWorld::Connection {
    struct End {
        int rank = -1;
        LineId line = 0;  // none yet
        bool open = true;
        std::deque<Parcel> inbox{};
        Instant last{};
        std::string early{};                             // of the answer that a dial waits for
        std::function<void(bool answered)> on_answer{};  // while a dial waits
    };
    std::array<End, 2> ends;

    End& end(Side side) { return ends.at(static_cast<std::size_t>(side.number)); }
    End& other(Side side) { return ends.at(static_cast<std::size_t>(1 - side.number)); }
};

struct LifelinesWorld::Rank {
    Roster roster;
    std::unique_ptr<Lifelines> lines{};  // null: it has not come yet
    bool joined = false;                 // it has its first lifeline, if it needs one
    bool stopped = false, has_been_stopped = false;
    bool leaving = false, closed = false;  // closed: nothing listens or is connected any more
    bool died = false, process_ended = false;
    bool cut = false;              // one of its lifelines broke
    std::vector<int> witnesses{};  // that a lifeline showed its death
    std::optional<Linger> stay{};  // while it leaves
    std::map<LineId, Side> sides{};
    std::vector<std::function<void()>> held{};  // events that wait until it runs
    std::optional<Instant> tick{};
    std::vector<Verdict> heard{};
    bool began_news = false, all_had_joined = false, was_settled = false;

    int number() const { return roster.rank; }
    const std::string& host() const { return roster.own().host_key; }
    bool runs() const { return lines && !stopped && !closed; }
    /// It is one of those for which the promises are.
    bool counts() const { return joined && runs() && !leaving; }
    bool knows_the_end() const {
        return std::ranges::any_of(heard, [](const Verdict& verdict) { return ends_the_world(verdict.kind); });
    }
};

LifelinesWorld::LifelinesWorld(std::uint64_t seed) : chance_(seed) {
    static const security::Secret secret = security::Secret::from_text("simulated");
    const int size = 2 + static_cast<int>(below(chance_, 9));
    const std::uint64_t hosts = below(chance_, 5) < 2 ? 1 : 2 + below(chance_, 2);
    std::vector<Card> cards(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
        Card& card = cards[static_cast<std::size_t>(rank)];
        card.host_key = card.host_name = fmt::format("host{}", below(chance_, hosts));
        card.process = 1000 + rank;
    }
    const auto all = std::make_shared<const std::vector<Card>>(std::move(cards));
    for (int rank = 0; rank < size; ++rank)
        ranks_.push_back(std::make_unique<Rank>(Roster{rank, all, {}, seed, secret}));
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
           (events_.top().when <= quiet_after_ || std::ranges::any_of(ranks_, joins))) {
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
    for (const auto& rank : ranks_) {
        wrong_ += fmt::format(" {}:{}{}{}{}{}{}", rank->number(), rank->host(), rank->lines ? "" : " absent",
                              rank->stopped ? " stopped" : "", rank->leaving ? " leaving" : "",
                              rank->closed ? " closed" : "", rank->died ? " died" : "");
        for (const Verdict& verdict : rank->heard)
            wrong_ += fmt::format(" [{} of {}]", static_cast<int>(verdict.kind), verdict.rank);
    }
}

// ---- Time and processes

void LifelinesWorld::at(Instant when, std::function<void()> act) {
    events_.push({std::max(when, now_), next_event_++, std::move(act)});
}

// What happens to a rank waits until its process runs.
void LifelinesWorld::at_rank(int rank, Instant when, std::function<void()> act) {
    at(when, [this, &own = this->rank(rank), act = std::move(act)] {
        if (own.closed) return;
        if (!own.runs()) return own.held.push_back(act);
        act();
        after_event(own);
    });
}

Instant LifelinesWorld::soon(int from, int to) {
    const bool near = this->rank(from).host() == this->rank(to).host();
    if (below(chance_, 30) == 0) return now_ + microseconds(below(chance_, 60'000));
    return now_ + microseconds(1 + below(chance_, near ? 300 : 5000));
}

void LifelinesWorld::after_event(Rank& rank) {
    if (rank.closed) return;
    rank.lines->on_time(now_);
    perform(rank);
    if (rank.leaving && (!rank.lines->is_counted_on() || rank.stay->is_over(now_))) return end_by_leaving(rank);
    check_settled(rank);
    const auto look = rank.lines->next_look(now_);
    if (!look || (rank.tick && *rank.tick <= *look)) return;
    rank.tick = std::max(*look, now_ + microseconds(1));
    at_rank(rank.number(), *rank.tick, [&rank] { rank.tick.reset(); });
}

void LifelinesWorld::perform(Rank& rank) {
    for (auto effects = rank.lines->take_effects(); !effects.empty(); effects = rank.lines->take_effects()) {
        for (Effect& effect : effects) {
            if (const auto* sent = std::get_if<SendBytes>(&effect)) send(rank.sides.at(sent->line), sent->bytes);
            if (const auto* ended = std::get_if<EndSending>(&effect)) send_end(rank.sides.at(ended->line), How::closed);
            if (const auto* closed = std::get_if<CloseLine>(&effect)) {
                close(rank.sides.at(closed->line));
                rank.sides.erase(closed->line);
            }
            if (const auto* wanted = std::get_if<Dial>(&effect)) dial(rank, *wanted);
            if (const auto* news = std::get_if<Inform>(&effect)) inform(rank, *news);
        }
    }
}

// A rank joins: its first lifeline leads to the first of its possible parents that is there.
void LifelinesWorld::come(Rank& rank) {
    if (rank.closed) return;
    const auto is_stopped = [this](int other) { return this->rank(other).stopped; };
    rank.lines = std::make_unique<Lifelines>(rank.roster, LifelineOptions{silence_limit, is_stopped});
    join(rank, 0);
    resume(rank);
}

void LifelinesWorld::join(Rank& rank, std::size_t tried) {
    const std::vector<int> parents = rank.lines->tree().possible_parents();
    if (parents.empty()) rank.joined = true;
    if (rank.joined) return;
    if (tried >= parents.size()) {  // it cannot join: an error, and its end
        quiet_after_ = std::max(quiet_after_, now_ + settling);
        return die(rank);
    }
    const Dial wanted{parents[tried], Role::parent, joining_limit};
    if (attach_unseen(rank, wanted)) return;
    dial_in_background(rank, wanted, [this, &rank, tried, all = parents.size()](DialFailure how) {
        join(rank, how == DialFailure::silent ? all : tried + 1);  // its time is over for all of them
    });
}

void LifelinesWorld::resume(Rank& rank) {
    rank.stopped = false;
    for (const auto& act : std::exchange(rank.held, {})) {
        if (rank.closed) return;
        act();
        after_event(rank);
    }
    after_event(rank);
}

// ---- Connections

LifelinesWorld::Connection& LifelinesWorld::connect(int from, int to) {
    Connection& made = connections_.emplace_back();
    made.ends[0].rank = from;
    made.ends[1].rank = to;
    at_rank(to, made.ends[1].last = soon(from, to), [this, &made] {
        // The kernel has accepted it for a process that may have been stopped.
        if (made.ends[1].line == 0) attach({&made, 1}, Role::child, false);
    });
    return made;
}

bool LifelinesWorld::attach_unseen(Rank& rank, const Dial& wanted) {
    const Rank& peer = this->rank(wanted.rank);
    if (peer.closed || !rank.roster.is_near(wanted.rank)) return false;
    attach({&connect(rank.number(), wanted.rank), 0}, wanted.role, false);
    return true;
}

void LifelinesWorld::dial(Rank& rank, const Dial& wanted) {
    if (wanted.role == Role::beside && attach_unseen(rank, wanted)) return;
    dial_in_background(rank, wanted,
                       [this, &rank, wanted](DialFailure how) { rank.lines->on_dial_failed(wanted, how, now_); });
}

void LifelinesWorld::dial_in_background(Rank& rank, const Dial& wanted, const OnFailure& on_failure) {
    const int own = rank.number();
    const Instant limit = now_ + wanted.limit;
    const Rank& peer = this->rank(wanted.rank);
    if (peer.closed) {
        const bool answers = !lost_hosts_.contains(peer.host()) || peer.host() == rank.host();
        const DialFailure how = answers ? DialFailure::refused : DialFailure::silent;
        return at_rank(own, answers ? soon(own, wanted.rank) : limit, [on_failure, how] { on_failure(how); });
    }
    Connection& made = connect(own, wanted.rank);
    Connection::End& end = made.ends[0];
    end.on_answer = [this, &made, wanted, on_failure](bool answered) {
        if (!answered) return on_failure(DialFailure::refused);
        if (wanted.role == Role::parent && wanted.limit == Reparenter::attempt_limit) has_reparented_ = true;
        attach({&made, 0}, wanted.role, true);
    };
    at_rank(own, limit, [this, &made, on_failure] {
        Connection::End& late = made.ends[0];
        if (!late.on_answer) return;
        give_up({&made, 0});
        on_failure(DialFailure::silent);
    });
}

// A dial that ends without an answer says so, as Dialer does: its end is no death.
void LifelinesWorld::give_up(Side side) {
    Connection::End& end = side.connection->end(side);
    end.on_answer = nullptr;
    send(side, to_bytes(Word::moved, end.rank));
    close(side);
}

void LifelinesWorld::attach(Side side, Role role, bool confirmed) {
    Connection::End& end = side.connection->end(side);
    Rank& rank = this->rank(end.rank);
    rank.joined |= role == Role::parent;
    end.line = rank.lines->attach(side.connection->other(side).rank, role, confirmed, now_);
    rank.sides.emplace(end.line, side);
    perform(rank);
}

void LifelinesWorld::put(Side to, Parcel parcel) {
    Connection::End& end = to.connection->end(to);
    parcel.when = end.last = std::max(end.last, parcel.when);
    const Instant when = parcel.when;
    end.inbox.push_back(std::move(parcel));
    at_rank(end.rank, when, [this, to] { read(to); });
}

void LifelinesWorld::send(Side from, const std::string& bytes) {
    Connection::End &own = from.connection->end(from), &other = from.connection->other(from);
    if (!own.open || !other.open) return;
    if (loses_ && below(chance_, 10) == 0) {
        has_lost_ = true;
        return;
    }
    const Side to{from.connection, 1 - from.number};
    const std::size_t first = below(chance_, 4) == 0 ? below(chance_, bytes.size()) : 0;
    if (first > 0) put(to, {soon(own.rank, other.rank), bytes.substr(0, first), {}});
    put(to, {soon(own.rank, other.rank), bytes.substr(first), {}});
}

void LifelinesWorld::send_end(Side from, How how) {
    Connection::End &own = from.connection->end(from), &other = from.connection->other(from);
    if (other.open) put({from.connection, 1 - from.number}, {soon(own.rank, other.rank), {}, how});
}

void LifelinesWorld::close(Side side) {
    if (!std::exchange(side.connection->end(side).open, false)) return;
    send_end(side, How::closed);
}

void LifelinesWorld::read(Side side) {
    Connection::End& end = side.connection->end(side);
    Rank& rank = this->rank(end.rank);
    while (end.open && !end.inbox.empty() && end.inbox.front().when <= now_) {
        const Parcel parcel = std::move(end.inbox.front());
        end.inbox.pop_front();
        if (end.line == 0)
            read_answer(side, parcel);
        else if (parcel.end)
            read_end(rank, side, *parcel.end);
        else if (!rank.lines->on_bytes(end.line, std::as_bytes(std::span(parcel.bytes)), now_))
            wrong(fmt::format("rank {} cannot read what rank {} sent", end.rank, side.connection->other(side).rank));
        perform(rank);
    }
}

// Of a dial: the first frame says that the other end is there.
void LifelinesWorld::read_answer(Side side, const Parcel& parcel) {
    Connection::End& end = side.connection->end(side);
    if (!end.on_answer || parcel.end == How::outlived) return;  // only a lifeline's end is looked for
    end.early += parcel.bytes;
    if (!parcel.end && end.early.size() < sizeof(NewsFrame)) return;
    const auto on_answer = std::exchange(end.on_answer, nullptr);
    if (parcel.end) close(side);
    on_answer(!parcel.end);
    if (parcel.end || end.early.size() == sizeof(NewsFrame)) return;
    Rank& rank = this->rank(end.rank);
    rank.lines->on_bytes(end.line, std::as_bytes(std::span(end.early)).subspan(sizeof(NewsFrame)), now_);
}

void LifelinesWorld::read_end(Rank& rank, Side side, How how) {
    const int other = side.connection->other(side).rank;
    LineEnd end{.how = how};
    if (rank.roster.can_watch(other) && this->rank(other).process_ended) end.process_end = "killed by SIGKILL";
    rank.lines->on_end(side.connection->end(side).line, end, now_);
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
    Rank& rank = *ranks_[below(chance_, ranks_.size())];
    if (!rank.runs()) return;
    strikes_.insert(strike);
    switch (strike) {
        case Strike::leave: return leave(rank);
        case Strike::stop: return stop(rank);
        case Strike::death: return die(rank);
        case Strike::host_loss: return lose_host(rank.host());
        case Strike::cut: return cut(rank);
        case Strike::news: return begin_news(rank);
    }
}

void LifelinesWorld::leave(Rank& rank) {
    if (rank.leaving || !rank.joined) return;
    rank.leaving = true;
    rank.stay.emplace(now_);
    rank.lines->leave(now_);
    linger(rank);
    after_event(rank);
}

// It looks now and then, until it ends.
void LifelinesWorld::linger(Rank& rank) {
    at_rank(rank.number(), now_ + Linger::longest_look, [this, &rank] { linger(rank); });
}

// The last of a rank that leaves: it answers those that have come until now, and its process ends a little later.
void LifelinesWorld::end_by_leaving(Rank& rank) {
    for (Connection& connection : connections_) {
        const auto& [from, to] = connection.ends;
        if (from.rank == rank.number() && from.on_answer) give_up({&connection, 0});
        // A connection of its own host is with the kernel as soon as it is made.
        const bool waits = to.rank == rank.number() && to.line == 0 && to.open && from.open;
        if (waits && rank.roster.is_near(from.rank)) attach({&connection, 1}, Role::child, false);
    }
    close_all(rank);
    at(now_ + microseconds(below(chance_, 100'000)), [&rank] { rank.process_ended = true; });
}

void LifelinesWorld::close_all(Rank& rank) {
    rank.closed = true;
    for (Connection& connection : connections_) {
        for (const int number : {0, 1}) {
            if (connection.ends.at(static_cast<std::size_t>(number)).rank == rank.number())
                close({&connection, number});
        }
    }
    rank.sides.clear();
    rank.held.clear();
}

void LifelinesWorld::stop(Rank& rank) {
    rank.stopped = rank.has_been_stopped = true;
    if (below(chance_, 3) == 0) return;
    at(now_ + microseconds(below(chance_, 2'500'000)), [this, &rank] {
        if (!rank.closed) resume(rank);
    });
}

// A child that nobody knows of may keep a dead process's connections open.
void LifelinesWorld::die(Rank& rank) {
    rank.died = rank.process_ended = true;
    note_witnesses(rank);
    if (below(chance_, 6) > 0) return close_all(rank);
    rank.closed = true;
    for (Connection& connection : connections_) {
        for (const int number : {0, 1}) {
            const Side side{&connection, number};
            Connection::End &own = connection.end(side), &other = connection.other(side);
            if (own.rank != rank.number() || !std::exchange(own.open, false) || !other.open) continue;
            const bool near = rank.roster.is_near(other.rank);
            const auto seen = near ? microseconds(below(chance_, 500)) : milliseconds(2000);
            put({&connection, 1 - number}, {now_ + seen, {}, How::outlived});
        }
    }
    rank.sides.clear();
    rank.held.clear();
}

// The ranks to which a lifeline shows its death.
void LifelinesWorld::note_witnesses(Rank& rank) {
    if (rank.leaving) return;
    // It dies before its parent knows it: only the ranks that have joined it hear, if they stay until it shows. When
    // the time to join is over they do, and the others may know of another end.
    const auto knows = [](const auto& other) { return other->counts() && other->knows_the_end(); };
    const bool all_hear = now_ >= begun + joining_limit && !rank.knows_the_end() && std::ranges::any_of(ranks_, knows);
    if (!rank.joined && !all_hear) may_stay_unknown_ = true;
    for (const auto& [own, side] : rank.sides) {
        const Connection::End& other = side.connection->other(side);
        const Rank& peer = this->rank(other.rank);
        if (!other.open || other.line == 0 || peer.closed) continue;
        const Lifeline& line = peer.lines->tree().lines().at(other.line);
        if (!line.may_end && line.confirmed) rank.witnesses.push_back(other.rank);
    }
}

void LifelinesWorld::lose_host(const std::string& host) {
    if (std::ranges::all_of(ranks_, [&](const auto& rank) { return rank->host() == host; })) return;
    lost_hosts_.insert(host);
    quiet_after_ = std::max(quiet_after_, now_ + silence_limit + settling);
    for (auto& rank : ranks_) {
        if (rank->host() != host || rank->closed) continue;
        rank->died = rank->process_ended = rank->closed = true;
        rank->held.clear();
    }
    for (const auto& rank : ranks_) {
        if (rank->host() == host) note_witnesses(*rank);
    }
    for (Connection& connection : connections_) {
        for (const int number : {0, 1}) {
            Connection::End &own = connection.ends.at(static_cast<std::size_t>(number)),
                            &other = connection.ends.at(static_cast<std::size_t>(1 - number));
            if (this->rank(own.rank).host() != host || !std::exchange(own.open, false)) continue;
            std::erase_if(other.inbox, [&](const auto& parcel) { return parcel.when > now_; });
            other.last = now_;
            put({&connection, 1 - number},
                {now_ + silence_limit + microseconds(below(chance_, 1'000'000)), {}, How::host_lost});
        }
    }
}

// A connection breaks off though both processes live.
void LifelinesWorld::cut(Rank& rank) {
    if (rank.sides.empty()) return;
    auto chosen = rank.sides.begin();
    std::advance(chosen, below(chance_, rank.sides.size()));
    const Side side = chosen->second;
    Connection& connection = *side.connection;
    if (!connection.ends[0].open || !connection.ends[1].open) return;
    for (const int number : {0, 1}) {
        Connection::End& end = connection.ends.at(static_cast<std::size_t>(number));
        this->rank(end.rank).cut = true;
        const std::size_t arrive = end.inbox.empty() ? 0 : below(chance_, end.inbox.size() + 1);
        end.inbox.resize(
            std::max<std::size_t>(arrive, static_cast<std::size_t>(std::ranges::count_if(
                                              end.inbox, [&](const auto& parcel) { return parcel.when <= now_; }))));
        put({&connection, number}, {now_ + microseconds(below(chance_, 5000)), {}, How::closed});
    }
}

void LifelinesWorld::begin_news(Rank& rank) {
    if (!rank.counts()) return;
    constexpr std::array kinds{VerdictKind::mismatch, VerdictKind::timed_out, VerdictKind::aborted};
    const Verdict verdict{kinds.at(below(chance_, kinds.size())), rank.number(), "news", 0, rank.number()};
    const bool has_answered =
        std::ranges::any_of(rank.heard, [](const Verdict& heard) { return is_accusation(heard.kind); });
    if (rank.lines->flood(verdict, now_)) {
        if (has_answered && is_accusation(verdict.kind))
            wrong(fmt::format("rank {} accuses after it has answered for an accusation", rank.number()));
        rank.began_news = true;
        rank.all_had_joined = std::ranges::all_of(ranks_, [this](const auto& other) { return is_attached(*other); });
        rank.heard.push_back(verdict);
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
    rank.heard.push_back(verdict);
    check_verdict(rank, verdict);
    if (verdict.kind == VerdictKind::peer_lost || verdict.kind == VerdictKind::host_lost) death_is_known_ = true;
    if (news.id) rank.lines->informed(*news.id);
}

// Nobody is accused who has done nothing.
void LifelinesWorld::check_verdict(const Rank& rank, const Verdict& verdict) {
    const Rank& about = *ranks_[static_cast<std::size_t>(std::max(0, verdict.rank))];
    bool excused = true;
    switch (verdict.kind) {
        case VerdictKind::peer_lost: excused = about.died || about.cut; break;
        case VerdictKind::host_lost: excused = lost_hosts_.contains(about.host()); break;
        case VerdictKind::silent:
            excused = about.died || about.has_been_stopped || about.cut || lost_hosts_.contains(about.host());
            break;
        case VerdictKind::left: excused = about.leaving; break;
        case VerdictKind::damaged:
        case VerdictKind::judged: excused = false; break;
        case VerdictKind::mismatch:
        case VerdictKind::timed_out:
        case VerdictKind::aborted: excused = about.began_news; break;
    }
    if (!excused)
        wrong(fmt::format("rank {} hears a false verdict: {} of {}: {}", rank.number(), static_cast<int>(verdict.kind),
                          verdict.rank, verdict.text));
}

// Where ranks stop and begin news, and nothing else happens, a rank whose news are settled knows that all have them
// that never stopped. All had joined when it began: those behind a rank that waits for its first lifeline cannot be
// reached.
void LifelinesWorld::check_settled(Rank& rank) {
    if (!rank.began_news || rank.was_settled || !rank.lines->settled()) return;
    rank.was_settled = true;
    // An accusation that counts more goes its own way, and a rank that has it takes no other: this one does not judge.
    const auto is_outranked = [&](const Verdict& own) {
        return own.from == rank.number() && std::ranges::any_of(rank.heard, [&](const Verdict& other) {
                   return is_accusation(own.kind) && is_accusation(other.kind) && outranks(other, own);
               });
    };
    if (std::ranges::any_of(rank.heard, is_outranked)) return;
    if (!rank.all_had_joined || has(Strike::death) || has(Strike::host_loss) || has(Strike::cut) || has(Strike::leave))
        return;
    for (const auto& other : ranks_) {
        if (!other->counts() || other->has_been_stopped || other->sides.empty() || other->knows_the_end()) continue;
        wrong(
            fmt::format("rank {} takes its news for known, and rank {} has not heard", rank.number(), other->number()));
    }
}

void LifelinesWorld::check_end() {
    bool never_answered = false;
    for (const auto& rank : ranks_) {
        // Only the end that leaves accuses the other.
        if (rank->cut && rank->leaving) may_stay_unknown_ = true;
        // It is stopped for ever. It has said that it has the news, passes them no further, and cannot say that all
        // have them.
        never_answered |= rank->stopped && rank->knows_the_end();
    }
    may_stay_unknown_ |= never_answered;
    const bool known = std::ranges::any_of(ranks_, [this](const auto& rank) {
        return (rank->counts() && rank->knows_the_end()) ||
               std::ranges::any_of(rank->witnesses, [this](int witness) { return this->rank(witness).counts(); });
    });
    for (const auto& rank : ranks_) {
        if (rank->leaving && rank->runs()) wrong(fmt::format("rank {} does not get away", rank->number()));
        if (!rank->counts()) continue;
        if (known && !may_stay_unknown_ && !rank->knows_the_end() && !is_given_up(*rank))
            wrong(fmt::format("rank {} does not know that the world has ended", rank->number()));
        if (rank->began_news && !rank->was_settled && !never_answered)
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
    for (const auto& rank : ranks_) {
        const bool may_be_awaited = rank->stopped || (rank->lines && !rank->joined);
        if (may_be_awaited && !rank->closed) return;
        if (!rank->counts()) continue;
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
