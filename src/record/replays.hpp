// Replays: the graphs that this process replays, and the node that each is at: for dumps, verdicts and pages.
//
// A replay is one record: its number and its node, two plain stores for each node. The calls of its nodes have records
// in their groups' recorders besides, with the captured call sites, since ranks compare them with those of plain calls.
//
// Threads: begin(), at() and end() by one thread at a time; everything else any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::record {

class Recorder;

class ReplayRecord {
 public:
    /// `nodes`: each in words. `groups`: the recorders of the groups whose calls the graph has, which outlive this;
    /// none: it shows in the dumps of all groups.
    ReplayRecord(std::vector<std::string> nodes, std::vector<const Recorder*> groups);
    ~ReplayRecord();
    ReplayRecord(const ReplayRecord&) = delete;
    ReplayRecord& operator=(const ReplayRecord&) = delete;

    void begin() noexcept { number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    void at(std::size_t node) noexcept { node_.store(node, std::memory_order_relaxed); }
    void end() noexcept { node_.store(nowhere, std::memory_order_relaxed); }

    /// "graph replay #12 at node 7 of 40: all_reduce of float32 × 16, sum (train.cpp:12)"; empty between replays.
    std::string text() const;
    bool concerns(const Recorder& group) const;

 private:
    static constexpr std::size_t nowhere = ~std::size_t{0};
    const std::vector<std::string> nodes_;
    const std::vector<const Recorder*> groups_;
    std::atomic<std::uint64_t> number_{0};
    std::atomic<std::size_t> node_{nowhere};
};

/// The replays under way that have calls of the group, in the order in which their graphs were instantiated.
std::vector<std::string> replays_under_way(const Recorder& group);

}  // namespace tutti::record
