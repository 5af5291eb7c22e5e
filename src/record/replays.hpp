// Replays: the graphs that this process replays: the current node of each, for dumps, verdicts and pages, and when the
// nodes of the last replays began, for timelines.
//
// A replay has one record: its number, its current node and the times of its nodes. Per node it costs a few plain
// stores and one reading of the clock (record/ticks). The calls of its nodes are also recorded in their groups'
// recorders, with the call sites of the capture, since ranks compare these records with those of plain calls.
//
// Threads: begin(), at() and end() by one thread at a time; everything else any.
#pragma once

#include "core/assert.hpp"
#include "record/dump.hpp"
#include "record/ticks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::record {

class Recorder;

/// When the nodes of a graph's last replays began. A reader omits the oldest replay if a new one overwrites it
/// meanwhile.
class ReplayTimes {
 public:
    explicit ReplayTimes(std::size_t nodes);

    void begin(std::uint64_t number) noexcept;
    /// The next node begins.
    void next() noexcept;
    void end() noexcept;
    std::vector<Replay> read(const TickScale& scale) const;

 private:
    struct Slot {
        std::atomic<std::uint64_t> number{0};  // 0: it is being overwritten
        std::atomic<std::uint64_t> ended{0};
        std::atomic<std::size_t> begun{0};  // nodes
    };
    static constexpr std::size_t times_max = 4096;  // per graph, unless a single replay has more

    const std::size_t nodes_, count_;
    const std::unique_ptr<Slot[]> slots_;                     // index: number modulo count_
    const std::unique_ptr<std::atomic<std::uint64_t>[]> at_;  // ticks, nodes_ for each slot
    Slot* slot_ = nullptr;                                    // of the replay under way
};

class ReplayRecord {
 public:
    /// `nodes`: a text for each. `groups`: the recorders of the groups whose calls the graph contains, which outlive
    /// this object; empty: it shows in the dumps of all groups.
    ReplayRecord(std::vector<std::string> nodes, std::vector<const Recorder*> groups);
    /// Keeps the last replays for later dumps of `groups`, unless that is empty.
    ~ReplayRecord();
    ReplayRecord(const ReplayRecord&) = delete;
    ReplayRecord& operator=(const ReplayRecord&) = delete;

    void begin() noexcept {
        const std::uint64_t number = number_.load(std::memory_order_relaxed) + 1;
        number_.store(number, std::memory_order_relaxed);
        times_.begin(number);
    }
    /// Nodes run in their order, from the first.
    void at(std::size_t node) noexcept {
        TUTTI_ASSERT(node < nodes_.size());
        node_.store(node, std::memory_order_relaxed);
        times_.next();
    }
    void end() noexcept {
        node_.store(nowhere, std::memory_order_relaxed);
        times_.end();
    }

    /// "graph replay #12 at node 7 of 40: all_reduce of float32 × 16, sum (train.cpp:12)"; empty between replays.
    std::string text() const;
    bool concerns(const Recorder& group) const;
    /// The graph, with its last replays.
    ReplayedGraph replayed(const TickScale& scale) const;

 private:
    static constexpr std::size_t nowhere = ~std::size_t{0};
    const std::uint64_t id_;
    const std::vector<std::string> nodes_;
    const std::vector<const Recorder*> groups_;
    std::atomic<std::uint64_t> number_{0};
    std::atomic<std::size_t> node_{nowhere};
    ReplayTimes times_;
};

/// The replays under way that have calls of the group, in the order in which their graphs were instantiated.
std::vector<std::string> replays_under_way(const Recorder& group);
/// The replayed graphs that have calls of the group, the latest dump_graphs_max of them, including graphs that have
/// been destroyed.
std::vector<ReplayedGraph> replayed_graphs(const Recorder& group, const TickScale& scale);
/// Call it when the group's recorder is destroyed.
void forget_replays(const Recorder& group) noexcept;

}  // namespace tutti::record
