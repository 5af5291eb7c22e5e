// Cost: the predicted time of an algorithm, by formula, before anything is planned.
//
// A Workload describes an algorithm by its demands on the machine; one function turns that into time with the machine's
// parameters (CostModel). The model is Hockney's latency and bandwidth, with LogGP's sender and receiver overheads, and
// one addition: ranks that share cores share their time, so that the work of all ranks counts, as well as that of the
// busiest. Pure functions. Sources: Hockney (1994); Alexandrov, Ionescu, Schauser, Scheiman, "LogGP" (1995); Thakur,
// Rabenseifner, Gropp (2005).
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::algorithm {

/// The demands of a collective on the machine. Bytes and messages are of all ranks together unless noted.
struct Workload {
    double exchanges = 0;  ///< messages that wait for one another
    double messages = 0;
    double bytes = 0;          ///< in messages
    double most_sends = 0;     ///< of one rank
    double most_receives = 0;  ///< of that rank
    double most_bytes = 0;     ///< that one rank sends or receives, the larger
    double fresh = 0;          ///< the share of `bytes` that the sender has just written
    double relayed = 0;        ///< bytes sent in turn on the longest path; ranks forward only whole messages
    double most_local = 0;     ///< bytes that one rank copies, in addition to its messages
    double most_sums = 0;      ///< bytes of results of two inputs that it combines beside them; more inputs take longer
    double scratch = 0;        ///< bytes that arrive in memory of the operation's own, and are combined from there
    double scratch_ranks = 1;  ///< ranks that share that work
    double streamed = 0;       ///< bytes that are touched again after the whole buffer has passed
    double signals = 0;        ///< publications in the staging area that wait for one another
    double copied = 0;         ///< bytes copied through the staging area
    double most_copied = 0;    ///< of one rank
    double summed = 0;         ///< bytes of results combined from it, counted as most_sums is
    double most_summed = 0;    ///< of one rank
    double crossing = 0;       ///< bytes in the staging area that one rank takes from another
    double pulled = 0;         ///< bytes that the kernel copies from rank to rank, beside messages
    double most_pulled = 0;    ///< of one rank
    double calls = 0;          ///< of the kernel by one rank, each to copy from or to another rank's memory
    double meetings = 0;       ///< times that every rank waits until all others have reached the same point
    double held = 0;           ///< bytes of one rank's buffers and scratch: whether they stay in the cache
    double buffer = 0;     ///< bytes of one rank's smallest buffer that the kernel copies: whether it gets huge pages
    bool one_way = false;  ///< ranks that only send need not wait: calls overlap
    bool sends_first = false;           ///< before it copies beside its messages: others may read these meanwhile
    bool counts_on_huge_pages = false;  ///< for short buffers too: it loses little where they get none
};

/// The workload of an algorithm of the table; nullopt if it has no formula. `bytes`: of the buffer or the largest
/// block.
std::optional<Workload> work_of(const Layout& layout, Collective collective, std::string_view algorithm,
                                std::uint64_t bytes, std::uint64_t tile_bytes);

/// From how many bytes on the kernel copies a message between ranks that have a core each: there the one copy takes no
/// longer than both sides' copies through a ring, which go on at the same time. Within the two limits.
inline constexpr std::uint64_t least_pulled_from = std::uint64_t{48} << 10, most_pulled_from = std::uint64_t{128} << 10;
std::uint64_t pulled_from(const CostModel& costs);

/// Microseconds.
double price_us(const Workload& work, const Layout& layout, const CostModel& costs);

/// Microseconds, of an algorithm that has a formula.
std::optional<double> predicted_us(const Layout& layout, Collective collective, std::string_view algorithm,
                                   std::uint64_t bytes, std::uint64_t tile_bytes, const CostModel& costs);

}  // namespace tutti::algorithm
