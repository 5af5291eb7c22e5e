// Tuning: the inputs to the choice of an algorithm, in addition to the fixed limits of the table. Values, equal on all
// ranks of a group: rank 0 sends its own to all when the group is made.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

inline constexpr std::uint64_t any_size = ~std::uint64_t{0};
inline constexpr int any_ranks = 1 << 30;

/// The cost of messages and memory on the hosts of a group. The defaults are rough figures of today's machines.
struct CostModel {
    double cores = 2;             ///< of one host
    double cache_kb = 1024;       ///< of one core: the part not shared with others
    double line_us = 0.15;        ///< a cache line from one core to another
    double yield_us = 0.5;        ///< giving the core away and getting it back
    double wake_us = 20;          ///< from a change until a sleeping rank has seen it
    double cache_copy_gbps = 12;  ///< gigabytes a second, copied by one core inside its cache
    double memory_copy_gbps = 5;  ///< the same, of more than the cache holds
    double combine_gbps = 9;      ///< results of two inputs in float32, by one core inside its cache
    double share_gbps = 10;       ///< one core's cache to another's by ordinary stores, the work of both
    double stream_gbps = 6;       ///< the same by stores that bypass the cache
    double stream_read_gbps = 9;  ///< the reader's part of stream_gbps
    double pull_us = 0.6;         ///< a system call that copies from another process, without its bytes
    double pull_gbps = 9;         ///< copied by the kernel from another process, inside the cache
    double pull_huge_gbps = 9;    ///< the same if both buffers have huge pages, as frequently used ones often do
    double pull_memory_gbps = 5;  ///< as pull_huge_gbps, of more than the cache holds
    double tcp_us = 10;           ///< a short message over TCP, one way
    double tcp_send_us = 3;       ///< the part of tcp_us in which the sender's core is busy
    double tcp_receive_us = 1.5;  ///< the part of tcp_us in which the receiver's core is busy
    double tcp_gbps = 4;          ///< one TCP connection, one direction, a core at either end
    friend bool operator==(const CostModel&, const CostModel&) = default;
};

/// One number of a CostModel: its name, and its credible range.
struct CostField {
    std::string_view name;
    double CostModel::*value;
    double min, max;
    std::string_view meaning;
};
std::span<const CostField> cost_fields();

/// A rule that precedes the table: `algorithm` serves `collective` up to these limits (bytes of the buffer, or of the
/// largest block), if it can.
struct Rule {
    Collective collective = Collective::barrier;
    std::string algorithm;
    std::uint64_t up_to_bytes = any_size;
    int up_to_ranks = any_ranks;
    friend bool operator==(const Rule&, const Rule&) = default;
};

class UserSchedule;

struct Tuning {
    std::optional<CostModel> costs;  ///< formulas choose; empty: the table's limits do
    std::vector<Rule> rules;         ///< the first that applies decides, before formulas and table
    std::string named;               ///< TUTTI_ALGORITHM: precedes all others
    /// TUTTI_SCHEDULE: the first that serves a call decides, after the rules.
    std::vector<std::shared_ptr<const UserSchedule>> schedules{};
    friend bool operator==(const Tuning&, const Tuning&) = default;
};

}  // namespace tutti::algorithm
