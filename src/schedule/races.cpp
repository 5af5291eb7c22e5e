#include "schedule/races.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::schedule {
namespace {

// Of all steps of all ranks, those that come before one. A rank's steps stand one after the other, its caller's use of
// the buffers before the first and behind the last of them.
class Order {
 public:
    Order(const std::vector<Schedule>& schedules, Budget& budget) : schedules_(schedules), budget_(budget) {
        for (const Schedule& s : schedules) {
            first_.push_back(size_);
            size_ += s.steps.size() + 2;
        }
        before_.resize(size_);
        known_.assign(size_, false);
    }

    /// Number -1 is the caller's use before, and steps.size() that behind.
    std::size_t node(Rank rank, std::ptrdiff_t step) const {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < first_.size());
        TUTTI_ASSERT(step >= -1 &&
                     step <= static_cast<std::ptrdiff_t>(schedules_[static_cast<std::size_t>(rank)].steps.size()));
        return first_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(step + 1);
    }
    bool comes_before(std::size_t node, std::size_t later) {
        TUTTI_ASSERT(node < size_ && later < size_);
        find(later);
        TUTTI_ASSERT(known_[later] && !before_[later].empty());
        return (before_[later][node / bits] >> (node % bits) & 1U) != 0;
    }

 private:
    using Word = std::uint64_t;
    static constexpr std::size_t bits = 64;

    // A node whose predecessors are being found. A user's text may have chains of any length: so no recursion.
    struct Open {
        std::size_t node;
        std::vector<std::size_t> predecessors;
        std::size_t next = 0;
    };

    // A circle, which is a deadlock that the prover finds, ends here too: a step whose predecessors
    // are being found counts as found.
    void find(std::size_t wanted) {
        TUTTI_ASSERT(wanted < size_);
        if (known_[wanted]) return;
        std::vector<Open> stack;
        stack.push_back(open(wanted));
        while (!stack.empty()) {
            Open& top = stack.back();
            TUTTI_ASSERT(known_[top.node] && top.next <= top.predecessors.size());
            if (top.next == top.predecessors.size()) {
                stack.pop_back();
            } else if (const std::size_t earlier = top.predecessors[top.next]; !known_[earlier]) {
                stack.push_back(open(earlier));
            } else {
                ++top.next;
                inherit(top.node, earlier);
            }
        }
    }

    Open open(std::size_t node) {
        TUTTI_ASSERT(!known_[node] && before_[node].empty());
        known_[node] = true;
        const std::size_t words = (size_ + bits - 1) / bits;
        budget_.spend(words * sizeof(Word));
        before_[node].resize(words);
        return {node, predecessors_of(node)};
    }

