// Every algorithm, for every collective that it serves, proved for many numbers of ranks, counts and layouts.
#include "algorithm/explain.hpp"
#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "schedule/prove.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <numeric>
#include <set>

namespace tutti::algorithm {
namespace {

using schedule::Promise;
using schedule::Schedule;

Layout layout_of(int n, int kind, std::uint64_t slot) {
    Layout layout;
    layout.host_of.resize(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
        const int two = r < (n + 2) / 3 ? 0 : 1;
        const int host = kind == 0 ? 0 : kind == 1 ? r : kind == 2 ? two : kind == 3 ? r % 3 : r / 4;
        layout.host_of[static_cast<std::size_t>(r)] = host;
    }
    layout.shared_memory = layout.pulls = true;
    layout.slot_bytes = slot;
    layout.slots = 8;
    layout.segment_bytes = 3;
    return layout;
}

// Which buffers of which ranks lie in symmetric memory. Up to four ranks: every mixture. More: none, all, some ranks',
// only inputs, only outputs; of more than nine none and all.
std::vector<std::vector<unsigned>> symmetries(const std::vector<Schedule>& schedules) {
    const std::size_t n = schedules.size();
    std::vector<std::vector<unsigned>> result{{}};
    if (std::ranges::all_of(schedules, [](const Schedule& s) { return s.publications == 0; })) return result;
    constexpr unsigned input = 1U << static_cast<unsigned>(schedule::Buffer::input);
    constexpr unsigned output = 1U << static_cast<unsigned>(schedule::Buffer::output);
    if (n <= 4) {
        for (unsigned mixture = 1; mixture < 1U << 2 * n; ++mixture) {
            std::vector<unsigned>& buffers = result.emplace_back(n);
            for (std::size_t rank = 0; rank < n; ++rank) {
                if ((mixture >> 2 * rank & 1) != 0) buffers[rank] |= input;
                if ((mixture >> 2 * rank & 2) != 0) buffers[rank] |= output;
            }
        }
        return result;
    }
    result.emplace_back(n, input | output);
    if (n > 9) return result;
    std::vector<unsigned> some(n), others(n);
    for (std::size_t i = 0; i < n; ++i) (i % 2 == 0 ? some : others)[i] = input | output;
    result.insert(result.end(), {some, others, std::vector<unsigned>(n, input), std::vector<unsigned>(n, output)});
    return result;
}

// Proves all algorithms for one collective; returns how many were proved.
int prove_all(const Layout& layout, Promise promise, const std::set<std::string>& only = {}) {
    const int n = layout.size();
    Request request;
    request.collective = promise.collective;
    request.root = promise.root;
    request.count = promise.count;
    request.counts = promise.counts;
    promise.host_of = layout.host_of;
    promise.slots = layout.slots;
    promise.slot_elements = layout.slot_bytes;
    request.in_place = promise.in_place;
    request.single_rounding = promise.single_rounding;
    request.rank_order = promise.rank_order;
    if (promise.collective == Collective::all_to_all) {
        request.send_counts.assign(static_cast<std::size_t>(n), 0);
        request.largest_count = 0;
        for (const auto& row : promise.matrix) {
            for (const std::uint64_t count : row) request.largest_count = std::max(*request.largest_count, count);
        }
    }
    int proved = 0;
    for (const std::string& name : applicable(layout, request)) {
        if (!only.empty() && !only.contains(name)) continue;
        request.algorithm = name;
        std::vector<Schedule> schedules;
        for (Rank rank = 0; rank < n; ++rank) {
            request.rank = rank;
            request.in_place = promise.in_place;
            if (promise.collective == Collective::all_to_all) {
                const auto& matrix = promise.matrix;
                request.send_counts = matrix[static_cast<std::size_t>(rank)];
                request.receive_counts.clear();
                for (const auto& row : matrix) request.receive_counts.push_back(row[static_cast<std::size_t>(rank)]);
                const auto offsets = [](const std::vector<std::uint64_t>& counts) {
                    std::vector<std::uint64_t> result(counts.size());
                    std::exclusive_scan(counts.begin(), counts.end(), result.begin(), std::uint64_t{0});
                    return result;
                };
                const auto me = static_cast<std::size_t>(rank);
                request.send_offsets =
                    promise.send_offsets.empty() ? offsets(request.send_counts) : promise.send_offsets[me];
                request.receive_offsets =
                    promise.receive_offsets.empty() ? offsets(request.receive_counts) : promise.receive_offsets[me];
            }
            schedules.push_back(plan(layout, request));
        }
        for (const auto& symmetric : symmetries(schedules)) {
            promise.symmetric = symmetric;
            const auto faults = schedule::prove(schedules, promise);
            EXPECT_TRUE(faults.empty()) << to_string(promise.collective) << ' ' << name << " n=" << n
                                        << " count=" << promise.count
                                        << " symmetric=" << testing::PrintToString(symmetric) << ": "
                                        << (faults.empty() ? "" : faults.front());
        }
        ++proved;
    }
    return proved;
}

std::vector<std::uint64_t> awkward_counts(int n) {
    return {0, 1, static_cast<std::uint64_t>(n - 1), static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(n + 1),
            13};
}

void prove_for(int n, int kind, std::uint64_t slot) {
    const Layout layout = layout_of(n, kind, slot);
    const auto size = static_cast<std::size_t>(n);
    for (const std::uint64_t count : awkward_counts(n)) {
        for (const bool in_place : {false, true}) {
            prove_all(layout, {.collective = Collective::all_reduce, .count = count, .in_place = in_place});
        }
        prove_all(layout,
                  {.collective = Collective::all_reduce, .count = count, .single_rounding = true, .rank_order = true});
        for (const Rank root : {0, n / 2, n - 1}) {
            if (root != 0 && n == 1) continue;
            prove_all(layout, {.collective = Collective::broadcast, .root = root, .count = count});
            prove_all(layout, {.collective = Collective::reduce, .root = root, .count = count});
            std::vector<std::uint64_t> even(size, count);
            prove_all(layout, {.collective = Collective::scatter, .root = root, .counts = even});
            prove_all(layout, {.collective = Collective::gather, .root = root, .counts = even});
        }
        std::vector<std::uint64_t> uneven(size);
        for (std::size_t i = 0; i < size; ++i) uneven[i] = (count + i * 5) % 7;
        for (const auto& counts : {std::vector<std::uint64_t>(size, count % 5), uneven}) {
            prove_all(layout, {.collective = Collective::all_gather, .counts = counts});
            prove_all(layout, {.collective = Collective::reduce_scatter, .counts = counts});
            prove_all(layout, {.collective = Collective::reduce_scatter,
                               .counts = counts,
                               .single_rounding = true,
                               .rank_order = true});
        }
    }
    std::vector<std::vector<std::uint64_t>> matrix(size, std::vector<std::uint64_t>(size));
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t j = 0; j < size; ++j) matrix[i][j] = (i * 3 + j * 5) % 4;
    }
    prove_all(layout, {.collective = Collective::all_to_all, .matrix = matrix});
    // Blocks in falling order of ranks, with a gap before each.
    std::vector<std::vector<std::uint64_t>> send_offsets(size, std::vector<std::uint64_t>(size));
    auto receive_offsets = send_offsets;
    for (std::size_t i = 0; i < size; ++i) {
        std::uint64_t sent = 0, received = 0;
        for (std::size_t j = size; j-- > 0;) {
            send_offsets[i][j] = sent += 1;
            receive_offsets[i][j] = received += 2;
            sent += matrix[i][j];
            received += matrix[j][i];
        }
    }
    prove_all(layout, {.collective = Collective::all_to_all,
                       .matrix = matrix,
                       .send_offsets = send_offsets,
                       .receive_offsets = receive_offsets});
    prove_all(layout, {.collective = Collective::barrier});
}

