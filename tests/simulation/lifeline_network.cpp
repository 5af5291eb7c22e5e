#include "simulation/lifeline_network.hpp"

#include "simulation/chance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace tutti::simulation {

using namespace rendezvous;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using How = LineEnd::How;

LifelineNetwork::LifelineNetwork(std::mt19937_64& chance, const Instant& now, milliseconds silence_limit)
    : chance_(chance), now_(now), silence_limit_(silence_limit) {}

LifelineNetwork::~LifelineNetwork() = default;

void LifelineNetwork::add_ranks(std::vector<Card> cards, std::uint64_t world) {
    static const security::Secret secret = security::Secret::from_text("simulated");
    const auto all = std::make_shared<const std::vector<Card>>(std::move(cards));
    for (int rank = 0; std::cmp_less(rank, all->size()); ++rank)
        ranks_.push_back(std::make_unique<Rank>(Roster{rank, all, {}, world, secret}));
}

// ---- Time and processes

// What happens to a rank waits until its process runs.
void LifelineNetwork::at_rank(int rank, Instant when, std::function<void()> act) {
    at(when, [this, &own = this->rank(rank), act = std::move(act)] {
        if (own.closed) return;
        if (!own.runs()) return own.held.push_back(act);
        act();
        after_event(own);
    });
}

