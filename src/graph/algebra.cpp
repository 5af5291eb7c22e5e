// Algebra: collectives that give what is there already, and pairs that are one.
//
//   broadcast of values that are equal on all ranks of its group             nothing
//   all_reduce by min, max, band or bor of values that are equal there       nothing
//   reduce_scatter by one of these of values that are equal there            a copy of the own block
//   reduce_scatter, then all_gather of the blocks                            all_reduce
//   reduce, then broadcast of the result by the same root                    all_reduce
//   all_reduce of which each rank uses its own block alone                   reduce_scatter
//
// Equal on all ranks are the results of an all_reduce, all_gather or broadcast of the same group that nobody has
// written to since. The last three rules may round sums otherwise, so they are not used on sums of floating-point
// numbers under Determinism::run_to_run. A rank uses its own block alone where the others are temporary, or
// overwritten, and nobody reads them before. An all_reduce has each rank wait for the others where a reduce has only
// the root wait, so with Settings::in_place nothing but collectives of the group lies between a reduce and its
// broadcast. The proof compares symbols of all ranks afterwards: where a program is different on another rank, so that
// values are not equal there, optimise() goes without these rules.
#include "core/assert.hpp"
#include "core/interval_map.hpp"
#include "graph/liveness.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tutti::graph {
namespace {

/// Bytes that are equal on all ranks of a group, at the same place of one result.
struct Equal {
    int group = -1;
    int result = -1;
    std::uint64_t at = 0;
    Equal from(std::uint64_t bytes) const { return {group, result, at + bytes}; }
};

/// The ranges as one, where they lie one after the other.
std::optional<Range> in_one_piece(const std::vector<Range>& ranges) {
    std::optional<Range> all;
    for (const Range& r : ranges) {
        if (r.bytes == 0) continue;
        if (!all)
            all = r;
        else if (r.buffer == all->buffer && r.offset == all->end())
            all->bytes += r.bytes;
        else
            return std::nullopt;
    }
    return all;
}

class Algebra {
 public:
    Algebra(const Graph& graph, const Settings& settings)
        : graph_(graph),
          settings_(settings),
          equal_(graph.buffers.size()),
          gone_(graph.nodes.size()),
          needs_own_block_alone_(graph.nodes.size()),
          next_id_(next_id(graph)) {
        LiveBytes live(graph);
        for (std::size_t i = graph.nodes.size(); i-- > 0;) {
            const Node& n = graph.nodes[i];
            if (may_change(n) && n.kind == Kind::all_reduce) needs_own_block_alone_[i] = uses_own_block_alone(n, live);
            live.step_back_over(n);
        }
    }

    Result run() {
        Result result{graph_, {}};
        result.graph.nodes.clear();
        for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
            if (gone_[i]) continue;
            for (Node& made : rewritten(i)) {
                note(made);
                result.graph.nodes.push_back(std::move(made));
            }
        }
        result.text = std::move(text_);
        return result;
    }

 private:
    bool may_change(const Node& n) const {
        return is_collective(n.kind) && !n.opaque && !n.asynchronous && n.pieces.size() == 1 &&
               !settings_.keeps(graph_, n);
    }

    std::vector<Node> rewritten(std::size_t i) {
        const Node& node = graph_.nodes[i];
        if (!may_change(node)) return {node};
        const Piece& piece = node.pieces.front();
        if (node.kind == Kind::broadcast && are_equal(piece.reads.empty() ? piece.writes : piece.reads, node.group))
            return say(fmt::format("left out {}: all ranks have its values", describe(graph_, node)), {});
        if (node.kind == Kind::all_reduce && is_idempotent(node.op) && piece.reads == piece.writes &&
            are_equal(piece.reads, node.group))
            return say(fmt::format("left out {}: the {} of equal values is that value", describe(graph_, node),
                                   tutti::to_string(node.op)),
                       {});
        if (node.kind == Kind::reduce_scatter && is_idempotent(node.op) && are_equal(piece.reads, node.group))
            return own_block(node);
        if (node.kind == Kind::reduce_scatter) {
            if (const auto gather = gather_of(i)) return as_all_reduce(node, *gather);
        }
        if (node.kind == Kind::reduce) {
            if (const auto broadcast = broadcast_of(i)) return with_broadcast(node, *broadcast);
        }
        if (needs_own_block_alone_[i]) return as_reduce_scatter(node);
        return {node};
    }

