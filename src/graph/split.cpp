// Split: a long all_reduce runs in chunks, together with the compute steps that may (ComputeOptions::splittable and
// elementwise) and that make what it combines or use all that it gives. While one chunk is on its way, the next is
// computed: a step, its all_reduce and the step behind it become a pipeline. An element-wise step behind an all_reduce
// is its epilogue, chunk by chunk.
//
// The chunks take the place of the whole, one after the other; overlap_collectives() puts each where it can run. A step
// between two collectives is cut once, so that its chunks need, and make, one chunk each.
//
// With k chunks a step of time C and a collective of time M, of which λ is latency, take about max(C, M) + min(C, M)/k
// + kλ; the best k is √(min(C, M)/λ).
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

using Ends = std::vector<std::uint64_t>;  // of chunks, in rows or bytes; the last is that of the whole

Range chunk_of(const Range& whole, const Ends& ends, std::size_t i) {
    const std::uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return {whole.buffer, whole.offset + begin, ends[i] - begin};
}
Ends scaled(const Ends& ends, std::uint64_t times, std::uint64_t by = 1) {
    Ends result;
    for (const std::uint64_t end : ends) result.push_back(end * times / by);
    return result;
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
        : graph_(graph), settings_(settings), ends_(graph.nodes.size()), next_id_(next_id(graph)) {
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
        result.graph.changed = true;
        result.text = std::move(text_);
        return result;
    }

 private:
    const Node& node(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
    Ends& ends(int i) { return ends_[static_cast<std::size_t>(i)]; }

    bool may_change(const Node& n) const {
        return n.kind == Kind::all_reduce && !n.opaque && !n.asynchronous && n.pieces.size() == 1 &&
               n.pieces.front().reads == n.pieces.front().writes && n.pieces.front().call >= 0 &&
               may_be_combined_otherwise(graph_, n) && !settings_.keeps(graph_, n);
    }

    /// A step beside a collective that has a row for so many bytes of it.
    struct Neighbour {
        int position;
        std::uint64_t row_bytes;
    };
    std::vector<Neighbour> neighbours(const std::map<int, std::vector<int>>& edges, int i, const Range& whole) const {
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
                if (list[k] != whole || (!makes && is_whole(step, k))) continue;
                found.push_back({other, whole.bytes / step.rows});
                break;
            }
        }
        return found;
    }

    void consider(int i) {
        const Node& sum = node(i);
        const Range whole = sum.pieces.front().writes.front();
        const std::vector<Neighbour> makers = neighbours(makers_, i, whole);
        std::vector<Neighbour> users = neighbours(users_, i, whole);
        std::erase_if(users, [&](const Neighbour& u) { return !ends(u.position).empty(); });
        // A maker that has been cut for another collective decides where this one is cut.
        std::optional<Ends> cut;
        for (const Neighbour& m : makers) {
            if (!ends(m.position).empty()) cut = scaled(ends(m.position), m.row_bytes);
        }
        if (cut && (cut->size() > most_chunks(sum) || !is_worth_it(sum, cut->size()))) return;
        if (!cut) cut = even_cut(sum, makers, users);
        if (!cut) return;
        std::erase_if(users, [&](const Neighbour& u) {
            return std::ranges::any_of(*cut, [&](std::uint64_t end) { return end % u.row_bytes != 0; });
        });
        if (makers.empty() && users.empty()) return;
        std::vector<std::string> steps;
        for (const std::vector<Neighbour>* list : {&makers, &std::as_const(users)}) {
            for (const Neighbour& n : *list) {
                if (ends(n.position).empty()) ends(n.position) = scaled(*cut, 1, n.row_bytes);
                steps.push_back(fmt::format("\"{}\"", node(n.position).name));
            }
        }
        ends(i) = *cut;
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
                                 const std::vector<Neighbour>& users) const {
        const Range whole = sum.pieces.front().writes.front();
        std::uint64_t unit = size_of(sum.dtype);
        double computed_us = 0;
        for (const std::vector<Neighbour>* list : {&makers, &users}) {
            for (const Neighbour& n : *list) {
                unit = std::lcm(unit, n.row_bytes);
                computed_us += node(n.position).cost_us;
            }
        }
        if (whole.bytes % unit != 0) return std::nullopt;
        const std::uint64_t units = whole.bytes / unit;
        const auto chunks = static_cast<std::size_t>(std::min<std::uint64_t>(wanted(sum, computed_us), units));
        if (chunks < 2) return std::nullopt;
        Ends cut;
        for (std::size_t k = 1; k <= chunks; ++k) cut.push_back(units * k / chunks * unit);
        return cut;
    }

    static constexpr std::size_t no_more_chunks = 16;

    std::size_t most_chunks(const Node& sum) const {
        const auto limit = settings_.most_chunks.find(settings_.ordinal_of(graph_, sum));
        return limit == settings_.most_chunks.end() ? ~std::size_t{0} : limit->second;
    }

    std::size_t wanted(const Node& sum, double computed_us) const {
        const std::size_t most = most_chunks(sum);
        if (settings_.options.chunks)
            return std::min(most, static_cast<std::size_t>(std::max(*settings_.options.chunks, 1)));
        const double together = std::min(computed_us, bytes_us(sum)), latency = group_of(sum).latency_us;
        if (together <= 0) return 1;
        const double best = latency > 0 ? std::sqrt(together / latency) : no_more_chunks;
        std::size_t chunks =
            std::min(no_more_chunks, std::bit_floor(static_cast<std::size_t>(best * std::numbers::sqrt2)));
        while (chunks > 1 && (chunks > most || !is_worth_it(sum, chunks))) chunks /= 2;
        return chunks;
    }

    void add_chunks(std::vector<Node>& nodes, int i) {
        const Node& whole = node(i);
        const Ends& cut = ends(i);
        if (cut.empty()) return nodes.push_back(whole);
        for (std::size_t k = 0; k < cut.size(); ++k) {
            Node chunk = whole;
            if (k > 0) chunk.id = next_id_++;
            Piece& p = chunk.pieces.front();
            if (whole.kind == Kind::compute) {
                chunk.rows = cut[k] - (k == 0 ? 0 : cut[k - 1]);
                chunk.cost_us = whole.cost_us * static_cast<double>(chunk.rows) / static_cast<double>(whole.rows);
                chunk.name = fmt::format("{} [{} of {}]", whole.name, k + 1, cut.size());
            }
            const auto take = [&](Range& r) {
                const std::uint64_t of_each = whole.kind == Kind::compute ? r.bytes / whole.rows : 1;
                r = chunk_of(r, scaled(cut, of_each), k);
            };
            for (std::size_t r = 0; r < p.reads.size(); ++r) {
                if (!is_whole(whole, r)) take(p.reads[r]);
            }
            std::ranges::for_each(p.writes, take);
            nodes.push_back(std::move(chunk));
        }
    }

    const Graph& graph_;
    const Settings& settings_;
    std::map<int, std::vector<int>> makers_, users_;  ///< by position: whose values it reads, and who reads its
    std::vector<Ends> ends_;                          ///< by position: of a step in rows, of a collective in bytes
    std::vector<std::string> text_;
    int next_id_;
};

}  // namespace

Result split_collectives(const Graph& graph, const Settings& settings) {
    return Split(graph, settings).run();
}

}  // namespace tutti::graph
