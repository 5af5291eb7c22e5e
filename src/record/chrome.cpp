// The timeline in the trace event format: docs "Trace Event Format" of the Chromium project, which Perfetto reads too.
#include "core/assert.hpp"
#include "record/timeline.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace tutti::record {
namespace {

using nlohmann::json;

class Trace {
 public:
    explicit Trace(std::span<const WorldTimeline> worlds) : worlds_(worlds) {
        for (const WorldTimeline& world : worlds_) {
            TUTTI_ASSERT(world.offset_ns.size() == world.ranks.size());
            for (std::size_t rank = 0; rank < world.ranks.size(); ++rank) {
                if (!world.ranks[rank]) continue;
                for (const Entry& entry : world.ranks[rank]->entries)
                    first_ns_ = std::min(first_ns_, entry.enqueued_ns + world.offset_ns[rank]);
                for (const ReplayedGraph& graph : world.ranks[rank]->graphs) {
                    for (const Replay& replay : graph.replays) {
                        if (!replay.began_ns.empty())
                            first_ns_ = std::min(first_ns_, replay.began_ns.front() + world.offset_ns[rank]);
                    }
                }
            }
        }
    }
    std::string text() {
        for (std::size_t track = 0; track < worlds_.size(); ++track) add_world(worlds_[track], static_cast<int>(track));
        const json all{{"traceEvents", events_}, {"displayTimeUnit", "ns"}};
        return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    }

 private:
    struct Span {
        const Entry* entry;
        int rank;
        std::int64_t begin_ns, end_ns;
        const Members* members;
    };

    double microseconds(std::int64_t ns) const { return 1e-3 * static_cast<double>(ns - first_ns_); }

    // When the last rank began each collective.
    static std::map<std::uint64_t, std::int64_t> last_begins(const WorldTimeline& world) {
        std::map<std::uint64_t, std::int64_t> last;
        for (std::size_t rank = 0; rank < world.ranks.size(); ++rank) {
            if (!world.ranks[rank]) continue;
            for (const Entry& entry : world.ranks[rank]->entries) {
                const auto [at, first] = last.try_emplace(entry.sequence, INT64_MIN);
                at->second = std::max(at->second, entry.enqueued_ns + world.offset_ns[rank]);
            }
        }
        return last;
    }
    // An operation that was over in a moment ended when the last rank came.
    static std::int64_t end_of(const Entry& entry, const Dump& dump, std::int64_t offset,
                               const std::map<std::uint64_t, std::int64_t>& last_begin) {
        if (entry.open()) return dump.taken_ns + offset;
        TUTTI_ASSERT(entry.kind != Kind::collective || last_begin.contains(entry.sequence));
        if (entry.ended_ns != 0) return entry.ended_ns + offset;
        return entry.kind == Kind::collective ? last_begin.at(entry.sequence) : entry.enqueued_ns + offset;
    }

