// The protocol of the slots, in every order in which up to three ranks can take their turns: the ranks are objects of
// one thread, which run the library's code, and the test chooses the one that goes on. It does not explore a state
// twice. It has to find faults that are seeded into a rank.
//
// A turn is one call of begin() or advance(). tests/memory_model tries out, on the same code, the single accesses of
// two turns that overlap, and their reordering by a CPU.
#include "engine/slots-inl.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace tutti::engine {
namespace {

using transport::Arena;
using transport::RankControl;

constexpr std::int64_t nothing = -1;

/// A call of the ranks' common program. `count`: elements of a block.
struct Line {
    Collective collective = Collective::barrier;
    int root = 0;
    std::uint64_t count = 1;
    bool uneven = false;  // exchanges
    int too_large = -1;   // exchanges: the rank whose blocks do not fit
};
using Program = std::vector<Line>;

/// The fault of one rank.
enum class Fault : std::uint8_t {
    none,
    says_too_early_that_it_goes_on,  // and so, that it has read the values before
    waits_for_one_rank_less,
    publishes_nothing,
    skips_a_number,
    has_fewer_slots,
    has_another_digest,
    sends_blocks_of_another_length,
};
constexpr int faulty_rank = 1;

std::int64_t value(int rank, std::size_t number, std::uint64_t index) {
    return static_cast<std::int64_t>(1'000'000 * (number + 1) + 1000 * index) + rank + 1;
}
std::uint64_t uneven_count(int from, int to, std::uint64_t least) {
    return least + static_cast<std::uint64_t>(2 * from + to) % 3;
}

/// The events of a call on its way.
struct Events {
    bool failed_ = false;
    std::string what;
    int look_backs = 0;

    bool failed() const { return failed_; }
    void published() {}
    void disagreement(int peer) { fail(fmt::format("a disagreement with rank {}", peer)); }
    void blocks_differ(int peer, std::uint64_t theirs, std::uint64_t mine) {
        fail(fmt::format("rank {} sends {} bytes instead of {}", peer, theirs, mine));
    }
    void look_back() { ++look_backs; }
    void fail(std::string text) {
        failed_ = true;
        what = std::move(text);
    }
};

/// One rank, with its buffers.
struct Side {
    Slots slots;
    SlotState state{};
    bool begun = false;
    std::size_t line = 0;
    std::vector<std::int64_t> input, output;
    std::vector<std::uint64_t> send_counts, receive_counts;
    Events events{};
};

struct Outcome {
    std::string fault;
    std::size_t states = 0, ends = 0;
    std::size_t lead = 0;  // how many calls some rank had finished beyond another
    int look_backs = 0;
};

class Model {
 public:
    Model(int ranks, std::vector<Program> programs, std::uint64_t ahead, Fault fault)
        : ranks_(ranks),
          programs_(std::move(programs)),
          ahead_(ahead),
          fault_(fault),
          arena_(Arena::create_private({.ranks = ranks, .ring_bytes = 0})) {
        for (int rank = 0; rank < ranks; ++rank) {
            const std::uint64_t own = fault == Fault::has_fewer_slots && rank == faulty_rank ? ahead / 2 : ahead;
            sides_.push_back({.slots = Slots(*arena_, rank, ranks, nullptr, own)});
        }
    }

    Outcome explore() {
        std::vector<Snapshot> open{snapshot()};
        std::unordered_set<std::size_t> met{key(open.back().memory)};
        while (!open.empty() && outcome_.fault.empty()) {
            const Snapshot here = std::move(open.back());
            open.pop_back();
            ++outcome_.states;
            bool moves = false, all_done = true;
            for (int rank = 0; rank < ranks_ && outcome_.fault.empty(); ++rank) {
                restore(here);
                if (done(rank)) continue;
                all_done = false;
                turn(rank);
                if (!outcome_.fault.empty()) break;
                note_lead();
                Snapshot next = snapshot();
                const std::size_t key_of_next = key(next.memory);
                moves |= key_of_next != key_of(here);
                if (met.insert(key_of_next).second) open.push_back(std::move(next));
            }
            if (all_done) ++outcome_.ends;
            if (!moves && !all_done && outcome_.fault.empty()) outcome_.fault = stuck();
        }
        return outcome_;
    }

 private:
    struct Snapshot {
        std::vector<Side> sides;
        std::vector<std::byte> memory;
    };

