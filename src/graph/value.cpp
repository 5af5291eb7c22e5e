#include "graph/value.hpp"

#include "core/assert.hpp"
#include "core/hash.hpp"
#include "core/interval_map.hpp"
#include "core/split_mix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::graph {
namespace {

std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
    return fnv1a(text, fnv1a_word(hash, text.size()));
}
std::uint64_t hash_ranges(std::uint64_t hash, const std::vector<Range>& ranges) {
    hash = fnv1a_word(hash, ranges.size());
    for (const Range& r : ranges) hash = fnv1a_word(fnv1a_word(fnv1a_word(hash, r.buffer), r.offset), r.bytes);
    return hash;
}
std::uint64_t word(int value) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}
std::uint64_t hash_node(std::uint64_t hash, const Node& n) {
    for (const int value :
         {static_cast<int>(n.kind), n.id, n.of, n.group, static_cast<int>(n.dtype), static_cast<int>(n.op), n.root,
          n.peer, n.tag, n.asynchronous ? 1 : 0, n.opaque ? 1 : 0, n.fixed ? 1 : 0})
        hash = mix_bits(fnv1a_word(hash, word(value)));  // multiplication alone never moves high bits down
    hash = mix_bits(fnv1a_word(hash, n.rows));
    for (const std::uint32_t read : n.whole) hash = mix_bits(fnv1a_word(hash, read));
    hash = hash_text(hash, n.name);
    for (const Piece& p : n.pieces) {
        hash = hash_ranges(hash_ranges(hash, p.reads), p.writes);
        hash = mix_bits(fnv1a_word(fnv1a_word(hash, p.fingerprint), word(p.call)));
    }
    return hash;
}

// Who wrote a stretch of bytes last, and who has read that since.
struct Use {
    int writer = -1;
    std::vector<int> readers;
    Use from(std::uint64_t /*bytes*/) const { return *this; }
};

void add_unless_there(std::vector<Edge>& edges, std::size_t first, Edge edge) {
    if (edge.from < 0 || edge.from == edge.to) return;
    const auto same = [&](const Edge& e) { return e.from == edge.from; };
    if (std::find_if(edges.begin() + static_cast<std::ptrdiff_t>(first), edges.end(), same) == edges.end())
        edges.push_back(edge);
}

void add(std::vector<Range>& to, const std::vector<Range>& ranges) {
    for (const Range& r : ranges) {
        if (r.bytes > 0) to.push_back(r);
    }
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
    static constexpr std::string_view others[] = {"send", "receive", "compute", "copy", "wait"};
    if (is_collective(kind)) return tutti::to_string(static_cast<Collective>(kind));
    return others[static_cast<std::size_t>(kind) - static_cast<std::size_t>(Kind::send)];
}

bool overlap(const Range& a, const Range& b) noexcept {
    return a.buffer == b.buffer && a.offset < b.end() && b.offset < a.end();
}

std::vector<Range> reads_of(const Node& node) {
    std::vector<Range> all;
    for (const Piece& p : node.pieces) {
        add(all, p.reads);
        if (node.opaque) add(all, p.writes);
    }
    return all;
}
std::vector<Range> writes_of(const Node& node) {
    std::vector<Range> all;
    for (const Piece& p : node.pieces) add(all, p.writes);
    return all;
}

std::uint64_t bytes_of(const Node& node) {
    std::uint64_t read = 0, written = 0;
    for (const Piece& p : node.pieces) {
        for (const Range& r : p.reads) read += r.bytes;
        for (const Range& r : p.writes) written += r.bytes;
    }
    return std::max(read, written);
}

std::vector<Edge> Graph::edges() const {
    std::vector<IntervalMap<Use>> uses(buffers.size());
    std::map<int, int> position;  // of ids
    std::vector<Edge> edges;
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
        const std::size_t first = edges.size();
        const Node* node = &nodes[static_cast<std::size_t>(i)];
        position[node->id] = i;
        if (node->kind == Kind::wait) {
            const auto start = position.find(node->of);
            if (start == position.end()) continue;  // the proof says so
            edges.push_back({start->second, i, Hazard::wait});
            node = &nodes[static_cast<std::size_t>(start->second)];
        }
        for (const Range& r : reads_of(*node)) {
            uses[r.buffer].for_each(r.offset, r.end(), [&](auto, auto, const Use& use) {
                add_unless_there(edges, first, {use.writer, i, Hazard::read_after_write});
            });
        }
        const std::vector<Range> writes = writes_of(*node);
        for (const Range& r : writes) {
            uses[r.buffer].for_each(r.offset, r.end(), [&](auto, auto, const Use& use) {
                for (const int reader : use.readers)
                    add_unless_there(edges, first, {reader, i, Hazard::write_after_read});
                add_unless_there(edges, first, {use.writer, i, Hazard::write_after_write});
            });
        }
        for (const Range& r : reads_of(*node)) {
            uses[r.buffer].update(r.offset, r.end(), {}, [&](Use& use) {
                if (use.readers.empty() || use.readers.back() != i) use.readers.push_back(i);
            });
        }
        for (const Range& r : writes) uses[r.buffer].set(r.offset, r.end(), {i, {}});
    }
    return edges;
}