    void add_world(const WorldTimeline& world, int track) {
        const auto last_begin = last_begins(world);
        std::map<std::uint64_t, std::vector<Span>> collectives;
        std::map<std::pair<int, int>, std::deque<Span>> sends, receives;  // by sender and receiver
        for (const auto& dump : world.ranks) {
            if (!dump) continue;
            TUTTI_ASSERT(dump->rank >= 0 && static_cast<std::size_t>(dump->rank) < world.ranks.size());
            name(*dump, track);
            const std::int64_t offset = world.offset_ns[static_cast<std::size_t>(dump->rank)];
            for (const ReplayedGraph& graph : dump->graphs) add_replays(*dump, graph, offset);
            for (const Entry& entry : dump->entries) {
                const std::int64_t begin = entry.enqueued_ns + offset;
                const Span span{&entry, dump->rank, begin, std::max(begin, end_of(entry, *dump, offset, last_begin)),
                                &world.members};
                add_slice(span, track);
                if (!is_message(entry.kind))
                    collectives[entry.sequence].push_back(span);
                else if (entry.peer >= 0 && entry.kind == Kind::send)
                    sends[{span.rank, entry.peer}].push_back(span);
                else if (entry.peer >= 0)
                    receives[{entry.peer, span.rank}].push_back(span);
            }
        }
        for (const auto& [sequence, spans] : collectives) add_collective_arrows(spans, track);
        for (auto& [ends, from] : sends) add_message_arrows(from, receives[ends], track);
    }
    void name(const Dump& dump, int track) {
        events_.push_back(
            {{"ph", "M"},
             {"name", "process_name"},
             {"pid", dump.members[dump.rank]},
             {"args",
              {{"name", fmt::format("rank {} ({}, pid {})", dump.members[dump.rank], dump.host, dump.process)}}}});
        events_.push_back({{"ph", "M"},
                           {"name", "thread_name"},
                           {"pid", dump.members[dump.rank]},
                           {"tid", track},
                           {"args", {{"name", fmt::format("group {}", dump.group)}}}});
    }
    // A track for each graph, behind those of groups; the dumps of several groups may tell of one replay.
    void add_replays(const Dump& dump, const ReplayedGraph& graph, std::int64_t offset) {
        const int process = dump.members[dump.rank];
        const auto [track, is_new] = graph_tracks_.try_emplace({dump.host, dump.process, graph.id},
                                                               static_cast<int>(worlds_.size() + graph_tracks_.size()));
        if (is_new) {
            events_.push_back({{"ph", "M"},
                               {"name", "thread_name"},
                               {"pid", process},
                               {"tid", track->second},
                               {"args", {{"name", fmt::format("replays of graph {}", graph.id)}}}});
        }
        for (const Replay& replay : graph.replays) {
            if (replay.began_ns.empty() || !replays_.insert({track->second, replay.number}).second) continue;
            const std::int64_t last = replay.ended_ns != 0 ? replay.ended_ns : dump.taken_ns;
            const bool is_over = replay.ended_ns != 0;
            TUTTI_ASSERT(replay.began_ns.size() <= replayed_nodes_max);
            const auto add = [&](const std::string& name, bool over, std::int64_t begin, std::int64_t end) {
                events_.push_back({{"ph", "X"},
                                   {"name", name},
                                   {"cat", "replay"},
                                   {"pid", process},
                                   {"tid", track->second},
                                   {"ts", microseconds(begin + offset)},
                                   {"dur", 1e-3 * static_cast<double>(std::max(end, begin) - begin)},
                                   {"args", {{"state", over ? "over" : "under way"}}}});
            };
            add(fmt::format("graph replay #{}", replay.number), is_over, replay.began_ns.front(), last);
            for (std::size_t i = 0; i < replay.began_ns.size(); ++i) {
                const bool is_last = i + 1 == replay.began_ns.size();
                if (is_last && i + 1 == replayed_nodes_max) break;  // nobody knows when it ended
                add(i < graph.nodes.size() ? graph.nodes[i] : fmt::format("node {}", i + 1), is_over || !is_last,
                    replay.began_ns[i], is_last ? last : replay.began_ns[i + 1]);
            }
        }
    }
    void add_slice(const Span& span, int track) {
        const Entry& entry = *span.entry;
        TUTTI_ASSERT(span.end_ns >= span.begin_ns && span.members != nullptr);
        json args{{"state", to_string(entry.state)}, {"number", entry.number}};
        if (entry.started_ns > 0) args["queued_us"] = 1e-3 * static_cast<double>(entry.started_ns - entry.enqueued_ns);
        if (!entry.site.empty()) args["called at"] = entry.site;
        events_.push_back({{"ph", "X"},
                           {"name", entry.title(*span.members)},
                           {"cat", to_string(entry.kind)},
                           {"pid", (*span.members)[span.rank]},
                           {"tid", track},
                           {"ts", microseconds(span.begin_ns)},
                           {"dur", 1e-3 * static_cast<double>(span.end_ns - span.begin_ns)},
                           {"args", args}});
    }
    void add_arrow(const char* what, const Span& from, std::int64_t from_ns, const Span& to, std::int64_t to_ns,
                   int track) {
        TUTTI_ASSERT(what != nullptr && from_ns <= to_ns);
        const int id = ++arrows_;
        events_.push_back({{"ph", "s"},
                           {"name", what},
                           {"cat", "flow"},
                           {"id", id},
                           {"pid", (*from.members)[from.rank]},
                           {"tid", track},
                           {"ts", microseconds(from_ns)}});
        events_.push_back({{"ph", "f"},
                           {"bp", "e"},
                           {"name", what},
                           {"cat", "flow"},
                           {"id", id},
                           {"pid", (*to.members)[to.rank]},
                           {"tid", track},
                           {"ts", microseconds(to_ns)}});
    }
    // From where the last one began to the ends of those that waited for it.
    void add_collective_arrows(const std::vector<Span>& spans, int track) {
        TUTTI_ASSERT(!spans.empty());
        const auto last = std::ranges::max_element(spans, {}, &Span::begin_ns);
        for (const Span& span : spans) {
            if (span.rank == last->rank || span.entry->state != State::completed || span.end_ns < last->begin_ns)
                continue;
            add_arrow("came last", *last, last->begin_ns, span, span.end_ns, track);
        }
    }
    // Messages of a pair arrive in order; one ring may still have messages that the other has forgotten, so match from
    // the end.
    void add_message_arrows(const std::deque<Span>& sends, const std::deque<Span>& receives, int track) {
        auto send = sends.rbegin();
        for (auto receive = receives.rbegin(); receive != receives.rend() && send != sends.rend(); ++receive) {
            if (receive->entry->state != State::completed) continue;
            while (send != sends.rend() &&
                   (send->entry->fingerprint != receive->entry->fingerprint || send->begin_ns > receive->end_ns))
                ++send;
            if (send == sends.rend()) return;
            add_arrow("message", *send, send->begin_ns, *receive, receive->end_ns, track);
            ++send;
        }
    }

    std::span<const WorldTimeline> worlds_;
    std::int64_t first_ns_ = INT64_MAX;
    json events_ = json::array();
    int arrows_ = 0;
    std::map<std::tuple<std::string, int, std::uint64_t>, int> graph_tracks_;  // by host, process and graph
    std::set<std::pair<int, std::uint64_t>> replays_;                          // track and number
};

}  // namespace

std::string chrome_trace(std::span<const WorldTimeline> worlds) {
    return Trace(worlds).text();
}

}  // namespace tutti::record
