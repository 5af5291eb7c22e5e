// Split: a long all_reduce, reduce_scatter or all_gather runs in chunks, together with the compute steps that may
// (ComputeOptions::splittable and elementwise) and that make what it reads or use all that it gives. While one chunk is
// on its way, the next is computed: a step, its collective and the step behind it become a pipeline. An element-wise
// step behind an all_reduce is its epilogue, chunk by chunk.
//
// A chunk of a reduce_scatter or all_gather is the same part of each rank's block, so the step on that side runs on as
// many ranges of rows as there are ranks. Of two ranks, in two chunks:
//
//     rows of x        steps                      collective
//     0 1 | 2 3        x[0] x[2], x[1] x[3]       reduce_scatter of (0, 2), of (1, 3)
//
// The chunks take the place of the whole, one after the other; overlap_collectives() puts each where it can run. A step
// between two collectives is cut once, so that its chunks need, and make, one chunk each.
//
// With k chunks a step of time C and a collective of time M, of which λ is latency, take about max(C, M) + min(C, M)/k
// + kλ; the best k is √(min(C, M)/λ).
#include "core/assert.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>

namespace tutti::graph {
namespace {

using Ends = std::vector<std::uint64_t>;  // of chunks, in rows or bytes; the last is that of the block

/// Where something is cut that consists of so many equal blocks: each at the same places.
struct Cut {
    std::uint64_t blocks = 1;
    Ends ends{};

    bool empty() const noexcept { return ends.empty(); }
    std::size_t chunks() const noexcept { return ends.size(); }
    std::uint64_t begin(std::size_t chunk) const noexcept {
        TUTTI_ASSERT(chunk < ends.size());
        return chunk == 0 ? 0 : ends[chunk - 1];
    }
    std::uint64_t size(std::size_t chunk) const noexcept { return ends[chunk] - begin(chunk); }
    /// Of the chunk, in block number `block`.
    std::uint64_t offset(std::size_t chunk, std::uint64_t block) const noexcept {
        TUTTI_ASSERT(block < blocks);
        return block * ends.back() + begin(chunk);
    }
};
Ends scaled(const Ends& ends, std::uint64_t times, std::uint64_t by = 1) {
    TUTTI_ASSERT(by > 0);
    Ends result;
    for (const std::uint64_t end : ends) result.push_back(end * times / by);
    return result;
}

/// One side of a collective: a range of equal blocks.
struct Side {
    Range whole;
    std::uint64_t blocks = 1;
};
/// Nothing: they do not adjoin, or are of different lengths.
std::optional<Side> side_of(const std::vector<Range>& ranges) {
    if (ranges.empty() || ranges.front().bytes == 0) return std::nullopt;
    Side side{ranges.front(), ranges.size()};
    side.whole.bytes = 0;
    for (const Range& r : ranges) {
        if (r.buffer != side.whole.buffer || r.offset != side.whole.end() || r.bytes != ranges.front().bytes)
            return std::nullopt;
        side.whole.bytes += r.bytes;
    }
    return side;
}

/// Chunks of one write go nowhere near what others of the step's chunks read.
bool may_be_cut(const Node& step) {
    if (!has_rows(step) || step.pieces.front().writes.empty()) return false;
    const Piece& p = step.pieces.front();
    for (std::size_t w = 0; w < p.writes.size(); ++w) {
        for (std::size_t r = 0; r < p.reads.size(); ++r) {
            if (overlap(p.writes[w], p.reads[r]) && (is_whole(step, r) || p.writes[w] != p.reads[r])) return false;
        }
        for (std::size_t other = 0; other < w; ++other) {
            if (overlap(p.writes[w], p.writes[other])) return false;
        }
    }
    return true;
}

class Split {
 public:
    Split(const Graph& graph, const Settings& settings)
        : graph_(graph), settings_(settings), cuts_(graph.nodes.size()), next_id_(next_id(graph)) {
        for (const Edge& e : graph.edges()) {
            if (e.hazard != Hazard::read_after_write) continue;
            makers_[e.to].push_back(e.from);
            users_[e.from].push_back(e.to);
        }
    }

    Result run() {
        Result result{graph_, {}};
        for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
            if (may_change(node(i))) consider(i);
        }
        if (text_.empty()) return result;
        result.graph.nodes.clear();
        for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) add_chunks(result.graph.nodes, i);
        result.text = std::move(text_);
        return result;
    }

