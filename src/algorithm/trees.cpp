// k-nomial trees: rank r, counted from the root in base k, has as parent r with its lowest non-zero digit made 0, and
// as children the ranks that differ from it in one of the zeros below.
//
//   k = 2, n = 8:  0 → 4 2 1,  4 → 6 5,  2 → 3,  6 → 7          k = 4, n = 8:  0 → 4 1 2 3,  4 → 5 6 7
//
// A child's subtree is a run of ranks, so that values can be combined in the order of ranks (from the root on).
// Cost: log_k(n) levels; a node sends up to k - 1 messages at each, so larger k is for few bytes.
// Source: any MPI's binomial trees; Thakur, Rabenseifner, Gropp (2005) for gather and scatter.
#include "algorithm/generators.hpp"
#include "core/assert.hpp"

#include <algorithm>

namespace tutti::algorithm::messages {
namespace {

struct Child {
    int rank = 0, end = 0;  ///< relative to the root; its subtree is [rank, end)
};

// The tree as one rank sees it; ranks are relative to the root.
struct Tree {
    int size, root, me;
    int parent = -1;
    std::vector<Child> children;  // nearest subtree first

    Tree(const RankList& s, int radix, int root_position) : size(s.size()), root(root_position) {
        TUTTI_ASSERT(radix >= 2 && root_position >= 0 && root_position < size);
        me = (s.me - root + size) % size;
        for (int distance = 1; distance < size; distance *= radix) {
            if (const int digit = me / distance % radix; digit != 0) {
                parent = me - digit * distance;
                break;
            }
            for (int j = 1; j < radix && me + j * distance < size; ++j) {
                children.push_back({me + j * distance, std::min(me + (j + 1) * distance, size)});
            }
        }
        TUTTI_ASSERT((parent < 0) == (me == 0) && parent < me);
    }
    int position(int relative) const {
        TUTTI_ASSERT(relative >= 0 && relative < size);
        return (relative + root) % size;
    }
};

}  // namespace

void broadcast_tree(Builder& b, const RankList& s, int radix, int root, Chunk buffer, std::uint64_t segment) {
    TUTTI_ASSERT(segment > 0 || buffer.count == 0);
    const Tree tree(s, radix, root);
    for (std::uint64_t at = 0; at < buffer.count; at += segment) {
        const Chunk c = part(buffer, at, std::min(segment, buffer.count - at));
        if (tree.parent >= 0) b.receive(s.rank(tree.position(tree.parent)), c);
        for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
            b.send(s.rank(tree.position(child->rank)), c);
        }
    }
}

void reduce_tree(Builder& b, const RankList& s, int radix, int root, Chunk input, Chunk output, bool finish) {
    if (s.size() == 1) return b.combine(output, std::vector{input}, finish);
    if (s.size() > 2) b.not_single_rounding();
    const Tree tree(s, radix, root);
    const bool is_root = tree.parent < 0;
    TUTTI_ASSERT(input.count == output.count || !is_root);
    Chunk work = is_root ? output : Chunk{};
    if (!is_root && !tree.children.empty()) work = b.scratch(input.count);
    Chunk current = input;
    for (const Child& child : tree.children) {
        b.receive_combine(s.rank(tree.position(child.rank)), work, current, false,
                          finish && is_root && &child == &tree.children.back());
        current = work;
    }
    if (!is_root) b.send(s.rank(tree.position(tree.parent)), current);
}

void gather_tree(Builder& b, const RankList& s, int radix, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const Tree tree(s, radix, root);
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    if (tree.parent < 0)
        b.copy(block_of(Buffer::output, counts, root), own);
    else
        b.send(s.rank(tree.position(tree.parent)), own);
    for (const Child& child : tree.children) {
        for (int i = child.rank; i < child.end; ++i) {
            const int owner = tree.position(i);
            const Chunk block = tree.parent < 0 ? block_of(Buffer::output, counts, owner)
                                                : b.scratch(counts[static_cast<std::size_t>(owner)]);
            b.receive(s.rank(tree.position(child.rank)), block);
            if (tree.parent >= 0) b.send(s.rank(tree.position(tree.parent)), block);
        }
    }
}

void scatter_tree(Builder& b, const RankList& s, int radix, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const Tree tree(s, radix, root);
    const Chunk own{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    if (tree.parent < 0)
        b.copy(own, block_of(Buffer::input, counts, root));
    else
        b.receive(s.rank(tree.position(tree.parent)), own);
    for (const Child& child : tree.children) {
        for (int i = child.rank; i < child.end; ++i) {
            const int owner = tree.position(i);
            Chunk block;
            if (tree.parent < 0) {
                block = block_of(Buffer::input, counts, owner);
            } else {
                block = b.scratch(counts[static_cast<std::size_t>(owner)]);
                b.receive(s.rank(tree.position(tree.parent)), block);
            }
            b.send(s.rank(tree.position(child.rank)), block);
        }
    }
}

}  // namespace tutti::algorithm::messages