class EveryAlgorithm : public ::testing::TestWithParam<int> {};

TEST_P(EveryAlgorithm, keeps_its_promise) {
    const int n = GetParam();
    for (const int kind : {0, 1, 2, 3, 4}) {
        if (kind == 4 && n % 4 != 0) continue;  // that one is for hosts of equally many ranks
        prove_for(n, kind, static_cast<std::uint64_t>(std::max(n, 4)));
        if (n <= 9) prove_for(n, kind, 64);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17));

// The largest worlds with fewer counts, so that the whole sweep stays short.
TEST(ManyRanks, are_proved_too) {
    for (const int n : {10, 12, 13, 14, 15, 18, 23, 31, 32, 33, 64}) {
        for (const int kind : {0, 1, 2, 4}) {
            if (kind == 4 && n % 4 != 0) continue;
            const Layout layout = layout_of(n, kind, static_cast<std::uint64_t>(n));
            const std::set<std::string> all;
            EXPECT_GT(
                prove_all(layout, {.collective = Collective::all_reduce, .count = static_cast<std::uint64_t>(n) + 1},
                          all),
                0);
            prove_all(layout, {.collective = Collective::broadcast, .root = n / 3, .count = 5});
            prove_all(layout, {.collective = Collective::reduce, .root = n - 1, .count = 5});
            prove_all(layout, {.collective = Collective::all_gather,
                               .counts = std::vector<std::uint64_t>(static_cast<std::size_t>(n), 2)});
            prove_all(layout, {.collective = Collective::reduce_scatter,
                               .counts = std::vector<std::uint64_t>(static_cast<std::size_t>(n), 1)});
            prove_all(layout, {.collective = Collective::gather,
                               .root = 1,
                               .counts = std::vector<std::uint64_t>(static_cast<std::size_t>(n), 1)});
            prove_all(layout, {.collective = Collective::barrier});
        }
    }
}

