// The table of algorithms: their collectives, the requests that each can serve, and the sizes up to which each is
// preferred.
#pragma once

#include "algorithm/generators.hpp"
#include "algorithm/request.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

/// A request, and the ranks and the staging area as generators expect them.
struct Context {
    const Layout& layout;
    const Request& request;
    RankList all;
    Staging staging;

    Context(const Layout& l, const Request& q) : layout(l), request(q) {
        TUTTI_ASSERT(q.rank >= 0 && q.rank < l.size());
        all.ranks.resize(static_cast<std::size_t>(l.size()));
        std::iota(all.ranks.begin(), all.ranks.end(), 0);
        all.me = q.rank;
        staging = {l.slot_bytes / std::max<std::uint64_t>(1, q.element_bytes)};
        TUTTI_ASSERT(all.me >= 0 && all.size() == l.size());
    }
    bool shares() const { return layout.shared_memory && layout.one_host() && staging.slot >= 1; }
    std::uint64_t segment() const {
        return std::max<std::uint64_t>(1, layout.segment_bytes / std::max<std::uint64_t>(1, request.element_bytes));
    }
    /// Elements of a slice of the ring: two of the kernel's packets of 64 KB, with room for their headers. The bytes in
    /// flight then stay in the cache, and no message ends in a packet of a few bytes.
    std::uint64_t tile() const {
        return std::min<std::uint64_t>(
            segment(),
            std::max<std::uint64_t>(1, (std::uint64_t{126} << 10) / std::max<std::uint64_t>(1, request.element_bytes)));
    }
    Chunk output() const { return {Buffer::output, 0, request.count}; }
    Chunk input() const { return {request.in_place ? Buffer::output : Buffer::input, 0, request.count}; }
    /// Several ranks share memory on at least one of several hosts.
    bool hierarchical() const {
        if (!layout.shared_memory || layout.one_host() || staging.slot < 1) return false;
        std::vector<int> hosts = layout.host_of;
        std::ranges::sort(hosts);
        return std::ranges::adjacent_find(hosts) != hosts.end();
    }
    const HostTopology& topology() const {
        const bool rooted = request.collective == Collective::broadcast || request.collective == Collective::reduce;
        if (!topology_)
            topology_.emplace(layout.host_of, all.me, rooted ? request.root : 0);
        else if (topology_->inside.rank(topology_->inside.me) != all.me)
            topology_->move_to(layout.host_of, all.me);
        return *topology_;
    }
    /// Few enough bytes for leaders to send each other everything.
    bool exchange() const {
        return request.count <= staging.slot &&
               request.count * request.element_bytes * topology().hosts.size() <= 65536;
    }
    bool rails() const { return hierarchical() && topology().even; }

 private:
    mutable std::optional<HostTopology> topology_;  // of the rank that asked last
};

/// The count that the limits apply to: of the buffer, or of the largest block.
std::uint64_t decisive_count(const Request& request);

struct Algorithm {
    std::string_view name;
    Collective collective;
    bool single_rounding;  ///< combines each element in one step
    bool rank_order;       ///< combines in rank order
    bool (*serves)(const Context&);
    void (*generate)(Builder&, const Context&);
    std::uint64_t preferred_bytes;  ///< chosen up to this size (of the buffer or largest block); 0: never
    int preferred_ranks;            ///< chosen up to this many ranks
    std::string_view reason;
    bool quantises = false;  ///< serves quantised collectives, and only those
};

/// Rows of one collective are in order of preference.
std::span<const Algorithm> algorithms();

}  // namespace tutti::algorithm