    const Program& program(int rank) const { return programs_[static_cast<std::size_t>(rank) % programs_.size()]; }
    Side& side(int rank) { return sides_[static_cast<std::size_t>(rank)]; }
    bool done(int rank) { return side(rank).line == program(rank).size() || side(rank).events.failed(); }
    bool is_faulty(int rank, Fault fault) const { return rank == faulty_rank && fault_ == fault; }

    // The memory that the ranks share and use.
    template <class F>
    void with_memory(F f) {
        constexpr std::size_t used = 1024;  // of an area
        const auto part = [&](auto& what, std::size_t bytes) { f(reinterpret_cast<std::byte*>(&what), bytes); };
        for (int rank = 0; rank < ranks_; ++rank) {
            RankControl& control = arena_->control(rank);
            part(control.small_begun, sizeof control.small_begun);
            part(control.short_in_turns, sizeof control.short_in_turns);
            part(control.in_turn, sizeof control.in_turn);
            part(control.short_ahead, ahead_ * sizeof control.short_ahead[0]);
            part(control.ahead, ahead_ * sizeof control.ahead[0]);
            for (auto& area : control.area_in_turn) part(area, used);
            for (std::uint64_t i = 0; i < ahead_; ++i) part(control.area_ahead[i], used);
        }
    }

    Snapshot snapshot() {
        Snapshot now{.sides = sides_, .memory = {}};
        with_memory(
            [&](const std::byte* at, std::size_t bytes) { now.memory.insert(now.memory.end(), at, at + bytes); });
        return now;
    }
    void restore(const Snapshot& then) {
        sides_ = then.sides;
        const std::byte* from = then.memory.data();
        with_memory([&](std::byte* at, std::size_t bytes) {
            std::memcpy(at, from, bytes);
            from += bytes;
        });
    }

    // All state that decides the possible turns from here on.
    static std::size_t key(const std::vector<Side>& sides, const std::vector<std::byte>& memory) {
        std::string text(reinterpret_cast<const char*>(memory.data()), memory.size());
        const auto add = [&](std::uint64_t number) {
            text.append(reinterpret_cast<const char*>(&number), sizeof number);
        };
        for (const Side& one : sides) {
            add(one.line), add(one.begun), add(one.events.failed_), add(one.state.sequence);
            add(one.state.published), add(one.state.waited), add(one.state.large);
            add(static_cast<std::uint64_t>(one.state.next)), add(one.state.largest);
            for (std::size_t peer = 0; peer < sides.size(); ++peer) add(one.slots.begun_by(static_cast<int>(peer)));
        }
        return std::hash<std::string>()(text);
    }
    std::size_t key(const std::vector<std::byte>& memory) const { return key(sides_, memory); }
    static std::size_t key_of(const Snapshot& then) { return key(then.sides, then.memory); }

    void turn(int rank) {
        Side& one = side(rank);
        const Line& line = program(rank)[one.line];
        if (!one.begun) {
            fill(rank, line);
            const std::uint64_t digest = one.line + 100 * static_cast<std::uint64_t>(line.collective) + line.count +
                                         (is_faulty(rank, Fault::has_another_digest) ? 7 : 0);
            one.state = one.slots.begin(call_of(rank, line), digest);
            if (is_faulty(rank, Fault::skips_a_number)) one.state = one.slots.begin(call_of(rank, line), digest);
            if (is_faulty(rank, Fault::says_too_early_that_it_goes_on))
                arena_->control(rank).small_begun.store(one.state.sequence + 1);
            if (is_faulty(rank, Fault::publishes_nothing)) one.state.published = true;
            one.begun = true;
            return;
        }
        SlotState& state = one.state;
        if (is_faulty(rank, Fault::waits_for_one_rank_less) && state.published && state.next == ranks_ - 1)
            state.next = ranks_;
        if (!one.slots.advance(call_of(rank, line), state, one.events)) return;
        outcome_.look_backs = std::max(outcome_.look_backs, one.events.look_backs);
        if (one.events.failed()) {
            if (outcome_.fault.empty()) outcome_.fault = fmt::format("rank {}: {}", rank, one.events.what);
            return;
        }
        check(rank, line);
        // The buffers belong to the caller again: no rank may find anything there.
        std::ranges::fill(one.input, nothing);
        std::ranges::fill(one.output, nothing);
        one.begun = false;
        one.state = {};
        ++one.line;
    }

