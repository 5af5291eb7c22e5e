#include "scale/simulated_lifelines.hpp"

#include "core/assert.hpp"
#include "rendezvous/linger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <variant>

namespace tutti::bench {

using namespace rendezvous;

struct SimulatedLifelines::Connection {
    std::array<int, 2> ranks{};
    std::array<LineId, 2> lines{};  // 0: none yet
};

struct SimulatedLifelines::Event {
    enum Kind { attach, bytes, end, look, refused, leave };
    Instant when;
    std::uint64_t number = 0;
    Kind kind = look;
    int rank = 0;
    std::size_t connection = 0;
    int side = 0;  // of the connection: that of `rank`
    std::string text{};
    Dial dial{};
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
};

struct SimulatedLifelines::Rank {
    Rank(Roster its_roster, LifelineOptions options)
        : roster(std::move(its_roster)), lines(roster, std::move(options)) {}
    Roster roster;
    Lifelines lines;
    std::map<LineId, std::pair<std::size_t, int>> sides{};  // the connection, and this rank's side of it
    Instant busy{};                                         // until then
    std::optional<Instant> look{};
    std::uint64_t messages = 0;  // in this phase
    bool closed = false, told = false;
    std::optional<Linger> stay{};  // while it leaves
};

SimulatedLifelines::SimulatedLifelines(int ranks, int ranks_per_host, Costs costs) : costs_(costs) {
    TUTTI_ASSERT(ranks > 0 && ranks_per_host > 0);
    std::vector<Card> cards(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
        Card& card = cards[static_cast<std::size_t>(rank)];
        card.host_key = card.host_name = fmt::format("host{}", rank / ranks_per_host);
        card.process = 1 + rank;
    }
    const auto all = std::make_shared<const std::vector<Card>>(std::move(cards));
    const security::Secret secret = security::Secret::from_text("simulated");
    for (int rank = 0; rank < ranks; ++rank) {
        ranks_.push_back(std::make_unique<Rank>(
            Roster{rank, all, {}, 1, secret},
            LifelineOptions{.silence_limit = std::chrono::seconds(13), .is_stopped = [](int) { return false; }}));
    }
}

SimulatedLifelines::~SimulatedLifelines() = default;

SimulatedLifelines::Figures SimulatedLifelines::play(const std::function<void()>& begin) {
    figures_ = {};
    for (const auto& rank : ranks_) rank->messages = 0;
    const Instant start = now_;
    Instant end = now_;
    begin();
    while (!events_.empty()) {
        std::pop_heap(events_.begin(), events_.end());
        Event event = std::move(events_.back());
        events_.pop_back();
        now_ = event.when;
        handle(event);
        if (event.kind != Event::look) end = std::max(now_, rank(event.rank).busy);
    }
    figures_.seconds = std::chrono::duration<double>(end - start).count();
    for (const auto& rank : ranks_) figures_.busiest = std::max(figures_.busiest, rank->messages);
    return figures_;
}

SimulatedLifelines::Figures SimulatedLifelines::join() {
    return play([this] {
        for (const auto& rank : ranks_) {
            if (rank->roster.rank != 0) connect(*rank, parent_of(rank->roster.rank), Role::parent);
        }
    });
}

SimulatedLifelines::Figures SimulatedLifelines::kill(int victim) {
    TUTTI_ASSERT(victim >= 0 && static_cast<std::size_t>(victim) < ranks_.size() && !rank(victim).closed);
    return play([&] {
        killed_ = now_;
        close(rank(victim));
    });
}

SimulatedLifelines::Figures SimulatedLifelines::leave(std::chrono::milliseconds within) {
    return play([&] {
        std::mt19937_64 chance(ranks_.size());
        const auto times = static_cast<std::uint64_t>(std::chrono::nanoseconds(within).count()) + 1;
        for (const auto& rank : ranks_) {
            if (rank->closed) continue;
            const std::chrono::nanoseconds later(chance() % times);
            add({.when = now_ + later, .kind = Event::leave, .rank = rank->roster.rank});
        }
    });
}

int SimulatedLifelines::present() const {
    return static_cast<int>(std::ranges::count_if(ranks_, [](const auto& rank) { return !rank->closed; }));
}

std::size_t SimulatedLifelines::most_lifelines() const {
    std::size_t most = 0;
    for (const auto& rank : ranks_) most = std::max(most, rank->lines.tree().lines().size());
    return most;
}

// ---- Events

void SimulatedLifelines::add(Event event) {
    event.number = next_event_++;
    events_.push_back(std::move(event));
    std::push_heap(events_.begin(), events_.end());
}

void SimulatedLifelines::handle(Event& event) {
    Rank& rank = this->rank(event.rank);
    if (rank.closed) {  // nobody answers there any more
        if (event.kind != Event::attach) return;
        const auto& from = connections_[event.connection];
        const auto other = static_cast<std::size_t>(1 - event.side);
        return add({.when = now_ + costs_.latency,
                    .kind = Event::end,
                    .rank = from.ranks[other],
                    .connection = event.connection,
                    .side = 1 - event.side});
    }
    rank.busy = std::max(rank.busy, now_);
    if (event.kind != Event::look && event.kind != Event::leave) {
        rank.busy += costs_.message;
        ++rank.messages;
    }
    const Instant now = rank.busy;
    const auto side = static_cast<std::size_t>(event.side);
    switch (event.kind) {
        case Event::attach: {
            Connection& made = connections_[event.connection];
            made.lines[side] = rank.lines.attach(made.ranks[1 - side], Role::child, false, now);
            rank.sides.emplace(made.lines[side], std::pair(event.connection, event.side));
            break;
        }
        case Event::bytes: {
            const LineId line = connections_[event.connection].lines[side];
            if (!rank.sides.contains(line)) return;
            const bool makes_sense = rank.lines.on_bytes(line, std::as_bytes(std::span(event.text)), now);
            TUTTI_ASSERT(makes_sense);
            break;
        }
        case Event::end: {
            const Connection& ended = connections_[event.connection];
            const int other = ended.ranks[1 - side];
            LineEnd how;
            if (rank.roster.can_watch(other) && this->rank(other).closed) how.process_end = "killed by SIGKILL";
            rank.lines.on_end(ended.lines[side], how, now);
            break;
        }
        case Event::refused: rank.lines.on_dial_failed(event.dial, DialFailure::refused, now); break;
        case Event::look: rank.look.reset(); break;
        case Event::leave:
            rank.stay.emplace(now);
            rank.lines.leave(now);
            break;
    }
    after_event(rank, now);
}

void SimulatedLifelines::after_event(Rank& rank, Instant now) {
    rank.lines.on_time(now);
    perform(rank);
    if (rank.stay && (!rank.lines.is_counted_on() || rank.stay->is_over(now))) return close(rank);
    auto look = rank.lines.next_look(now);
    if (rank.stay) look = std::min(look.value_or(Instant::max()), now + Linger::longest_look);
    if (!look || (rank.look && *rank.look <= *look)) return;
    rank.look = std::max(*look, now + std::chrono::microseconds(1));
    add({.when = *rank.look, .kind = Event::look, .rank = rank.roster.rank});
}

void SimulatedLifelines::perform(Rank& rank) {
    for (auto effects = rank.lines.take_effects(); !effects.empty(); effects = rank.lines.take_effects()) {
        for (Effect& effect : effects) {
            if (auto* sent = std::get_if<SendBytes>(&effect)) send(rank, sent->line, std::move(sent->bytes));
            if (const auto* ended = std::get_if<EndSending>(&effect)) end(rank, ended->line);
            if (const auto* closed = std::get_if<CloseLine>(&effect)) {
                end(rank, closed->line);
                rank.sides.erase(closed->line);
            }
            if (const auto* wanted = std::get_if<Dial>(&effect)) {
                if (!this->rank(wanted->rank).closed) {
                    connect(rank, wanted->rank, wanted->role);
                } else {
                    add({.when = rank.busy + 2 * costs_.latency,
                         .kind = Event::refused,
                         .rank = rank.roster.rank,
                         .dial = *wanted});
                }
            }
            if (const auto* news = std::get_if<Inform>(&effect)) {
                if (news->verdict.kind == VerdictKind::peer_lost && !std::exchange(rank.told, true)) {
                    ++told_;
                    last_told_s_ = std::max(last_told_s_, std::chrono::duration<double>(rank.busy - killed_).count());
                }
                if (news->id) rank.lines.informed(*news->id);
            }
        }
    }
}

// Within a host the kernel connects at once; between hosts TCP's handshake and the proof come before.
void SimulatedLifelines::connect(Rank& from, int to, Role role) {
    const std::size_t number = connections_.size();
    connections_.push_back({{from.roster.rank, to}, {}});
    from.busy = std::max(from.busy, now_);
    const auto way = costs_.latency * (from.roster.is_near(to) ? 1 : 3);
    add({.when = from.busy + way, .kind = Event::attach, .rank = to, .connection = number, .side = 1});
    const LineId line = from.lines.attach(to, role, false, from.busy);
    connections_[number].lines[0] = line;
    from.sides.emplace(line, std::pair(number, 0));
    from.busy += way - costs_.latency;  // what it sends comes after that
    perform(from);
}

void SimulatedLifelines::send(Rank& from, LineId line, std::string bytes) {
    const auto found = from.sides.find(line);
    if (found == from.sides.end()) return;
    const auto [connection, side] = found->second;
    from.busy = std::max(from.busy, now_) + costs_.message;
    ++from.messages;
    ++figures_.messages;
    figures_.bytes += bytes.size();
    add({.when = from.busy + costs_.latency,
         .kind = Event::bytes,
         .rank = connections_[connection].ranks[static_cast<std::size_t>(1 - side)],
         .connection = connection,
         .side = 1 - side,
         .text = std::move(bytes)});
}

void SimulatedLifelines::end(Rank& from, LineId line) {
    const auto found = from.sides.find(line);
    if (found == from.sides.end()) return;
    const auto [connection, side] = found->second;
    add({.when = std::max(from.busy, now_) + costs_.latency,
         .kind = Event::end,
         .rank = connections_[connection].ranks[static_cast<std::size_t>(1 - side)],
         .connection = connection,
         .side = 1 - side});
}

void SimulatedLifelines::close(Rank& rank) {
    for (const auto& [line, side] : rank.sides) end(rank, line);
    rank.sides.clear();
    rank.closed = true;
}

}  // namespace tutti::bench