    void inherit(std::size_t node, std::size_t earlier) {
        TUTTI_ASSERT(known_[node] && known_[earlier]);
        TUTTI_ASSERT(before_[node].size() == before_[earlier].size());
        std::vector<Word>&mine = before_[node], &theirs = before_[earlier];
        budget_.spend(mine.size());
        mine[earlier / bits] |= Word{1} << (earlier % bits);
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] |= theirs[i];
    }

    std::vector<std::size_t> predecessors_of(std::size_t node) const {
        TUTTI_ASSERT(node < size_);
        std::vector<std::size_t> found;
        const auto next = std::upper_bound(first_.begin(), first_.end(), node);
        const auto rank = static_cast<std::size_t>(next - first_.begin()) - 1;
        const Schedule& s = schedules_[rank];
        const auto me = static_cast<Rank>(rank);
        const auto number = static_cast<std::ptrdiff_t>(node - first_[rank]) - 1;
        if (number < 0) return found;
        found.push_back(this->node(me, -1));
        const auto index = static_cast<std::size_t>(number);
        if (index == s.steps.size()) {
            for (std::size_t i = 0; i < index; ++i) found.push_back(this->node(me, static_cast<std::ptrdiff_t>(i)));
            return found;
        }
        TUTTI_ASSERT(index < s.steps.size());
        const Step& step = s.steps[index];
        for (const std::uint32_t earlier : after_of(s, step)) found.push_back(this->node(me, earlier));
        if (!is_shared(step.kind)) return found;
        for (std::size_t i = index; i-- > 0;) {
            if (!is_shared(s.steps[i].kind)) continue;
            found.push_back(this->node(me, static_cast<std::ptrdiff_t>(i)));
            break;
        }
        for (Rank peer = 0; peer < static_cast<Rank>(schedules_.size()); ++peer) {
            if (peer != me) add_those_of(peer, step, found);
        }
        return found;
    }

    void add_those_of(Rank peer, const Step& step, std::vector<std::size_t>& found) const {
        TUTTI_ASSERT(static_cast<std::size_t>(peer) < schedules_.size());
        if (step.kind == StepKind::meet) {
            found.push_back(node(peer, -1));
            add_before_meeting(peer, found);
        } else if (step.kind == StepKind::settle) {
            add_first(StepKind::release, step.round, peer, found);
        } else if (step.kind == StepKind::wait && step.peer == peer) {
            add_first(StepKind::signal, step.round, peer, found);
        }
    }

    // What the peer has done before it says where its buffers lie.
    void add_before_meeting(Rank peer, std::vector<std::size_t>& found) const {
        const Schedule& theirs = schedules_[static_cast<std::size_t>(peer)];
        const auto meet = std::ranges::find(theirs.steps, StepKind::meet, &Step::kind);
        if (meet == theirs.steps.end()) return;
        for (const std::uint32_t before : after_of(theirs, *meet)) {
            if (static_cast<std::ptrdiff_t>(before) < meet - theirs.steps.begin())
                found.push_back(node(peer, static_cast<std::ptrdiff_t>(before)));
        }
    }

    // The peer's first step of that kind for this round or a later one.
    void add_first(StepKind kind, std::uint32_t round, Rank peer, std::vector<std::size_t>& found) const {
        TUTTI_ASSERT(kind == StepKind::release || kind == StepKind::signal);
        const auto& theirs = schedules_[static_cast<std::size_t>(peer)].steps;
        const auto first =
            std::ranges::find_if(theirs, [&](const Step& step) { return step.kind == kind && step.round >= round; });
        if (first != theirs.end()) found.push_back(node(peer, first - theirs.begin()));
    }

    const std::vector<Schedule>& schedules_;
    Budget& budget_;
    std::vector<std::size_t> first_;  // node of each rank
    std::size_t size_ = 0;
    std::vector<std::vector<Word>> before_;
    std::vector<bool> known_;
};

struct Access {
    Rank rank;  // the rank that accesses
    std::ptrdiff_t step;
    Chunk chunk;
    bool writes;
};

bool meet(const Access& a, const Access& b) {
    TUTTI_ASSERT(a.chunk.count > 0 && b.chunk.count > 0);
    return a.rank != b.rank && (a.writes || b.writes) && share_elements(a.chunk, b.chunk);
}

// By owner of the elements touched.
std::vector<std::vector<Access>> accesses_of(const std::vector<Schedule>& schedules) {
    std::vector<std::vector<Access>> found(schedules.size());
    const auto size = static_cast<Rank>(schedules.size());
    for (Rank rank = 0; rank < size; ++rank) {
        const Schedule& s = schedules[static_cast<std::size_t>(rank)];
        const auto add = [&](Rank owner, std::ptrdiff_t step, const Chunk& chunk, bool writes) {
            TUTTI_ASSERT(static_cast<std::size_t>(owner) < schedules.size());
            if (chunk.count == 0) return;
            const Chunk there = owner == rank ? chunk : at_owner(schedules, owner, chunk);
            found[static_cast<std::size_t>(owner)].push_back({rank, step, there, writes});
        };
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            const Step& step = s.steps[i];
            const auto at = static_cast<std::ptrdiff_t>(i);
            if (step.kind == StepKind::meet) continue;
            for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                const Operand& operand = s.operands[step.first_operand + o];
                add(operand.peer < 0 ? rank : operand.peer, at, operand.chunk, false);
            }
            const bool of_peer = step.peer >= 0 && (step.kind == StepKind::put || step.kind == StepKind::read_combine);
            add(of_peer ? step.peer : rank, at, step.target, true);
            for (Rank peer = 0; step.everywhere && peer < size; ++peer) {
                if (peer != rank) add(peer, at, step.target, true);
            }
        }
        for (const Buffer buffer : {Buffer::input, Buffer::output}) {
            const std::uint64_t all = UINT64_MAX / 2;
            add(rank, -1, {buffer, 0, all}, true);
            add(rank, static_cast<std::ptrdiff_t>(s.steps.size()), {buffer, 0, all}, true);
        }
    }
    return found;
}