    std::uint64_t sent(const Line& line, int from, int to) const {
        if (!traits_of(line.collective).exchanges_between(from, to, line.root)) return 0;
        return line.uneven ? uneven_count(from, to, line.count) : line.count;
    }
    // Whether a rank goes on with a schedule. In a gather_v it is the rank whose block is too large, and the root.
    static bool goes_on(const Line& line, int rank) {
        if (line.too_large < 0) return false;
        return line.collective != Collective::gather_v || rank == line.too_large || rank == line.root;
    }
    // Whether the root of a gather_v gets that block only there.
    static bool is_left_out(const Line& line, int from, int to) {
        return line.collective == Collective::gather_v && from == line.too_large && to == line.root;
    }

    void fill(int rank, const Line& line) {
        Side& one = side(rank);
        const auto n = static_cast<std::uint64_t>(ranks_);
        std::uint64_t in = line.count, out = line.count;
        one.send_counts.clear(), one.receive_counts.clear();
        switch (line.collective) {
            case Collective::all_gather: out = n * line.count; break;
            case Collective::gather: out = rank == line.root ? n * line.count : 0; break;
            case Collective::scatter: in = rank == line.root ? n * line.count : 0; break;
            case Collective::reduce_scatter: in = n * line.count; break;
            case Collective::gather_v:
            case Collective::scatter_v:
            case Collective::all_to_all:
                in = out = 0;
                for (int peer = 0; peer < ranks_; ++peer) {
                    one.send_counts.push_back(sent(line, rank, peer));
                    one.receive_counts.push_back(sent(line, peer, rank));
                    if (is_faulty(rank, Fault::sends_blocks_of_another_length)) ++one.send_counts.back();
                    in += one.send_counts.back(), out += one.receive_counts.back();
                }
                break;
            case Collective::barrier: in = out = 0; break;
            default: break;
        }
        one.input.resize(in), one.output.assign(out, nothing);
        for (std::uint64_t i = 0; i < in; ++i) one.input[i] = value(rank, one.line, i);
    }

    CollectiveCall call_of(int rank, const Line& line) {
        Side& one = side(rank);
        CollectiveCall call{
            .collective = line.collective,
            .root = line.root,
            .input = reinterpret_cast<const std::byte*>(one.input.data()),
            .output = reinterpret_cast<std::byte*>(one.output.data()),
            .block_bytes = line.collective == Collective::barrier ? 0 : line.count * sizeof(std::int64_t),
            .count = line.count,
            .dtype = DType::int64};
        if (traits_of(line.collective).exchanges()) {
            call.set_blocks(one.send_counts, one.receive_counts);
            call.large = line.too_large == rank;
        }
        return call;
    }

    // A rank's result, by definition.
    std::vector<std::int64_t> expected(int rank, const Line& line) {
        const std::size_t number = side(rank).line;
        const auto sum = [&](std::uint64_t index) {
            std::int64_t all = 0;
            for (int peer = 0; peer < ranks_; ++peer) all += value(peer, number, index);
            return all;
        };
        const auto me = static_cast<std::uint64_t>(rank);
        std::vector<std::int64_t> result;
        const auto each = [&](auto f) {
            for (std::uint64_t i = 0; i < line.count; ++i) result.push_back(f(i));
        };
        switch (line.collective) {
            case Collective::all_reduce: each(sum); break;
            case Collective::reduce: each([&](std::uint64_t i) { return rank == line.root ? sum(i) : nothing; }); break;
            case Collective::broadcast:
                each([&](std::uint64_t i) { return rank == line.root ? nothing : value(line.root, number, i); });
                break;
            case Collective::gather:
                if (rank != line.root) break;
                [[fallthrough]];
            case Collective::all_gather:
                for (int peer = 0; peer < ranks_; ++peer) each([&](std::uint64_t i) { return value(peer, number, i); });
                break;
            case Collective::scatter:
                each([&](std::uint64_t i) { return value(line.root, number, me * line.count + i); });
                break;
            case Collective::reduce_scatter: each([&](std::uint64_t i) { return sum(me * line.count + i); }); break;
            case Collective::gather_v:
            case Collective::scatter_v:
            case Collective::all_to_all:
                for (int peer = 0; peer < ranks_; ++peer) {
                    std::uint64_t before = 0;
                    for (int other = 0; other < rank; ++other) before += sent(line, peer, other);
                    if (is_left_out(line, peer, rank)) {
                        result.insert(result.end(), sent(line, peer, rank), nothing);
                        continue;
                    }
                    for (std::uint64_t i = 0; i < sent(line, peer, rank); ++i)
                        result.push_back(value(peer, number, before + i));
                }
                break;
            case Collective::scan:
            case Collective::exscan:  // of those up to this rank, or before it
                each([&](std::uint64_t i) {
                    const int end = line.collective == Collective::scan ? rank + 1 : rank;
                    std::int64_t all = 0;
                    for (int peer = 0; peer < end; ++peer) all += value(peer, number, i);
                    return end == 0 ? nothing : all;
                });
                break;
            case Collective::barrier: break;
        }
        return result;
    }