std::vector<std::vector<int>> predecessors(const Graph& graph) {
    std::vector<std::vector<int>> before(graph.nodes.size());
    for (const Edge& e : graph.edges()) before[static_cast<std::size_t>(e.to)].push_back(e.from);
    return before;
}

std::uint64_t Graph::hash() const {
    std::uint64_t hash = fnv1a_basis;
    for (const GroupInfo& g : groups) {
        hash = fnv1a_word(hash_text(hash, g.name), word(g.rank));
        for (const int rank : g.ranks) hash = mix_bits(fnv1a_word(hash, word(rank)));
    }
    for (const std::uint64_t bytes : buffers) hash = mix_bits(fnv1a_word(hash, bytes));
    hash = mix_bits(hash_ranges(hash, temporaries));
    for (const Node& n : nodes) hash = hash_node(hash, n);
    std::uint64_t changed_groups = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].changed) changed_groups = fnv1a_word(changed_groups, g + 1);
    }
    return mix_bits(fnv1a_word(fnv1a_word(hash, word(arena)), changed_groups));
}

bool Graph::changed() const noexcept {
    return std::ranges::any_of(groups, &GroupInfo::changed);
}

std::uint64_t Graph::collectives_hash(std::size_t group) const {
    // The order in which the program called them tells pieces of one shape apart.
    std::vector<int> program;
    for (const Node& n : nodes) {
        if (!is_collective(n.kind) || n.group != static_cast<int>(group)) continue;
        for (const Piece& p : n.pieces) program.push_back(p.call);
    }
    std::ranges::sort(program);
    std::uint64_t hash = fnv1a_basis;
    for (const Node& n : nodes) {
        if (!is_collective(n.kind) || n.group != static_cast<int>(group)) continue;
        for (const int value : {static_cast<int>(n.kind), static_cast<int>(n.dtype), static_cast<int>(n.op), n.root,
                                static_cast<int>(n.pieces.size())})
            hash = mix_bits(fnv1a_word(hash, word(value)));  // multiplication alone never moves high bits down
        for (const Piece& p : n.pieces) {
            const auto ordinal = std::ranges::lower_bound(program, p.call) - program.begin();
            hash = mix_bits(fnv1a_word(fnv1a_word(hash, p.fingerprint), static_cast<std::uint64_t>(ordinal)));
        }
    }
    return hash;
}

bool operator==(const Graph& a, const Graph& b) {
    const auto same_node = [](const Node& x, const Node& y) {
        return x.kind == y.kind && x.id == y.id && x.of == y.of && x.group == y.group && x.dtype == y.dtype &&
               x.op == y.op && x.root == y.root && x.peer == y.peer && x.tag == y.tag &&
               x.asynchronous == y.asynchronous && x.opaque == y.opaque && x.fixed == y.fixed && x.rows == y.rows &&
               x.whole == y.whole && x.name == y.name && x.pieces == y.pieces;
    };
    return a.groups == b.groups && a.buffers == b.buffers && a.temporaries == b.temporaries && a.arena == b.arena &&
           std::ranges::equal(a.nodes, b.nodes, same_node);
}

int rank_in_world(const Graph& graph, int otherwise) {
    for (const GroupInfo& g : graph.groups) {
        if (g.rank >= 0 && g.rank < static_cast<int>(g.ranks.size())) return g.ranks[static_cast<std::size_t>(g.rank)];
    }
    return otherwise;
}

std::vector<int> ranks_in_world(const std::vector<Graph>& graphs) {
    constexpr int unknown = -1;
    std::vector<int> ranks;
    std::set<int> named, taken;
    for (const Graph& g : graphs) {
        taken.insert(ranks.emplace_back(rank_in_world(g, unknown)));
        for (const GroupInfo& group : g.groups) named.insert(group.ranks.begin(), group.ranks.end());
    }
    std::erase_if(named, [&](int rank) { return taken.contains(rank); });
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (ranks[r] != unknown) continue;
        int place = static_cast<int>(r);
        if (!named.empty() && !named.contains(place)) place = *named.begin();
        while (!taken.insert(place).second) ++place;
        named.erase(place);
        ranks[r] = place;
    }
    return ranks;
}

std::string describe(const Graph& graph, const Node& node) {
    std::string text(to_string(node.kind));
    if (node.kind == Kind::compute) text = fmt::format("compute step \"{}\"", node.name);
    if (node.kind == Kind::wait) {
        const auto of = std::ranges::find(graph.nodes, node.of, &Node::id);
        return of == graph.nodes.end() ? "wait for nothing" : "wait for " + describe(graph, *of);
    }
    if (is_communication(node.kind) && node.kind != Kind::barrier) {
        text += fmt::format(" of {} × {}", tutti::to_string(node.dtype), bytes_of(node) / size_of(node.dtype));
        if (node.pieces.size() > 1) text += fmt::format(" in {} pieces", node.pieces.size());
        if (combines(node.kind)) text += fmt::format(", {}", tutti::to_string(node.op));
    }
    if (node.root >= 0) text += fmt::format(", root {}", node.root);
    if (node.kind == Kind::send) text += fmt::format(" to rank {}", node.peer);
    if (node.kind == Kind::receive) text += fmt::format(" from rank {}", node.peer);
    return node.site.empty() ? text : fmt::format("{} ({})", text, node.site);
}