    std::vector<Node> say(std::string text, std::vector<Node> nodes) {
        text_.push_back(std::move(text));
        return nodes;
    }

    std::vector<Node> own_block(const Node& node) {
        const auto me = static_cast<std::size_t>(graph_.groups[static_cast<std::size_t>(node.group)].rank);
        const Range from = node.pieces.front().reads[me], to = node.pieces.front().writes.front();
        std::string text = fmt::format("{} became a copy of the own block: the {} of equal values is that value",
                                       describe(graph_, node), tutti::to_string(node.op));
        if (from == to || overlap(from, to)) return from == to ? say(std::move(text), {}) : std::vector<Node>{node};
        return say(std::move(text), {copy_of(from, to, node.site)});
    }

    Node copy_of(const Range& from, const Range& to, const std::string& site) {
        TUTTI_ASSERT(from.bytes == to.bytes && !overlap(from, to));
        Node copy;
        copy.kind = Kind::copy;
        copy.id = next_id_++;
        copy.site = site;
        copy.pieces.push_back({{from}, {to}, 0, -1});
        return copy;
    }

    /// The all_gather of what node i scatters, if the two are one all_reduce at the place of i.
    std::optional<std::size_t> gather_of(std::size_t i) const {
        TUTTI_ASSERT(graph_.nodes[i].kind == Kind::reduce_scatter);
        const Node& scatter = graph_.nodes[i];
        const Piece& parts = scatter.pieces.front();
        const Range own = parts.writes.front();
        const std::optional<Range> source = in_one_piece(parts.reads);
        if (!source || !may_be_combined_otherwise(graph_, scatter)) return std::nullopt;
        for (std::size_t j = i + 1; j < graph_.nodes.size(); ++j) {
            const Node& node = graph_.nodes[j];
            const bool takes_it = node.kind == Kind::all_gather && node.group == scatter.group && !gone_[j] &&
                                  may_change(node) && node.dtype == scatter.dtype &&
                                  node.pieces.front().reads.front() == own;
            if (takes_it) return fits(scatter, i, *source, j) ? std::optional(j) : std::nullopt;
            const auto touches_own = [&](const Range& r) { return overlap(r, own); };
            if (std::ranges::any_of(writes_of(node), touches_own)) return std::nullopt;
        }
        return std::nullopt;
    }

    bool fits(const Node& scatter, std::size_t i, const Range& source, std::size_t j) const {
        TUTTI_ASSERT(i < j && j < graph_.nodes.size());
        const Piece &parts = scatter.pieces.front(), &gathered = graph_.nodes[j].pieces.front();
        const std::optional<Range> whole = in_one_piece(gathered.writes);
        if (!whole || whole->bytes != source.bytes) return false;
        const auto me = static_cast<std::size_t>(graph_.groups[static_cast<std::size_t>(scatter.group)].rank);
        for (std::size_t r = 0; r < parts.reads.size(); ++r) {
            if (parts.reads[r].bytes != gathered.writes[r].bytes) return false;
        }
        const Range own = parts.writes.front();
        if (own != gathered.writes[me] && overlap(own, *whole)) return false;
        if (source != *whole && overlap(source, *whole)) return false;
        // The result is written at the place of the first: nobody in between may need, or write, the bytes there.
        for (std::size_t k = i + 1; k < j; ++k) {
            const auto touches = [&](const Range& r) { return overlap(r, *whole); };
            const Node& between = graph_.nodes[k];
            if (std::ranges::any_of(reads_of(between), touches) || std::ranges::any_of(writes_of(between), touches)) {
                const bool only_reads_own =
                    own == gathered.writes[me] && between.kind != Kind::wait &&
                    std::ranges::none_of(writes_of(between), touches) &&
                    std::ranges::all_of(reads_of(between), [&](const Range& r) {
                        return !overlap(r, *whole) ||
                               (r.buffer == own.buffer && r.offset >= own.offset && r.end() <= own.end());
                    });
                if (!only_reads_own) return false;
            }
        }
        return true;
    }