    void check(int rank, const Line& line) {
        Side& one = side(rank);
        const bool large = goes_on(line, rank);
        if (one.state.large != large)
            outcome_.fault = fmt::format("rank {} goes on {} a schedule", rank, large ? "without" : "with");
        const bool none = large && line.collective != Collective::gather_v;
        const auto right = none ? std::vector<std::int64_t>(one.output.size(), nothing) : expected(rank, line);
        if (one.output != right) outcome_.fault = fmt::format("call {} is wrong on rank {}", one.line, rank);
        // A rank that is through with one in which all wait for all knows that all have begun it.
        if (slots::one_way(line.collective)) return;
        for (int peer = 0; peer < ranks_; ++peer) {
            if (side(peer).line < one.line || (side(peer).line == one.line && !side(peer).begun))
                outcome_.fault = fmt::format("rank {} has not waited for rank {}", rank, peer);
        }
    }

    void note_lead() {
        const auto [least, most] = std::ranges::minmax(sides_, {}, &Side::line);
        outcome_.lead = std::max(outcome_.lead, most.line - least.line);
    }

    std::string stuck() {
        std::string text = "nobody can go on:";
        for (int rank = 0; rank < ranks_; ++rank) {
            if (!done(rank)) text += fmt::format(" rank {} is in call {};", rank, side(rank).line);
        }
        return text;
    }

