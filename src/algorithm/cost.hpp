// Cost: the predicted time of an algorithm, by formula, before anything is planned.
//
// A Workload describes an algorithm by its demands on the machine; one function converts that to time with the
// machine's parameters (CostModel). The model is Hockney's latency and bandwidth, with LogGP's sender and receiver
// overheads, and one addition: ranks that share cores share their time, so the model counts the work of all ranks as
// well as that of the busiest. Pure functions. Sources: Hockney (1994); Alexandrov, Ionescu, Schauser, Scheiman,
// "LogGP" (1995); Thakur, Rabenseifner, Gropp (2005).
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::algorithm {

/// The demands of a collective on the machine. Bytes and messages are of all ranks together unless noted.
struct Workload {
    double exchanges = 0;  ///< messages in sequence: each waits for the one before
    double messages = 0;
    double bytes = 0;          ///< in messages
    double most_sends = 0;     ///< the most messages that one rank sends
    double most_receives = 0;  ///< messages the same rank receives
    double most_bytes = 0;     ///< the most bytes that one rank sends or receives
    double fresh = 0;          ///< the share of `bytes` that the sender has just written
    double relayed = 0;        ///< bytes sent in turn on the longest path; ranks forward only whole messages
    double most_local = 0;     ///< bytes that one rank copies, in addition to its messages
    double most_sums = 0;      ///< bytes of results that one rank combines of two inputs; more inputs count more
    double scratch = 0;        ///< bytes that arrive in the operation's own memory and are combined from there
    double scratch_ranks = 1;  ///< ranks that share the work on `scratch`
    double streamed = 0;       ///< bytes accessed again after the whole buffer has passed through the cache
    double signals = 0;        ///< publications in the staging area in sequence: each waits for the one before
    double copied = 0;         ///< bytes copied through the staging area
    double most_copied = 0;    ///< the most of `copied` for one rank
    double summed = 0;         ///< bytes of results combined from the staging area, counted as most_sums
    double most_summed = 0;    ///< the most of `summed` for one rank
    double crossing = 0;       ///< bytes in the staging area that cross from one rank to another
    double pulled = 0;         ///< bytes that the kernel copies from rank to rank, besides messages
    double most_pulled = 0;    ///< the most of `pulled` for one rank
    double calls = 0;          ///< system calls of one rank that copy from or to another rank's memory
    double meetings = 0;       ///< times that every rank waits until all others have reached the same point
    double held = 0;           ///< bytes of one rank's buffers and scratch: whether they stay in the cache
    double buffer = 0;     ///< bytes of one rank's smallest buffer that the kernel copies: whether it gets huge pages
    bool one_way = false;  ///< ranks that only send need not wait: calls overlap
    bool sends_first = false;           ///< ranks send before their other copies; peers may read meanwhile
    bool counts_on_huge_pages = false;  ///< also for short buffers: costs little if they get none
};

/// The reader's part of the time in which bytes cross from one core's cache into another's: all of it that counts where
/// the writer runs ahead.
inline constexpr double readers_part = 0.4;

/// The workload of an algorithm of the table; nullopt if it has no formula. `bytes`: of the buffer or the largest
/// block.
std::optional<Workload> work_of(const Layout& layout, Collective collective, std::string_view algorithm,
                                std::uint64_t bytes, std::uint64_t tile_bytes);

/// The least bytes of a message that the kernel copies between ranks that have a core each: from this size one copy
/// takes no longer than both sides' copies through a ring, which overlap. Within the two limits.
inline constexpr std::uint64_t least_pulled_from = std::uint64_t{48} << 10, most_pulled_from = std::uint64_t{128} << 10;
std::uint64_t pulled_from(const CostModel& costs);

/// What bytes cost a core, in microseconds a byte, and how many ranks share one. For the formulas, and for plays of
/// schedules (step_cost.hpp).
struct Rates {
    double crowd = 1;      ///< ranks of one core
    double beyond = 0;     ///< the share of bytes that the cache does not hold
    double memory_us = 0;  ///< of `beyond`, by the memory's bandwidth
    double copy_us = 0;
    double sum_us = 0;     ///< of a result of two inputs
    double cross_us = 0;   ///< from one core's cache into another's, in addition
    double signal_us = 0;  ///< until a rank has seen a publication; not a byte
    double slot_us = 0;    ///< the same, where one line has the publication and its bytes
};
/// `held_bytes`: of one rank's buffers and scratch.
Rates rates_of(double held_bytes, const Layout& layout, const CostModel& costs);

/// A byte that the kernel copies from another process. Long buffers have huge pages, which it copies more quickly;
/// short ones only where an algorithm loses little without them, and `counts_on_huge_pages`.
double kernel_byte_us(const Rates& rates, double buffer_bytes, bool counts_on_huge_pages, const CostModel& costs);

/// What a message costs beside its bytes, in microseconds.
struct MessageCosts {
    double send_us = 0, receive_us = 0;  ///< the work of the cores
    double latency_us = 0;               ///< the way between
    double pulling_us = 0;               ///< the part of receive_us for the system call that reads a long message
    bool ringed = false;                 ///< copied through a ring in shared memory
};
/// `inside`: between ranks that share memory; `pulls`: the kernel copies long messages between these.
MessageCosts message_costs(const Rates& rates, double bytes, bool inside, bool pulls, const CostModel& costs);

/// The predicted microseconds of a workload.
double price_us(const Workload& work, const Layout& layout, const CostModel& costs);

/// The predicted microseconds of an algorithm; nullopt if it has no formula.
std::optional<double> predicted_us(const Layout& layout, Collective collective, std::string_view algorithm,
                                   std::uint64_t bytes, std::uint64_t tile_bytes, const CostModel& costs);

}  // namespace tutti::algorithm