std::vector<int> ordinals(const Graph& captured) {
    std::vector<int> next(captured.groups.size()), found;
    for (const Node& n : captured.nodes) {
        for (const Piece& p : n.pieces) {
            if (p.call < 0) continue;
            if (found.size() <= static_cast<std::size_t>(p.call))
                found.resize(static_cast<std::size_t>(p.call) + 1, -1);
            if (is_collective(n.kind))
                found[static_cast<std::size_t>(p.call)] = next[static_cast<std::size_t>(n.group)]++;
        }
    }
    return found;
}

bool is_exact(ReduceOp::Kind op, DType dtype) noexcept {
    using K = ReduceOp::Kind;
    return is_integral(dtype) || op == K::min || op == K::max || op == K::band || op == K::bor || op == K::bxor;
}

bool may_be_combined_otherwise(const Graph& graph, const Node& node) noexcept {
    return !combines(node.kind) || is_exact(node.op, node.dtype) ||
           graph.groups[static_cast<std::size_t>(node.group)].determinism != Determinism::run_to_run;
}

double predicted_us(const Graph& graph, const Node& node) {
    if (node.kind == Kind::compute) return node.cost_us;
    if (!is_communication(node.kind)) return 0;
    const GroupInfo& group = graph.groups[static_cast<std::size_t>(node.group)];
    // Each byte of an all_reduce travels twice: to where it is combined, and back; a block once.
    const bool once = is_collective(node.kind) && !traits_of(node.kind).is_rooted() &&
                      traits_of(node.kind).input != CollectiveTraits::Extent::whole;
    return group.latency_us + group.us_per_byte * static_cast<double>(bytes_of(node)) * (once ? 0.5 : 1.0);
}

double Graph::predicted_us() const {
    double now = 0, free = 0;  // when this rank, and what moves its data, are free
    std::map<int, double> ends;
    for (const Node& n : nodes) {
        const double takes = graph::predicted_us(*this, n);
        if (n.kind == Kind::wait) {
            if (const auto end = ends.find(n.of); end != ends.end()) now = std::max(now, end->second);
        } else if (is_communication(n.kind)) {
            free = std::max(now, free) + takes;
            ends[n.id] = free;
            if (!n.asynchronous) now = free;
        } else {
            now += takes;
        }
    }
    return std::max(now, free);
}

std::uint64_t Graph::peak_bytes() const {
    std::vector<bool> used(buffers.size());
    for (const Node& n : nodes) {
        for (const Range& r : reads_of(n)) used[r.buffer] = true;
        for (const Range& r : writes_of(n)) used[r.buffer] = true;
    }
    std::uint64_t bytes = 0;
    for (std::size_t b = 0; b < buffers.size(); ++b) bytes += used[b] ? buffers[b] : 0;
    return bytes;
}

bool is_whole(const Node& step, std::size_t read) noexcept {
    TUTTI_ASSERT(step.kind == Kind::compute);
    return std::ranges::find(step.whole, read) != step.whole.end();
}

bool has_rows(const Node& step) noexcept {
    if (step.kind != Kind::compute || step.rows == 0 || step.pieces.size() != 1) return false;
    const Piece& piece = step.pieces.front();
    const auto in_rows = [&](const Range& r) { return r.bytes > 0 && r.bytes % step.rows == 0; };
    bool some = false;
    for (std::size_t i = 0; i < piece.reads.size(); ++i) {
        if (is_whole(step, i)) continue;
        if (!in_rows(piece.reads[i])) return false;
        some = true;
    }
    return some && std::ranges::all_of(piece.writes, in_rows);
}

std::vector<bool> could_block(const Graph& graph) {
    constexpr int of_messages = -1;
    std::vector<bool> could(graph.nodes.size());
    std::map<int, std::size_t> started;  // by id
    struct Latest {
        int group = of_messages;
        std::size_t behind = 0;  // the position of the next node
    };
    Latest latest, other;  // the latest communication, and the latest that is of another group
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
        const Node* node = &graph.nodes[i];
        if (node->kind == Kind::wait) {
            const auto start = started.find(node->of);
            if (start == started.end()) continue;
            node = &graph.nodes[start->second];
            if (is_collective(node->kind))
                could[start->second] = (latest.group == node->group ? other : latest).behind <= start->second;
        } else if (!is_communication(node->kind)) {
            continue;
        }
        if (node->asynchronous) started.try_emplace(node->id, i);
        const int group = is_message(node->kind) ? of_messages : node->group;
        if (latest.group != group) other = std::exchange(latest, {group, 0});
        latest.behind = i + 1;
    }
    return could;
}

int next_id(const Graph& graph) {
    int next = 0;
    for (const Node& n : graph.nodes) next = std::max(next, n.id + 1);
    return next;
}

}  // namespace tutti::graph