// The chunks of `owner`'s buffers that `meet` opens.
std::vector<Chunk> opened(const Schedule& s) {
    std::vector<Chunk> chunks;
    for (const Step& step : s.steps) {
        if (step.kind != StepKind::meet) continue;
        for (std::uint32_t o = 0; o < step.operand_count; ++o)
            chunks.push_back(s.operands[step.first_operand + o].chunk);
    }
    return chunks;
}

bool lies_in(const Chunk& chunk, const std::vector<Chunk>& chunks) {
    return std::ranges::any_of(chunks, [&](const Chunk& whole) {
        return whole.buffer == chunk.buffer && whole.offset <= chunk.offset &&
               chunk.offset + chunk.count <= whole.offset + whole.count;
    });
}

bool is_of_a_step(const Access& access, const std::vector<Schedule>& schedules) {
    TUTTI_ASSERT(static_cast<std::size_t>(access.rank) < schedules.size());
    const auto steps = schedules[static_cast<std::size_t>(access.rank)].steps.size();
    return access.step >= 0 && access.step < static_cast<std::ptrdiff_t>(steps);
}

// A read of an input and a write of the output at the same place. A rank's own steps keep their order there: those that
// share memory do so anyway, and for the others the Builder sees to it.
bool reads_first(const Access& read, const Access& write, Order& order, const std::vector<Schedule>& schedules) {
    TUTTI_ASSERT(!read.writes && write.writes);
    TUTTI_ASSERT(is_of_a_step(read, schedules) && is_of_a_step(write, schedules));
    if (read.rank != write.rank)
        return order.comes_before(order.node(read.rank, read.step), order.node(write.rank, write.step));
    if (read.step != write.step) return read.step < write.step;
    const auto& steps = schedules[static_cast<std::size_t>(read.rank)].steps;
    return reads_before_writing(steps[static_cast<std::size_t>(read.step)].kind, read.chunk, write.chunk);
}

}  // namespace

std::vector<bool> same_in_place(const std::vector<Schedule>& schedules, Budget& budget) {
    std::vector<bool> same;
    Order order(schedules, budget);
    for (const std::vector<Access>& accesses : accesses_of(schedules)) {
        std::vector<Access> reads, writes;
        for (const Access& access : accesses) {
            if (!is_of_a_step(access, schedules)) continue;
            if (access.writes && access.chunk.buffer == Buffer::output) writes.push_back(access);
            if (!access.writes && access.chunk.buffer == Buffer::input) reads.push_back(access);
        }
        budget.spend(reads.size() * writes.size());
        same.push_back(std::ranges::all_of(reads, [&](const Access& read) {
            return std::ranges::all_of(writes, [&](const Access& write) {
                return !ranges_meet(read.chunk, write.chunk) || reads_first(read, write, order, schedules);
            });
        }));
    }
    TUTTI_ASSERT(same.size() == schedules.size());
    return same;
}

Chunk at_owner(const std::vector<Schedule>& schedules, Rank owner, Chunk chunk) {
    TUTTI_ASSERT(static_cast<std::size_t>(owner) < schedules.size());
    if (chunk.buffer == Buffer::input && schedules[static_cast<std::size_t>(owner)].input_is_output)
        chunk.buffer = Buffer::output;
    return chunk;
}

std::vector<Race> races_in(const std::vector<Schedule>& schedules, Budget& budget) {
    std::vector<Race> races;
    if (schedules.empty() || !schedules.front().in_place) return races;
    Order order(schedules, budget);
    const auto all = accesses_of(schedules);
    for (std::size_t owner = 0; owner < all.size(); ++owner) {
        const std::vector<Chunk> open = opened(schedules[owner]);
        budget.spend(all[owner].size() * (all[owner].size() + open.size()));
        bool found = false;
        for (const Access& a : all[owner]) {
            const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(a.step, 0));
            if (a.rank != static_cast<Rank>(owner) && !lies_in(a.chunk, open))
                races.push_back({a.rank, at, fmt::format("touches what rank {} has not opened", owner)});
            for (const Access& b : all[owner]) {
                if (found || a.rank >= b.rank || !meet(a, b)) continue;
                const std::size_t first = order.node(a.rank, a.step), second = order.node(b.rank, b.step);
                found = !order.comes_before(first, second) && !order.comes_before(second, first);
                if (found)
                    races.push_back(
                        {a.rank, at,
                         fmt::format("and step {} of rank {} touch the same elements of rank {}, without order", b.step,
                                     b.rank, owner)});
            }
        }
    }
    return races;
}

}  // namespace tutti::schedule