 private:
    const Node& node(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
    Cut& cut_of(int i) { return cuts_[static_cast<std::size_t>(i)]; }

    bool may_change(const Node& n) const {
        return may_run_in_chunks(n.kind) && !n.opaque && !n.asynchronous && n.pieces.size() == 1 &&
               n.pieces.front().call >= 0 && chunks_keep_apart(n) && may_be_combined_otherwise(graph_, n) &&
               !settings_.keeps(graph_, n);
    }
    // No chunk writes what a later one reads: in place are the same bytes, or this rank's block of them.
    bool chunks_keep_apart(const Node& n) const {
        const Piece& p = n.pieces.front();
        const std::optional<Side> in = side_of(p.reads), out = side_of(p.writes);
        if (!in || !out) return false;
        if (n.kind == Kind::all_reduce) return p.reads == p.writes;
        const Side& all = n.kind == Kind::all_gather ? *out : *in;
        const Side& own = n.kind == Kind::all_gather ? *in : *out;
        const GroupInfo& group = group_of(n);
        if (all.blocks != group.ranks.size() || own.blocks != 1) return false;
        const std::vector<Range>& blocks = n.kind == Kind::all_gather ? p.writes : p.reads;
        return !overlap(all.whole, own.whole) || own.whole == blocks[static_cast<std::size_t>(group.rank)];
    }

    /// A step beside a collective that has a row for so many bytes of it.
    struct Neighbour {
        int position;
        std::uint64_t row_bytes;
    };
    std::vector<Neighbour> neighbours(const std::map<int, std::vector<int>>& edges, int i, const Side& side) const {
        std::vector<Neighbour> found;
        const auto at = edges.find(i);
        if (at == edges.end()) return found;
        for (const int other : at->second) {
            const Node& step = node(other);
            if (step.kind != Kind::compute || !may_be_cut(step)) continue;
            const Piece& p = step.pieces.front();
            const bool makes = other < i;
            const std::vector<Range>& list = makes ? p.writes : p.reads;
            for (std::size_t k = 0; k < list.size(); ++k) {
                if (list[k] != side.whole || (!makes && is_whole(step, k)) || step.rows % side.blocks != 0) continue;
                found.push_back({other, side.whole.bytes / step.rows});
                break;
            }
        }
        return found;
    }

    void consider(int i) {
        TUTTI_ASSERT(may_change(node(i)) && cut_of(i).empty());
        const Node& sum = node(i);
        const Side in = *side_of(sum.pieces.front().reads), out = *side_of(sum.pieces.front().writes);
        const std::vector<Neighbour> makers = neighbours(makers_, i, in);
        std::vector<Neighbour> users = neighbours(users_, i, out);
        std::erase_if(users, [&](const Neighbour& u) { return !cut_of(u.position).empty(); });
        // A maker that has been cut for another collective decides where this one is cut.
        std::optional<Ends> cut;
        for (const Neighbour& m : makers) {
            if (cut_of(m.position).empty()) continue;
            if (cut_of(m.position).blocks != in.blocks) return;
            cut = scaled(cut_of(m.position).ends, m.row_bytes);
        }
        if (cut && (cut->size() > most_chunks(sum) || !is_worth_it(sum, cut->size()))) return;
        if (!cut) cut = even_cut(sum, makers, users, std::max(in.blocks, out.blocks));
        if (!cut) return;
        std::erase_if(users, [&](const Neighbour& u) {
            return std::ranges::any_of(*cut, [&](std::uint64_t end) { return end % u.row_bytes != 0; });
        });
        if (makers.empty() && users.empty()) return;
        std::vector<std::string> steps;
        const auto cut_steps = [&](const std::vector<Neighbour>& list, std::uint64_t blocks) {
            for (const Neighbour& n : list) {
                if (cut_of(n.position).empty()) cut_of(n.position) = {blocks, scaled(*cut, 1, n.row_bytes)};
                steps.push_back(fmt::format("\"{}\"", node(n.position).name));
            }
        };
        cut_steps(makers, in.blocks);
        cut_steps(users, out.blocks);
        cut_of(i) = {1, *cut};
        text_.push_back(fmt::format("{} and {} run in {} chunks: while one is on its way, the next is computed",
                                    describe(graph_, sum), fmt::join(steps, ", "), cut->size()));
    }

    const GroupInfo& group_of(const Node& n) const { return graph_.groups[static_cast<std::size_t>(n.group)]; }
    double bytes_us(const Node& n) const { return std::max(predicted_us(graph_, n) - group_of(n).latency_us, 0.0); }

    bool is_worth_it(const Node& sum, std::size_t chunks) const {
        if (settings_.options.chunks) return true;
        return chunks > 1 &&
               group_of(sum).latency_us + bytes_us(sum) / static_cast<double>(chunks) >= settings_.options.overlap_us;
    }

    // In chunks of the same size, or nearly, that hold whole rows of all neighbours.
    std::optional<Ends> even_cut(const Node& sum, const std::vector<Neighbour>& makers,
                                 const std::vector<Neighbour>& users, std::uint64_t blocks) const {
        TUTTI_ASSERT(blocks > 0);
        const std::uint64_t block_bytes = sum.pieces.front().writes.front().bytes;
        std::uint64_t unit = size_of(sum.dtype);
        double computed_us = 0;
        for (const std::vector<Neighbour>* list : {&makers, &users}) {
            for (const Neighbour& n : *list) {
                unit = std::lcm(unit, n.row_bytes);
                computed_us += node(n.position).cost_us;
            }
        }
        if (block_bytes % unit != 0) return std::nullopt;
        const std::uint64_t units = block_bytes / unit;
        const auto chunks = static_cast<std::size_t>(std::min<std::uint64_t>(wanted(sum, computed_us, blocks), units));
        if (chunks < 2) return std::nullopt;
        Ends cut;
        for (std::size_t k = 1; k <= chunks; ++k) cut.push_back(units * k / chunks * unit);
        TUTTI_ASSERT(cut.back() == block_bytes && std::ranges::is_sorted(cut));
        return cut;
    }

    static constexpr std::size_t no_more_chunks = 16;
    static constexpr std::size_t no_more_steps = 64;  // of one: each is a call of its function

    std::size_t most_chunks(const Node& sum) const {
        const auto limit = settings_.most_chunks.find(settings_.ordinal_of(graph_, sum));
        return limit == settings_.most_chunks.end() ? ~std::size_t{0} : limit->second;
    }

    // `blocks`: for each chunk the steps on one side run so often.
    std::size_t wanted(const Node& sum, double computed_us, std::uint64_t blocks) const {
        TUTTI_ASSERT(blocks > 0);
        const std::size_t most = most_chunks(sum);
        if (settings_.options.chunks)
            return std::min(most, static_cast<std::size_t>(std::max(*settings_.options.chunks, 1)));
        const double together = std::min(computed_us, bytes_us(sum)), latency = group_of(sum).latency_us;
        if (together <= 0) return 1;
        const double best = latency > 0 ? std::sqrt(together / latency) : no_more_chunks;
        std::size_t chunks = std::min({no_more_chunks, std::bit_floor(no_more_steps / blocks),
                                       std::bit_floor(static_cast<std::size_t>(best * std::numbers::sqrt2))});
        while (chunks > 1 && (chunks > most || !is_worth_it(sum, chunks))) chunks /= 2;
        return chunks;
    }

    void add_chunks(std::vector<Node>& nodes, int i) {
        const Node& whole = node(i);
        const Cut& cut = cut_of(i);
        if (cut.empty()) return nodes.push_back(whole);
        std::size_t made = 0;
        for (std::size_t chunk = 0; chunk < cut.chunks(); ++chunk) {
            for (std::uint64_t block = 0; block < cut.blocks; ++block) {
                Node& part = nodes.emplace_back(whole);
                if (made++ > 0) part.id = next_id_++;
                if (whole.kind != Kind::compute) {
                    for (std::vector<Range>* list : {&part.pieces.front().reads, &part.pieces.front().writes}) {
                        for (Range& r : *list) r = {r.buffer, r.offset + cut.begin(chunk), cut.size(chunk)};
                    }
                    continue;
                }
                take_rows(part, cut.offset(chunk, block), cut.size(chunk));
                part.name = fmt::format("{} [{} of {}]", whole.name, made, cut.chunks() * cut.blocks);
            }
        }
    }
    static void take_rows(Node& step, std::uint64_t first, std::uint64_t count) {
        TUTTI_ASSERT(count > 0 && first + count <= step.rows);
        Piece& p = step.pieces.front();
        const std::uint64_t rows = step.rows;
        const auto take = [&](Range& r) {
            const std::uint64_t row_bytes = r.bytes / rows;
            r = {r.buffer, r.offset + first * row_bytes, count * row_bytes};
        };
        for (std::size_t r = 0; r < p.reads.size(); ++r) {
            if (!is_whole(step, r)) take(p.reads[r]);
        }
        std::ranges::for_each(p.writes, take);
        step.cost_us *= static_cast<double>(count) / static_cast<double>(rows);
        step.rows = count;
    }

    const Graph& graph_;
    const Settings& settings_;
    std::map<int, std::vector<int>> makers_, users_;  ///< by position: whose values it reads, and who reads its
    std::vector<Cut> cuts_;  ///< by position: of a step in rows, of a collective in bytes of a rank's block
    std::vector<std::string> text_;
    int next_id_;
};

}  // namespace

Result split_collectives(const Graph& graph, const Settings& settings) {
    return Split(graph, settings).run();
}

}  // namespace tutti::graph
