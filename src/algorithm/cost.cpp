#include "algorithm/cost.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti::algorithm {
namespace {

constexpr auto fields = std::to_array<CostField>({
    {"cores", &CostModel::cores, 1, 65536, "cores of a host"},
    {"cache_kb", &CostModel::cache_kb, 64, 1 << 20, "cache of one core, KB"},
    {"line_us", &CostModel::line_us, 0.005, 100, "a cache line to another core, us"},
    {"yield_us", &CostModel::yield_us, 0.02, 5, "giving the core away and getting it back, us"},
    {"wake_us", &CostModel::wake_us, 0.2, 10000, "until a sleeping rank has seen a change, us"},
    {"cache_copy_gbps", &CostModel::cache_copy_gbps, 0.2, 1000, "copying inside the cache, GB/s"},
    {"memory_copy_gbps", &CostModel::memory_copy_gbps, 0.1, 1000, "copying more than the cache holds, GB/s"},
    {"combine_gbps", &CostModel::combine_gbps, 0.1, 1000, "combining two inputs inside the cache, GB/s of results"},
    {"share_gbps", &CostModel::share_gbps, 0.1, 1000, "from one core's cache into another's, GB/s"},
    {"stream_gbps", &CostModel::stream_gbps, 0.1, 1000, "the same by stores around the cache, GB/s"},
    {"stream_read_gbps", &CostModel::stream_read_gbps, 0.1, 1000, "the reader's part of that, GB/s"},
    {"pull_us", &CostModel::pull_us, 0.05, 100, "a call of the kernel that copies from another process, us"},
    {"pull_gbps", &CostModel::pull_gbps, 0.1, 1000, "the kernel copying from another process, GB/s"},
    {"pull_huge_gbps", &CostModel::pull_huge_gbps, 0.1, 1000, "the same from huge pages to huge pages, GB/s"},
    {"pull_memory_gbps", &CostModel::pull_memory_gbps, 0.1, 1000, "the same, of more than the cache holds, GB/s"},
    {"tcp_us", &CostModel::tcp_us, 0.5, 1e6, "a short message over TCP, one way, us"},
    {"tcp_send_us", &CostModel::tcp_send_us, 0.1, 10000, "a core busy with sending it, us"},
    {"tcp_receive_us", &CostModel::tcp_receive_us, 0.1, 10000, "a core busy with receiving it, us"},
    {"tcp_gbps", &CostModel::tcp_gbps, 0.01, 1000, "one TCP connection, one direction, GB/s"},
});

/// Memory in frequent use gets huge pages if it is that long, but for its ends, unless it begins with a huge page, as
/// tensors do. Shorter memory gets one if there is memory around it (HugePages): only algorithms that lose little
/// without it count on that.
constexpr double huge_pages_from = 1 << 20, huge_page_from = 128 << 10, ordinary_ends = 256 << 10;

/// What it takes to get hold of another process's memory, which is longer than of one's own, which was measured. The
/// rates hold as they are: they miss as much for that reason as they include of the call.
double call_us(const CostModel& costs) {
    return 1.4 * costs.pull_us;
}
/// To announce a message that the kernel copies, beside the call, and to confirm that it has been read.
double announced_us(const CostModel& costs) {
    return call_us(costs) + 6 * costs.line_us;
}
/// A byte that crosses from one core's cache into another's, more than inside of one: to write a line that another core
/// has read, and to read one that another has written, both take longer. Ranks use the quicker kind of store.
double cross_us(const CostModel& costs) {
    return std::max(0.0, 1 / std::max(costs.share_gbps, costs.stream_gbps) - 2 / costs.cache_copy_gbps) / 1e3;
}

}  // namespace

std::uint64_t pulled_from(const CostModel& costs) {
    constexpr double least = least_pulled_from, most = most_pulled_from;
    const double saved_us =
        1 / (costs.cache_copy_gbps * 1e3) + cross_us(costs) - 1 / (costs.pull_gbps * 1e3);  // a byte
    const double bytes = saved_us > 0 ? std::clamp(announced_us(costs) / saved_us, least, most) : most;
    return static_cast<std::uint64_t>(bytes);
}