TEST(Selection, chooses_by_size_layout_and_precision) {
    Layout host = layout_of(4, 0, 1 << 17), spread = layout_of(16, 1, 1 << 17);
    Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 2};
    EXPECT_EQ(choose(host, request).algorithm, "one_shot");
    EXPECT_EQ(choose(spread, request).algorithm, "recursive_doubling");
    request.count = 1 << 24;
    EXPECT_EQ(choose(host, request).algorithm, "two_shot");
    EXPECT_EQ(choose(spread, request).algorithm, "ring");
    request.single_rounding = true;
    EXPECT_EQ(choose(spread, request).algorithm, "two_shot_messages");
    request.algorithm = "ring";
    EXPECT_THROW(choose(spread, request), InvalidArgument);
}

TEST(Selection, over_several_hosts_is_by_leaders_or_by_rails) {
    const Layout even = layout_of(8, 4, 1 << 17), uneven = layout_of(7, 4, 1 << 17);
    Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 2};
    EXPECT_EQ(choose(even, request).algorithm, "hierarchical");
    request.count = 1 << 24;
    EXPECT_EQ(choose(even, request).algorithm, "rails");
    EXPECT_EQ(choose(uneven, request).algorithm, "hierarchical");
    EXPECT_EQ(choose(uneven, {.collective = Collective::barrier}).algorithm, "hierarchical");
    request.single_rounding = true;
    EXPECT_EQ(choose(even, request).algorithm, "two_shot_messages");
}

// Long buffers go in blocks whose phases overlap.
TEST(SeveralHosts, keep_their_promise_for_many_blocks) {
    for (const int n : {4, 6, 7, 8, 12}) {
        for (const int kind : {2, 3, 4}) {
            const Layout layout = layout_of(n, kind, static_cast<std::uint64_t>(n));
            const std::set<std::string> both{"hierarchical", "rails"};
            const std::vector<std::uint64_t> counts(static_cast<std::size_t>(n), 29);
            prove_all(layout, {.collective = Collective::all_reduce, .count = 301}, both);
            prove_all(layout, {.collective = Collective::all_reduce, .count = 301, .in_place = true}, both);
            prove_all(layout, {.collective = Collective::reduce, .root = n - 1, .count = 97}, both);
            prove_all(layout, {.collective = Collective::broadcast, .root = n / 2, .count = 97}, both);
            prove_all(layout, {.collective = Collective::all_gather, .counts = counts}, both);
            prove_all(layout, {.collective = Collective::reduce_scatter, .counts = counts}, both);
        }
    }
}

// A block that is cut in two because there is a little too much of it waits twice as often.
TEST(SeveralHosts, put_a_little_more_than_a_block_into_one) {
    const Layout layout = layout_of(8, 4, 64);
    const auto sends = [&](std::uint64_t count) {
        const Schedule schedule =
            plan(layout, {.collective = Collective::all_reduce, .count = count, .algorithm = "rails"});
        return std::ranges::count(schedule.steps, schedule::StepKind::send, &schedule::Step::kind);
    };
    const std::uint64_t block = layout.segment_bytes * 8;  // a message for each of two hosts from each of four ranks
    EXPECT_EQ(sends(block), sends(block + block / 2 - 1));
    EXPECT_EQ(2 * sends(block), sends(block + block / 2));
    EXPECT_EQ(2 * sends(block), sends(2 * block + block / 2 - 1));
}

TEST(Selection, can_be_overridden_by_name) {
    EXPECT_EQ(parse_override("ring", Collective::all_reduce), "ring");
    EXPECT_EQ(parse_override("ring", Collective::barrier), std::nullopt);
    EXPECT_EQ(parse_override("all_reduce=ring,broadcast=chain", Collective::broadcast), "chain");
    EXPECT_THROW(parse_override("rign", Collective::all_reduce), InvalidArgument);
}

TEST(Explain, names_the_algorithm_the_reason_and_the_steps) {
    const std::string text = explain(layout_of(2, 0, 1 << 17),
                                     {.collective = Collective::all_reduce, .element_bytes = 4, .count = 2}, "a test");
    EXPECT_NE(text.find("one_shot"), std::string::npos);
    EXPECT_NE(text.find("why:"), std::string::npos);
    EXPECT_NE(text.find("read_combine"), std::string::npos);
}

}  // namespace
}  // namespace tutti::algorithm
