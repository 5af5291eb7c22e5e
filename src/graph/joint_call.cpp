#include "graph/joint_call.hpp"

#include "core/assert.hpp"
#include "graph/value.hpp"

#include <algorithm>

namespace tutti::graph {
namespace {

constexpr std::uint64_t opaque_tag = 0xa54ff53a5f1d36f1ULL;

std::uint64_t bytes(const std::vector<Range>& ranges) {
    std::uint64_t sum = 0;
    for (const Range& r : ranges) sum += r.bytes;
    return sum;
}
// Bytes that all ranks of a collective must have alike.
std::uint64_t common_bytes(Kind kind, const Piece& p) {
    if (kind == Kind::broadcast) return std::max(bytes(p.reads), bytes(p.writes));
    if (combines(kind)) return bytes(p.reads);
    return may_run_in_chunks(kind) ? bytes(p.writes) : 0;
}

Contents opaque(const JointCall& one, std::size_t piece, std::size_t to, std::size_t block, std::uint64_t bytes) {
    TUTTI_ASSERT(piece < one.first->pieces.size());
    std::uint64_t term = mixed(opaque_tag, static_cast<std::uint64_t>(one.first->kind));
    term =
        mixed(mixed(term, static_cast<std::uint64_t>(one.first->op)), static_cast<std::uint64_t>(one.first->root + 1));
    term = mixed(mixed(term, to), block);
    for (const Pieces& inputs : one.inputs) {
        term = mixed(term, one.first->pieces[piece].fingerprint);
        for (const Contents& c : inputs[piece]) term = hash_of(mixed(term, c.size()), c);
    }
    return {{bytes, {term, 0, -1}}};
}

Contents result(const JointCall& one, Determinism determinism, std::size_t piece, std::size_t to, std::size_t block) {
    TUTTI_ASSERT(to < one.nodes.size());
    TUTTI_ASSERT(piece < one.first->pieces.size());
    const std::size_t root = static_cast<std::size_t>(std::max(one.first->root, 0));
    const auto from = [&](std::size_t rank, std::size_t which) -> Contents {
        const Blocks& blocks = one.inputs[rank][piece];
        return which < blocks.size() ? blocks[which] : Contents{};
    };
    switch (one.first->kind) {
        case Kind::broadcast: return from(root, 0);
        case Kind::scatter: return from(root, to);
        case Kind::all_gather:
        case Kind::gather: return from(block, 0);
        case Kind::gather_v:
        case Kind::scatter_v:
        case Kind::all_to_all: return from(block, to);
        default: break;
    }
    const std::size_t which = traits_of(one.first->kind).input == CollectiveTraits::Extent::all_blocks ? to : 0;
    std::vector<Contents> inputs;
    std::uint64_t bytes_of_first = 0, before = 0;
    const int end = traits_of(one.first->kind).combined_end(static_cast<int>(to), static_cast<int>(one.inputs.size()));
    for (std::size_t r = 0; r < static_cast<std::size_t>(end); ++r) {
        inputs.push_back(from(r, which));
        const std::uint64_t bytes = size_of(inputs.back());
        if (r == 0) bytes_of_first = bytes;
        if (bytes != bytes_of_first) return {};  // the caller says what it expected
    }
    TUTTI_ASSERT(inputs.size() == static_cast<std::size_t>(end));
    const Node& node = *one.nodes[to];
    std::uint64_t whole = 0;
    for (std::size_t i = 0; i < node.pieces.size(); ++i) {
        for (std::size_t b = 0; b < node.pieces[i].reads.size(); ++b) {
            if (i < piece || (i == piece && b < which)) before += node.pieces[i].reads[b].bytes;
            whole += node.pieces[i].reads[b].bytes;
        }
    }
    const bool exact = is_exact(node.op, node.dtype) || determinism != Determinism::run_to_run;
    const std::uint64_t context = mixed(mixed(static_cast<std::uint64_t>(node.kind), whole), before);
    return combined(inputs, {node.op, size_of(node.dtype), exact, context});
}

}  // namespace

std::string_view difference(const Node& a, const Node& b) {
    if (a.kind != b.kind) return "another collective";
    if (a.kind == Kind::barrier) return "";
    if (a.dtype != b.dtype) return "another dtype";
    if (combines(a.kind) && a.op != b.op) return "another operator";
    if (a.root != b.root) return "another root";
    if (a.pieces.size() != b.pieces.size()) return "another number of pieces";
    if (a.opaque || b.opaque) return "";
    for (std::size_t i = 0; i < a.pieces.size(); ++i) {
        if (common_bytes(a.kind, a.pieces[i]) != common_bytes(b.kind, b.pieces[i])) return "other sizes";
    }
    return "";
}

std::optional<WrongSize> resolve(JointCall& call, Determinism determinism) {
    TUTTI_ASSERT(call.first != nullptr && call.results.empty());
    TUTTI_ASSERT(static_cast<std::size_t>(call.joined) == call.nodes.size());
    call.results.resize(call.nodes.size());
    const Node& node = *call.first;
    if (node.kind == Kind::barrier) return std::nullopt;
    const bool is_opaque = std::ranges::any_of(call.nodes, &Node::opaque);
    for (std::size_t p = 0; p < node.pieces.size(); ++p) {
        for (std::size_t to = 0; to < call.nodes.size(); ++to) {
            const std::vector<Range>& writes = call.nodes[to]->pieces[p].writes;
            Blocks& out = call.results[to].emplace_back();
            for (std::size_t block = 0; block < writes.size(); ++block) {
                const std::uint64_t wanted = writes[block].bytes;
                out.push_back(is_opaque ? opaque(call, p, to, block, wanted) : result(call, determinism, p, to, block));
                if (const std::uint64_t got = size_of(out.back()); got != wanted) return WrongSize{to, wanted, got};
            }
        }
    }
    return std::nullopt;
}

}  // namespace tutti::graph