    std::vector<Node> as_all_reduce(const Node& scatter, std::size_t j) {
        TUTTI_ASSERT(graph_.nodes[j].kind == Kind::all_gather && !gone_[j]);
        const Node& gather = graph_.nodes[j];
        gone_[j] = true;
        const Piece &parts = scatter.pieces.front(), &gathered = gather.pieces.front();
        Node sum = scatter;
        sum.kind = Kind::all_reduce;
        sum.site = scatter.site.empty() ? gather.site : scatter.site + " and " + gather.site;
        sum.pieces = {{{*in_one_piece(parts.reads)}, {*in_one_piece(gathered.writes)}, parts.fingerprint, parts.call}};
        const auto me = static_cast<std::size_t>(graph_.groups[static_cast<std::size_t>(scatter.group)].rank);
        std::vector<Node> made{sum};
        if (parts.writes.front() != gathered.writes[me])
            made.push_back(copy_of(gathered.writes[me], parts.writes.front(), scatter.site));
        return say(fmt::format("{} and {} became one all_reduce", describe(graph_, scatter), describe(graph_, gather)),
                   std::move(made));
    }

    /// The broadcast of what node i reduces, if nobody touches that in between.
    std::optional<std::size_t> broadcast_of(std::size_t i) const {
        TUTTI_ASSERT(graph_.nodes[i].kind == Kind::reduce);
        const Node& reduce = graph_.nodes[i];
        const Range whole = reduce.pieces.front().reads.front();
        if (whole.bytes == 0 || !may_be_combined_otherwise(graph_, reduce)) return std::nullopt;
        if (std::ranges::any_of(writes_of(reduce), [&](const Range& r) { return r != whole; })) return std::nullopt;
        for (std::size_t j = i + 1; j < graph_.nodes.size(); ++j) {
            const Node& node = graph_.nodes[j];
            const bool is_elsewhere = is_communication(node.kind) && node.group != reduce.group;
            if (settings_.in_place && (is_elsewhere || is_message(node.kind) || node.kind == Kind::wait))
                return std::nullopt;
            std::vector<Range> touched = reads_of(node);
            for (const Range& r : writes_of(node)) touched.push_back(r);
            if (std::ranges::none_of(touched, [&](const Range& r) { return overlap(r, whole); })) continue;
            const bool is_it = node.kind == Kind::broadcast && node.group == reduce.group && node.root == reduce.root &&
                               node.dtype == reduce.dtype && may_change(node) && touched == std::vector{whole};
            return is_it ? std::optional(j) : std::nullopt;
        }
        return std::nullopt;
    }

    std::vector<Node> with_broadcast(const Node& reduce, std::size_t j) {
        TUTTI_ASSERT(graph_.nodes[j].kind == Kind::broadcast && !gone_[j]);
        const Node& broadcast = graph_.nodes[j];
        gone_[j] = true;
        Node sum = reduce;
        sum.kind = Kind::all_reduce;
        sum.root = -1;
        sum.site = reduce.site.empty() ? broadcast.site : reduce.site + " and " + broadcast.site;
        sum.pieces.front().writes = sum.pieces.front().reads;
        return say(
            fmt::format("{} and {} became one all_reduce", describe(graph_, reduce), describe(graph_, broadcast)),
            {sum});
    }