    int ranks_;
    std::vector<Program> programs_;
    std::uint64_t ahead_;
    Fault fault_;
    std::shared_ptr<Arena> arena_;
    std::vector<Side> sides_;
    Outcome outcome_;
};

Outcome explore(int ranks, const Program& program, std::uint64_t ahead = 2, Fault fault = Fault::none) {
    return Model(ranks, {program}, ahead, fault).explore();
}

// A payload comes with a short head, with a long one, or in an area.
constexpr std::array<std::uint64_t, 3> lengths{1, 5, 20};

TEST(Slots, give_every_rank_its_result_in_whatever_order_ranks_take_their_turns) {
    std::size_t states = 0;
    for (const int ranks : {1, 2, 3}) {
        for (int c = 1; c <= collective_count; ++c) {
            for (const std::uint64_t length : lengths) {
                const Line line{.collective = static_cast<Collective>(c), .root = ranks - 1, .count = length};
                const Outcome found = explore(ranks, Program(5, line));
                EXPECT_EQ(found.fault, "") << to_string(line.collective) << ", " << ranks << " ranks, " << length;
                EXPECT_GE(found.ends, 1U) << to_string(line.collective);
                states += found.states;
            }
        }
    }
    EXPECT_GT(states, 5000U);
    RecordProperty("states", std::to_string(states));
}

Program mixed(int ranks) {
    return {{Collective::broadcast, 0, 1},  {Collective::all_reduce, 0, 1},        {Collective::reduce, ranks - 1, 20},
            {Collective::gather, 0, 5},     {Collective::broadcast, ranks - 1, 1}, {Collective::barrier},
            {Collective::all_gather, 0, 5}, {Collective::scatter, ranks - 1, 1},   {Collective::reduce_scatter, 0, 1},
            {Collective::scan, 0, 20},      {Collective::all_to_all, 0, 1},        {Collective::exscan, 0, 1}};
}

TEST(Slots, are_used_by_collectives_of_all_kinds_one_after_the_other) {
    for (const int ranks : {2, 3}) {
        for (const std::uint64_t ahead : {2, 4}) {
            Program program = mixed(ranks);
            EXPECT_EQ(explore(ranks, program, ahead).fault, "") << ranks;
            std::ranges::reverse(program);
            EXPECT_EQ(explore(ranks, program, ahead).fault, "") << ranks;
        }
    }
}

TEST(Slots, let_a_root_run_ahead_as_far_as_there_are_slots_and_look_back_when_there_are_no_more) {
    for (const int ranks : {2, 3}) {
        for (const std::uint64_t ahead : {2, 4}) {
            const std::size_t calls = ahead + 2;
            const Outcome broadcast = explore(ranks, Program(calls, {Collective::broadcast, 0, 1}), ahead);
            EXPECT_EQ(broadcast.fault, "");
            EXPECT_EQ(broadcast.lead, ahead) << "finished calls whose readers have finished none of them";
            EXPECT_GT(broadcast.look_backs, 0);
            const Outcome reduce = explore(ranks, Program(calls, {Collective::reduce, 0, 1}), ahead);
            EXPECT_EQ(reduce.fault, "");
            EXPECT_EQ(reduce.lead, ahead);
            for (const Collective prefix : {Collective::scan, Collective::exscan}) {
                const Outcome found = explore(ranks, Program(calls, {prefix, 0, 1}), ahead);
                EXPECT_EQ(found.fault, "");
                EXPECT_EQ(found.lead, ahead) << "rank 0 waits for nobody";
            }
            EXPECT_LE(explore(ranks, Program(5, {Collective::all_reduce, 0, 1}), ahead).lead, 1U);
        }
    }
}

TEST(Slots, take_blocks_that_differ_and_tell_all_ranks_when_one_has_too_many) {
    for (const int ranks : {2, 3}) {
        for (const std::uint64_t length : lengths) {
            const Line even{.collective = Collective::all_to_all, .count = length};
            const Line uneven{.collective = Collective::all_to_all, .count = length, .uneven = true};
            const Line large{
                .collective = Collective::all_to_all, .count = length, .uneven = true, .too_large = ranks - 1};
            EXPECT_EQ(explore(ranks, {uneven, even, large, uneven, large}).fault, "") << ranks << ", " << length;
        }
    }
}

TEST(Slots, take_blocks_that_only_their_rank_and_the_root_know) {
    for (const int ranks : {2, 3}) {
        for (const int root : {0, ranks - 1}) {
            for (const std::uint64_t length : lengths) {
                const auto line = [&](Collective collective, bool uneven, int too_large) {
                    return Line{collective, root, length, uneven, too_large};
                };
                const Program gathers{line(Collective::gather_v, true, -1),
                                      line(Collective::gather_v, true, root == 0 ? 1 : 0),
                                      line(Collective::gather_v, false, -1)};
                const Program scatters{line(Collective::scatter_v, true, -1), line(Collective::scatter_v, true, root),
                                       line(Collective::scatter_v, false, -1)};
                EXPECT_EQ(explore(ranks, gathers).fault, "") << ranks << ", " << root << ", " << length;
                EXPECT_EQ(explore(ranks, scatters).fault, "") << ranks << ", " << root << ", " << length;
            }
        }
    }
}

TEST(Slots, show_that_ranks_call_different_things) {
    const Program right(2, {Collective::all_reduce, 0, 1});
    const Program longer{{Collective::all_reduce, 0, 1}, {Collective::all_reduce, 0, 2}};
    const Program other{{Collective::all_reduce, 0, 1}, {Collective::barrier}};
    for (const int ranks : {2, 3}) {
        for (const Program& wrong : {longer, other}) {
            const std::vector<Program> programs =
                ranks == 2 ? std::vector{right, wrong} : std::vector{right, right, wrong};
            const std::string fault = Model(ranks, programs, 2, Fault::none).explore().fault;
            EXPECT_NE(fault.find("a disagreement with rank"), std::string::npos) << fault;
        }
    }
}

TEST(Slots, model_finds_each_seeded_fault) {
    const Program one_way(6, {Collective::broadcast, 0, 1}), all(3, {Collective::all_gather, 0, 5}),
        blocks(3, {Collective::all_to_all, 0, 1}), gathers(3, {Collective::gather_v, 0, 1}),
        scatters(3, {Collective::scatter_v, faulty_rank, 1});
    const std::vector<std::pair<Fault, Program>> seeded{{Fault::says_too_early_that_it_goes_on, one_way},
                                                        {Fault::waits_for_one_rank_less, all},
                                                        {Fault::publishes_nothing, all},
                                                        {Fault::skips_a_number, all},
                                                        {Fault::skips_a_number, one_way},
                                                        {Fault::has_fewer_slots, one_way},
                                                        {Fault::has_another_digest, all},
                                                        {Fault::has_another_digest, blocks},
                                                        {Fault::sends_blocks_of_another_length, blocks},
                                                        {Fault::sends_blocks_of_another_length, gathers},
                                                        {Fault::sends_blocks_of_another_length, scatters},
                                                        {Fault::publishes_nothing, gathers}};
    for (const auto& [fault, program] : seeded) {
        const Outcome found = explore(3, program, 2, fault);
        EXPECT_NE(found.fault, "") << static_cast<int>(fault);
    }
}

}  // namespace
}  // namespace tutti::engine