std::span<const CostField> cost_fields() {
    return fields;
}

Rates rates_of(double held_bytes, const Layout& layout, const CostModel& costs) {
    const double ranks = layout.size(), cores = costs.cores * layout.machines;
    TUTTI_ASSERT(ranks >= 1 && cores > 0 && held_bytes >= 0);
    Rates rates;
    rates.crowd = std::max(1.0, ranks / cores);
    // Beyond the cache the memory's bandwidth counts, gradually.
    rates.beyond = std::clamp(held_bytes * rates.crowd / (2048 * costs.cache_kb), 0.0, 1.0);
    rates.memory_us = rates.beyond / (costs.memory_copy_gbps * 1e3);
    rates.copy_us = (1 - rates.beyond) / (costs.cache_copy_gbps * 1e3) + rates.memory_us;
    rates.sum_us = (1 - rates.beyond) / (costs.combine_gbps * 1e3) + rates.memory_us;
    rates.cross_us = cross_us(costs);
    rates.signal_us = rates.crowd > 1 ? rates.crowd * costs.yield_us : 2 * costs.line_us;
    rates.slot_us = rates.crowd > 1 ? rates.signal_us : costs.line_us;
    return rates;
}

double kernel_byte_us(const Rates& rates, double buffer_bytes, bool counts_on_huge_pages, const CostModel& costs) {
    TUTTI_ASSERT(buffer_bytes >= 0 && rates.beyond >= 0 && rates.beyond <= 1);
    const bool ordinary_pages = buffer_bytes < (counts_on_huge_pages ? huge_page_from : huge_pages_from);
    const double ordinary = ordinary_pages ? 1 : std::min(0.25, ordinary_ends / buffer_bytes);
    // The rates are of calls that copy 64 KB. From ordinary pages longer ones gain nothing.
    const double huge_us =
        std::max(0.5 / costs.pull_huge_gbps, 1 / costs.pull_huge_gbps - costs.pull_us / 131.072) / 1e3;
    const double from_us = ordinary / (costs.pull_gbps * 1e3) + (1 - ordinary) * huge_us;
    return from_us + rates.beyond * std::max(0.0, 1 / (costs.pull_memory_gbps * 1e3) - huge_us);
}

MessageCosts message_costs(const Rates& rates, double bytes, bool inside, bool pulls, const CostModel& costs) {
    TUTTI_ASSERT(bytes >= 0 && rates.crowd >= 1);
    if (!inside) {
        return {.send_us = costs.tcp_send_us,
                .receive_us = costs.tcp_receive_us,
                .latency_us = std::max(0.0, costs.tcp_us - costs.tcp_send_us - costs.tcp_receive_us)};
    }
    // A rank that shares a core with others seldom runs when a message comes: it sees it when its turn comes again.
    const double absent_us = rates.crowd > 1 ? 5 * costs.yield_us * rates.crowd : 0;
    // A long message is announced, read with a system call, and confirmed. Ranks with cores of their own copy much
    // longer ones through a ring; lines that the sender has written long before cost less.
    const bool ringed = rates.crowd <= 1 && bytes < static_cast<double>(pulled_from(costs));
    const double pulling_us = pulls && bytes >= 16384 && !ringed ? announced_us(costs) : 0;
    const double line_us = 3 * costs.line_us;
    return {.send_us = line_us + absent_us,
            .receive_us = line_us + absent_us + pulling_us,
            .latency_us = line_us,
            .pulling_us = pulling_us,
            .ringed = ringed};
}

