#include "record/timeline.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tutti::record {
namespace {

using BySequence = std::map<std::uint64_t, const Entry*>;

BySequence collectives_of(const Dump& dump) {
    BySequence result;
    for (const Entry& entry : dump.entries) {
        if (!is_message(entry.kind)) result[entry.sequence] = &entry;
    }
    return result;
}

// The offset to add to the second rank's clock so that no collective ends on one before it begins on the other.
std::int64_t clock_offset(const Dump& reference, const Dump& other) {
    if (reference.machine == other.machine) return 0;
    std::int64_t low = INT64_MIN / 4, high = INT64_MAX / 4;
    const BySequence theirs = collectives_of(other);
    for (const auto& [sequence, mine] : collectives_of(reference)) {
        const auto found = theirs.find(sequence);
        if (found == theirs.end() || mine->kind != Kind::collective) continue;
        const Entry& b = *found->second;
        if (mine->state != State::completed || mine->ended_ns == 0) continue;
        if (b.state != State::completed || b.ended_ns == 0) continue;
        low = std::max(low, mine->enqueued_ns - b.ended_ns);
        high = std::min(high, mine->ended_ns - b.enqueued_ns);
    }
    return low <= 0 && 0 <= high ? 0 : low / 2 + high / 2;
}

// The operation in which a rank stands: the first collective that did not complete, or else its first open message.
const Entry* standing_in(const Dump& dump) {
    const Entry* message = nullptr;
    for (const Entry& entry : dump.entries) {
        if (entry.state == State::completed) continue;
        if (!is_message(entry.kind)) return &entry;
        if (message == nullptr) message = &entry;
    }
    return message;
}

std::string last_of(const Dump& dump) {
    if (dump.entries.empty()) return "it has called nothing";
    const Entry& last = dump.entries.back();
    return fmt::format("its last was {} ({})", last.title(dump.members), to_string(last.state));
}

enum class Arrival { unknown, missing, different, inside, past };

Arrival arrival_of(const std::optional<Dump>& dump, const Entry& in) {
    if (!dump) return Arrival::unknown;
    const auto found = std::ranges::find(dump->entries, in.sequence, &Entry::sequence);
    if (found == dump->entries.end()) {
        const bool later = std::ranges::any_of(dump->entries, [&](const Entry& e) { return e.sequence > in.sequence; });
        return later ? Arrival::past : Arrival::missing;
    }
    if (found->fingerprint != in.fingerprint) return Arrival::different;
    return found->state == State::completed ? Arrival::past : Arrival::inside;
}

std::string reason_for(const std::optional<Dump>& dump, Arrival arrival, const Entry& in) {
    switch (arrival) {
        case Arrival::unknown: return "it left no dump";
        case Arrival::missing: return fmt::format("it has not called it; {}{}", last_of(*dump), in_replays(*dump));
        case Arrival::different:
            return fmt::format("it called {}",
                               std::ranges::find(dump->entries, in.sequence, &Entry::sequence)->title(dump->members));
        case Arrival::inside: return "it is in it too";
        case Arrival::past: return "it has completed it";
    }
    return {};
}

// Whether the rules of the operation make `rank` wait for `peer`.
bool may_wait(const Entry& in, int rank, int peer) {
    switch (in.kind) {
        case Kind::from_root: return rank == in.peer || peer == in.peer;
        case Kind::to_root: return rank == in.peer || peer == in.peer;
        case Kind::collective: return true;
        default: return in.peer < 0 || in.peer == peer;
    }
}

void add_waits(const WorldTimeline& world, int rank, std::vector<Wait>& waits) {
    TUTTI_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < world.ranks.size() &&
                 world.ranks[static_cast<std::size_t>(rank)]);
    const Dump& dump = *world.ranks[static_cast<std::size_t>(rank)];
    const Entry* in = standing_in(dump);
    if (in == nullptr) return;
    const std::int64_t until = in->open() ? dump.taken_ns : in->ended_ns;
    const double seconds = std::max(0.0, 1e-9 * static_cast<double>(until - in->enqueued_ns));
    const std::size_t before = waits.size();
    const auto add = [&](int peer, const std::string& because) {
        const auto same = std::find_if(waits.begin() + static_cast<std::ptrdiff_t>(before), waits.end(),
                                       [&](const Wait& wait) { return wait.because == because; });
        if (same == waits.end())
            waits.push_back({rank, {peer}, *in, seconds, because});
        else
            same->peers.push_back(peer);
    };
    if (is_message(in->kind)) {
        if (in->peer >= 0) {
            TUTTI_ASSERT(static_cast<std::size_t>(in->peer) < world.ranks.size());
            const auto& other = world.ranks[static_cast<std::size_t>(in->peer)];
            const Entry* theirs = other ? standing_in(*other) : nullptr;
            add(in->peer, !other              ? "it left no dump"
                          : theirs != nullptr ? fmt::format("it is in {}", theirs->title(world.members))
                                              : last_of(*other));
        }
        return;
    }
    // The ranks that have not come, or else those that are in it and do not progress.
    for (const bool outside : {true, false}) {
        for (int peer = 0; peer < static_cast<int>(world.ranks.size()); ++peer) {
            const auto& other = world.ranks[static_cast<std::size_t>(peer)];
            const Arrival arrival = arrival_of(other, *in);
            if (peer == rank || arrival == Arrival::past || !may_wait(*in, rank, peer)) continue;
            // Among ranks without a dump, those count that this one was seen to wait for, where a thread looked.
            if (arrival == Arrival::unknown && in->open() && !dump.waits_for.empty() &&
                std::ranges::find(dump.waits_for, peer) == dump.waits_for.end())
                continue;
            if ((arrival == Arrival::inside) != outside) add(peer, reason_for(other, arrival, *in));
        }
        if (waits.size() > before) return;
    }
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<WorldTimeline> merge(std::vector<Dump> dumps) {
    std::ranges::stable_sort(dumps, {}, &Dump::taken_ns);
    std::vector<WorldTimeline> worlds;
    for (Dump& dump : dumps) {
        auto world = std::ranges::find_if(
            worlds, [&](const WorldTimeline& w) { return w.id == dump.world && w.group == dump.group; });
        if (world == worlds.end()) {
            worlds.push_back({.group = dump.group, .id = dump.world});
            world = worlds.end() - 1;
            world->ranks.resize(static_cast<std::size_t>(dump.size));
            world->members = dump.members;
        }
        if (world->ranks.size() != static_cast<std::size_t>(dump.size)) {
            throw InvalidArgument(
                fmt::format("dumps of group \"{}\": one is of {} ranks, another of {}: expected the same", dump.group,
                            world->ranks.size(), dump.size));
        }
        const auto rank = static_cast<std::size_t>(dump.rank);
        TUTTI_ASSERT(rank < world->ranks.size());
        world->ranks[rank] = std::move(dump);
    }
    for (WorldTimeline& world : worlds) {
        world.offset_ns.resize(world.ranks.size());
        const auto reference = std::ranges::find_if(world.ranks, [](const auto& rank) { return rank.has_value(); });
        TUTTI_ASSERT(reference != world.ranks.end());
        for (std::size_t rank = 0; rank < world.ranks.size(); ++rank) {
            if (world.ranks[rank]) world.offset_ns[rank] = clock_offset(**reference, *world.ranks[rank]);
        }
    }
    return worlds;
}

std::vector<Wait> wait_for_graph(const WorldTimeline& world) {
    std::vector<Wait> waits;
    for (int rank = 0; rank < static_cast<int>(world.ranks.size()); ++rank) {
        if (world.ranks[static_cast<std::size_t>(rank)]) add_waits(world, rank, waits);
    }
    return waits;
}

std::vector<std::vector<int>> circles(std::span<const Wait> waits) {
    std::map<int, std::vector<int>> edges;
    for (const Wait& wait : waits) {
        auto& out = edges[wait.rank];
        out.insert(out.end(), wait.peers.begin(), wait.peers.end());
    }
    std::vector<std::vector<int>> found;
    std::set<int> finished;
    for (const auto& [start, unused] : edges) {
        // Depth first, without recursion: a dump may name a million ranks.
        std::vector<std::pair<int, std::size_t>> path{{start, 0}};
        std::set<int> on_path{start};
        while (!path.empty()) {
            auto& [rank, next] = path.back();
            TUTTI_ASSERT(on_path.size() == path.size());
            const auto out = edges.find(rank);
            if (finished.contains(rank) || out == edges.end() || next >= out->second.size()) {
                finished.insert(rank);
                on_path.erase(rank);
                path.pop_back();
                continue;
            }
            const int peer = out->second[next++];
            if (on_path.contains(peer)) {
                std::vector<int> circle;
                auto at = std::ranges::find(path, peer, &std::pair<int, std::size_t>::first);
                for (; at != path.end(); ++at) circle.push_back(at->first);
                TUTTI_ASSERT(!circle.empty() && circle.front() == peer);
                found.push_back(std::move(circle));
            } else if (!finished.contains(peer)) {
                path.emplace_back(peer, 0);
                on_path.insert(peer);
            }
        }
    }
    return found;
}

std::string describe(const WorldTimeline& world) {
    std::vector<int> absent;
    for (std::size_t rank = 0; rank < world.ranks.size(); ++rank) {
        if (!world.ranks[rank]) absent.push_back(static_cast<int>(rank));
    }
    std::string text = fmt::format("group \"{}\", {} ranks", world.group, world.ranks.size());
    if (!absent.empty()) text += fmt::format("; no dump of {}", world.members.list_of(absent));
    text += '\n';
    const auto any = std::ranges::find_if(world.ranks, [](const auto& dump) { return dump && !dump->made_at.empty(); });
    if (any != world.ranks.end()) text += fmt::format("  made at {}\n", (*any)->made_at);
    for (const auto& dump : world.ranks) {
        if (!dump) continue;
        text += fmt::format("  rank {} ({}, pid {}): {} operations; dumped: {}\n", world.members[dump->rank],
                            dump->host, dump->process, dump->entries.empty() ? 0 : dump->entries.back().number,
                            first_line(dump->reason));
        for (const std::string& replay : dump->replays) text += fmt::format("    {}\n", replay);
        if (const std::string unmatched = unmatched_in_words(*dump); !unmatched.empty())
            text += fmt::format("    {}, not received\n", unmatched);
        const Entry* in = standing_in(*dump);
        if (in == nullptr) {
            text += fmt::format("    waits for nothing; {}\n", last_of(*dump));
            continue;
        }
        text += fmt::format("    {} {}", in->open() ? "is in" : "failed in", in->title(world.members));
        text += in->site.empty() ? "\n" : fmt::format("\n      called at {}\n", in->site);
    }
    const std::vector<Wait> waits = wait_for_graph(world);
    if (waits.empty()) return text + "  nobody waits\n";
    text += "  who waits for whom\n";
    for (const Wait& wait : waits) {
        text +=
            fmt::format("    rank {} waits for {} for {:.3f} s in {}: {}\n", world.members[wait.rank],
                        world.members.list_of(wait.peers), wait.seconds, wait.in.title(world.members), wait.because);
    }
    for (auto& circle : circles(waits)) {
        for (int& rank : circle) rank = world.members[rank];
        text += fmt::format("  a circle: {} → {}\n", fmt::join(circle, " → "), circle.front());
    }
    return text;
}

}  // namespace tutti::record