Instant LifelineNetwork::soon(int from, int to) {
    const Rank &one = rank(from), &other = rank(to);
    const Instant free = is_parted(one, other) ? parted_until_ : now_;
    const Instant late = free + one.lag + other.lag;
    if (below(chance_, 30) == 0) return late + microseconds(below(chance_, 60'000));
    return late + microseconds(1 + below(chance_, one.host() == other.host() ? 300 : 5000));
}

void LifelineNetwork::after_event(Rank& rank) {
    if (rank.closed) return;
    rank.lines->on_time(now_);
    perform(rank);
    if (rank.leaving && (!rank.lines->is_counted_on() || rank.stay->is_over(now_))) return end_by_leaving(rank);
    after(rank);
    const auto look = rank.lines->next_look(now_);
    if (!look || (rank.tick && *rank.tick <= *look)) return;
    rank.tick = std::max(*look, now_ + microseconds(1));
    at_rank(rank.number(), *rank.tick, [&rank] { rank.tick.reset(); });
}

void LifelineNetwork::perform(Rank& rank) {
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
void LifelineNetwork::come(Rank& rank) {
    if (rank.closed) return;
    const auto is_stopped = [this](int other) { return this->rank(other).stopped; };
    rank.lines = std::make_unique<Lifelines>(rank.roster, LifelineOptions{silence_limit_, is_stopped});
    join(rank, 0);
    resume(rank);
}

void LifelineNetwork::join(Rank& rank, std::size_t tried) {
    const std::vector<int> parents = rank.lines->tree().possible_parents();
    if (parents.empty()) rank.joined = true;
    if (rank.joined) return;
    if (tried >= parents.size()) return cannot_join(rank);
    const Dial wanted{parents[tried], Role::parent, joining_limit};
    if (attach_unseen(rank, wanted)) return;
    dial_in_background(rank, wanted, [this, &rank, tried, all = parents.size()](DialFailure how) {
        join(rank, how == DialFailure::silent ? all : tried + 1);  // its time is over for all of them
    });
}

void LifelineNetwork::resume(Rank& rank) {
    rank.stopped = false;
    for (const auto& act : std::exchange(rank.held, {})) {
        if (rank.closed) return;
        act();
        after_event(rank);
    }
    after_event(rank);
}

// ---- Connections

LifelineNetwork::Connection& LifelineNetwork::connect(int from, int to) {
    Connection& made = connections_.emplace_back();
    made.ends[0].rank = from;
    made.ends[1].rank = to;
    at_rank(to, made.ends[1].last = soon(from, to), [this, &made] {
        // The kernel has accepted it for a process that may have been stopped.
        if (made.ends[1].line == 0) attach({&made, 1}, Role::child, false);
    });
    return made;
}

bool LifelineNetwork::attach_unseen(Rank& rank, const Dial& wanted) {
    const Rank& peer = this->rank(wanted.rank);
    if (peer.closed || !rank.roster.is_near(wanted.rank)) return false;
    attach({&connect(rank.number(), wanted.rank), 0}, wanted.role, false);
    return true;
}

void LifelineNetwork::dial(Rank& rank, const Dial& wanted) {
    if (wanted.role == Role::beside && attach_unseen(rank, wanted)) return;
    dial_in_background(rank, wanted,
                       [this, &rank, wanted](DialFailure how) { rank.lines->on_dial_failed(wanted, how, now_); });
}

void LifelineNetwork::dial_in_background(Rank& rank, const Dial& wanted, const OnFailure& on_failure) {
    const int own = rank.number();
    const Instant limit = now_ + wanted.limit;
    const Rank& peer = this->rank(wanted.rank);
    if (peer.closed) {
        const bool is_far = peer.host() != rank.host();
        const bool answers = !is_far || !(lost_hosts_.contains(peer.host()) || is_parted(rank, peer));
        const DialFailure how = answers ? DialFailure::refused : DialFailure::silent;
        return at_rank(own, answers ? soon(own, wanted.rank) : limit, [on_failure, how] { on_failure(how); });
    }
    Connection& made = connect(own, wanted.rank);
    Connection::End& end = made.ends[0];
    end.on_answer = [this, &made, wanted, on_failure](bool answered) {
        if (!answered) return on_failure(DialFailure::refused);
        if (wanted.role == Role::parent && wanted.limit == Reparenter::attempt_limit) has_reparented();
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
void LifelineNetwork::give_up(Side side) {
    Connection::End& end = side.connection->end(side);
    end.on_answer = nullptr;
    send(side, to_bytes(Word::moved, end.rank));
    close(side);
}

void LifelineNetwork::attach(Side side, Role role, bool confirmed) {
    Connection::End& end = side.connection->end(side);
    Rank& rank = this->rank(end.rank);
    rank.joined |= role == Role::parent;
    end.line = rank.lines->attach(side.connection->other(side).rank, role, confirmed, now_);
    rank.sides.emplace(end.line, side);
    perform(rank);
}

void LifelineNetwork::put(Side to, Parcel parcel) {
    Connection::End& end = to.connection->end(to);
    parcel.when = end.last = std::max(end.last, parcel.when);
    const Instant when = parcel.when;
    end.inbox.push_back(std::move(parcel));
    at_rank(end.rank, when, [this, to] { read(to); });
}

void LifelineNetwork::send(Side from, const std::string& bytes) {
    Connection::End &own = from.connection->end(from), &other = from.connection->other(from);
    if (!own.open || !other.open) return;
    if (from.connection->is_torn || loses()) return;
    const Side to{from.connection, 1 - from.number};
    const std::size_t first = below(chance_, 4) == 0 ? below(chance_, bytes.size()) : 0;
    if (first > 0) put(to, {soon(own.rank, other.rank), bytes.substr(0, first), {}});
    put(to, {soon(own.rank, other.rank), bytes.substr(first), {}});
}

void LifelineNetwork::send_end(Side from, How how) {
    Connection::End &own = from.connection->end(from), &other = from.connection->other(from);
    if (other.open && !from.connection->is_torn)
        put({from.connection, 1 - from.number}, {soon(own.rank, other.rank), {}, how});
}

void LifelineNetwork::close(Side side) {
    if (!std::exchange(side.connection->end(side).open, false)) return;
    send_end(side, How::closed);
}

void LifelineNetwork::read(Side side) {
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
void LifelineNetwork::read_answer(Side side, const Parcel& parcel) {
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

void LifelineNetwork::read_end(Rank& rank, Side side, How how) {
    const int other = side.connection->other(side).rank;
    LineEnd end{.how = how};
    if (rank.roster.can_watch(other) && this->rank(other).process_ended) end.process_end = "killed by SIGKILL";
    rank.lines->on_end(side.connection->end(side).line, end, now_);
}

// ---- What may happen

void LifelineNetwork::leave(Rank& rank) {
    if (rank.leaving || !rank.joined) return;
    rank.leaving = true;
    rank.stay.emplace(now_);
    rank.lines->leave(now_);
    linger(rank);
    after_event(rank);
}

// It looks now and then, until it ends.
void LifelineNetwork::linger(Rank& rank) {
    at_rank(rank.number(), now_ + Linger::longest_look, [this, &rank] { linger(rank); });
}

// The last of a rank that leaves: it answers those that have come until now, and its process ends a little later.
void LifelineNetwork::end_by_leaving(Rank& rank) {
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

void LifelineNetwork::close_all(Rank& rank) {
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

void LifelineNetwork::stop(Rank& rank) {
    rank.stopped = rank.has_been_stopped = true;
}

// A child that nobody knows of may keep a dead process's connections open.
void LifelineNetwork::die(Rank& rank) {
    rank.died = rank.process_ended = true;
    if (below(chance_, 6) > 0) return close_all(rank);
    rank.closed = true;
    for (Connection& connection : connections_) {
        for (const int number : {0, 1}) {
            const Side side{&connection, number};
            Connection::End &own = connection.end(side), &other = connection.other(side);
            if (own.rank != rank.number() || !std::exchange(own.open, false) || !other.open) continue;
            const bool near = rank.roster.is_near(other.rank);
            const auto seen = near ? microseconds(below(chance_, 500)) : outlived_time;
            put({&connection, 1 - number}, {now_ + seen, {}, How::outlived});
        }
    }
    rank.sides.clear();
    rank.held.clear();
}

void LifelineNetwork::lose_host(const std::string& host) {
    if (std::ranges::all_of(ranks_, [&](const auto& rank) { return rank->host() == host; })) return;
    lost_hosts_.insert(host);
    for (auto& rank : ranks_) {
        if (rank->host() != host || rank->closed) continue;
        rank->died = rank->process_ended = rank->closed = true;
        rank->held.clear();
    }
    for (Connection& connection : connections_) {
        for (const int number : {0, 1}) {
            Connection::End &own = connection.ends.at(static_cast<std::size_t>(number)),
                            &other = connection.ends.at(static_cast<std::size_t>(1 - number));
            if (this->rank(own.rank).host() != host || !std::exchange(own.open, false)) continue;
            std::erase_if(other.inbox, [&](const auto& parcel) { return parcel.when > now_; });
            other.last = now_;
            put({&connection, 1 - number},
                {now_ + silence_limit_ + microseconds(below(chance_, 1'000'000)), {}, How::host_lost});
        }
    }
}

// A connection breaks off though both processes live.
void LifelineNetwork::cut(Rank& rank) {
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

bool LifelineNetwork::is_parted(const Rank& one, const Rank& other) const {
    return now_ < parted_until_ && parted_.contains(one.host()) != parted_.contains(other.host());
}

// News that are on their way then come late, or never, where the kernels give the connections up before.
void LifelineNetwork::part(std::set<std::string> hosts, Instant until) {
    parted_ = std::move(hosts);
    parted_until_ = until;
    const bool lasts = until - now_ >= silence_limit_;
    for (Connection& connection : connections_) {
        if (!is_parted(rank(connection.ends[0].rank), rank(connection.ends[1].rank))) continue;
        connection.is_torn |= lasts;
        for (const int number : {0, 1}) {
            Connection::End& end = connection.ends.at(static_cast<std::size_t>(number));
            const auto late = std::ranges::find_if(end.inbox, [&](const auto& parcel) { return parcel.when > now_; });
            std::vector<Parcel> parcels(std::make_move_iterator(late), std::make_move_iterator(end.inbox.end()));
            end.inbox.erase(late, end.inbox.end());
            end.last = lasts ? now_ : until;
            if (lasts)
                parcels = {{now_ + silence_limit_ + microseconds(below(chance_, 1'000'000)), {}, How::host_lost}};
            for (Parcel& parcel : parcels) put({&connection, number}, std::move(parcel));
        }
    }
}

}  // namespace tutti::simulation