double price_us(const Workload& work, const Layout& layout, const CostModel& costs) {
    const double ranks = layout.size();
    TUTTI_ASSERT(ranks >= 1);
    const double cores = costs.cores * layout.machines;
    TUTTI_ASSERT(cores > 0);
    const Rates rates = rates_of(work.held, layout, costs);
    const double crowd = rates.crowd, beyond = rates.beyond;
    TUTTI_ASSERT(crowd >= 1 && beyond >= 0 && beyond <= 1);
    const double memory_us = rates.memory_us, copy_us = rates.copy_us, sum_us = rates.sum_us;

    // Bytes touched again after a whole buffer has passed seldom leave the cache before there are many more of them.
    const double far_us =
        std::clamp(work.held * crowd / (8192 * costs.cache_kb), 0.0, 1.0) / (costs.memory_copy_gbps * 1e3);

    const bool inside = layout.shared_memory && layout.one_host();
    const bool pulled = inside && layout.pulls;
    const double message_bytes = work.messages > 0 ? work.bytes / work.messages : 0;
    const MessageCosts message = message_costs(rates, message_bytes, inside, pulled, costs);
    const auto [send_us, receive_us, latency_us, pulling_us, ringed] = message;
    const double kernel_us = kernel_byte_us(rates, work.buffer, work.counts_on_huge_pages, costs);
    const double pull_us = kernel_us * crowd;
    const double crossing_us = rates.cross_us;
    // Such bytes lie in the cache of the rank that sends them.
    const double fresh_us = work.fresh * (1 - beyond) * crossing_us;
    const double end_us = ringed   ? copy_us + (work.one_way ? readers_part : 1) * crossing_us
                          : pulled ? pull_us + fresh_us
                          : inside ? copy_us
                                   : 1 / (costs.tcp_gbps * 1e3);
    const double ends = pulled && !ringed ? 1 : 2;

    // Others read the messages of a rank that sends first, while it copies.
    const bool read_meanwhile = work.sends_first && pulled && !ringed;
    const double local_us = work.most_local * copy_us;
    // A rank whose messages are read where they lie does not copy them, but waits until they have been read.
    const bool relays = work.relayed > 0 && pulled && !ringed;
    const double busiest =
        (read_meanwhile ? std::max(work.most_sends * send_us + local_us, receive_us + message_bytes * end_us)
         : relays       ? work.exchanges * (send_us + receive_us) + work.relayed * kernel_us
                  : work.most_sends * send_us + work.most_receives * receive_us + work.most_bytes * end_us + local_us) +
        work.most_sums * sum_us;
    const double together = (work.messages * (send_us + receive_us) +
                             (read_meanwhile ? work.bytes * kernel_us + local_us : ends * work.bytes * end_us)) /
                            std::min(ranks, cores);
    const double again = work.scratch * memory_us / std::min(work.scratch_ranks, cores) +
                         work.streamed * far_us / std::min(ranks, cores);
    const double most_staged = work.most_copied * copy_us + work.most_summed * sum_us + work.most_pulled * kernel_us;
    const double all_staged = work.copied * copy_us + work.summed * sum_us + work.pulled * kernel_us;
    const double staged = std::max(most_staged, all_staged / std::min(ranks, cores)) + work.crossing * crossing_us;
    const double signal_us = rates.signal_us;
    // A rank that waits for no other begins its next call: depth is hidden in part.
    // With a core of its own a rank that waits for the others loses a moment; without, they have to be woken.
    const double meeting_us = crowd > 1 ? costs.wake_us : 0;
    // The first call of an operation finds its data in no cache.
    const double first_us = work.calls > 0 || pulling_us > 0 ? 0.8 * costs.pull_us : 0;
    const double waiting = (work.exchanges * latency_us + work.signals * signal_us) * (work.one_way ? 0.25 : 1) +
                           work.meetings * meeting_us + work.calls * (call_us(costs) + 2 * costs.line_us) + first_us;
    TUTTI_ASSERT(busiest >= 0 && together >= 0 && staged >= 0 && waiting >= 0);
    return std::max(busiest, together) + again + staged + waiting;
}

std::optional<double> predicted_us(const Layout& layout, Collective collective, std::string_view algorithm,
                                   std::uint64_t bytes, std::uint64_t tile_bytes, const CostModel& costs) {
    TUTTI_ASSERT(layout.size() >= 1 && tile_bytes >= 1);
    const auto work = work_of(layout, collective, algorithm, bytes, tile_bytes);
    return work ? std::optional(price_us(*work, layout, costs)) : std::nullopt;
}

}  // namespace tutti::algorithm