    std::uint64_t ranks_of(const Node& node) const {
        return graph_.groups[static_cast<std::size_t>(node.group)].ranks.size();
    }
    Range own_block_of(const Node& node) const {
        TUTTI_ASSERT(node.pieces.front().writes.front().bytes % ranks_of(node) == 0);
        const Range whole = node.pieces.front().writes.front();
        const std::uint64_t each = whole.bytes / ranks_of(node);
        const auto me = static_cast<std::uint64_t>(graph_.groups[static_cast<std::size_t>(node.group)].rank);
        return {whole.buffer, whole.offset + me * each, each};
    }
    /// `live`: the bytes that nodes behind it, or the program, need.
    bool uses_own_block_alone(const Node& node, const LiveBytes& live) const {
        const Piece& p = node.pieces.front();
        const Range whole = p.writes.front();
        if (ranks_of(node) < 2 || whole.bytes == 0 || whole.bytes % (ranks_of(node) * size_of(node.dtype)) != 0 ||
            p.reads != p.writes || !may_be_combined_otherwise(graph_, node))
            return false;
        const Range own = own_block_of(node);
        return live.any(own) && !live.any({whole.buffer, whole.offset, own.offset - whole.offset}) &&
               !live.any({whole.buffer, own.end(), whole.end() - own.end()});
    }

    std::vector<Node> as_reduce_scatter(const Node& node) {
        TUTTI_ASSERT(node.kind == Kind::all_reduce && ranks_of(node) > 1);
        Node scatter = node;
        scatter.kind = Kind::reduce_scatter;
        Piece& p = scatter.pieces.front();
        const Range whole = p.reads.front(), own = own_block_of(node);
        p.reads.clear();
        for (std::uint64_t r = 0; r < ranks_of(node); ++r)
            p.reads.push_back({whole.buffer, whole.offset + r * own.bytes, own.bytes});
        p.writes = {own};
        return say(
            fmt::format("{} became a reduce_scatter: each rank uses its own block alone", describe(graph_, node)),
            {scatter});
    }

    /// Whether the ranges, one after the other, are one result that all ranks of the group have.
    bool are_equal(const std::vector<Range>& ranges, int group) const {
        std::uint64_t bytes = 0, known = 0, at = 0;
        int result = -1;
        bool same = true;
        for (const Range& r : ranges) {
            if (r.bytes == 0) continue;
            std::uint64_t expected = r.offset;
            equal_[r.buffer].for_each(r.offset, r.end(), [&](std::uint64_t begin, std::uint64_t end, const Equal& e) {
                same =
                    same && e.group == group && begin == expected && (result < 0 || (e.result == result && e.at == at));
                result = e.result;
                at = e.at + (end - begin);
                expected = end;
                known += end - begin;
            });
            bytes += r.bytes;
        }
        return same && bytes > 0 && known == bytes;
    }

    void note(const Node& node) {
        if (node.kind == Kind::wait) return;
        for (const Range& r : writes_of(node)) equal_[r.buffer].erase(r.offset, r.end());
        const bool equal =
            node.kind == Kind::all_reduce || node.kind == Kind::all_gather || node.kind == Kind::broadcast;
        if (!equal || node.opaque || node.asynchronous) return;
        for (const Piece& p : node.pieces) {
            ++results_;
            std::uint64_t at = 0;
            for (const Range& r : p.writes.empty() ? p.reads : p.writes) {
                equal_[r.buffer].set(r.offset, r.end(), {node.group, results_, at});
                at += r.bytes;
            }
        }
    }

    const Graph& graph_;
    const Settings& settings_;
    std::vector<IntervalMap<Equal>> equal_;
    std::vector<bool> gone_;
    std::vector<bool> needs_own_block_alone_;
    std::vector<std::string> text_;
    int results_ = 0;
    int next_id_;
};

}  // namespace

Result apply_algebra(const Graph& graph, const Settings& settings) {
    return Algebra(graph, settings).run();
}

}  // namespace tutti::graph
