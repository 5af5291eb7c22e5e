// Every algorithm, for every collective that it serves, proved for many numbers of ranks, counts and layouts.
#include "algorithm/explain.hpp"
#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "algorithm/slots.hpp"
#include "schedule/prove.hpp"
#include "schedule/slots.hpp"
#include "schedule/text.hpp"
#include "support/request_of.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <array>
#include <numeric>
#include <set>

namespace tutti::algorithm {
namespace {

using schedule::Contract;
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

// The request of all ranks.
Request request_of(const Layout& layout, const Contract& contract) {
    Request request;
    request.collective = contract.collective;
    request.root = contract.root;
    request.count = contract.count;
    request.counts = contract.counts;
    request.in_place = contract.in_place;
    request.single_rounding = contract.single_rounding;
    request.rank_order = contract.rank_order;
    request.symmetric = true;  // so that the algorithms in place apply too
    if (traits_of(contract.collective).exchanges()) {
        request.send_counts.assign(static_cast<std::size_t>(layout.size()), 0);
        request.largest_count = 0;
        for (const auto& row : contract.matrix) {
            for (const std::uint64_t count : row) request.largest_count = std::max(*request.largest_count, count);
        }
        request.even = is_even(contract, *request.largest_count);
    }
    return request;
}

// One rank's blocks of an exchange.
void set_blocks(Request& request, const Contract& contract) {
    const auto me = static_cast<std::size_t>(request.rank);
    request.send_counts = contract.matrix[me];
    request.receive_counts.clear();
    for (const auto& row : contract.matrix) request.receive_counts.push_back(row[me]);
    const auto offsets = [](const std::vector<std::uint64_t>& counts) {
        std::vector<std::uint64_t> result(counts.size());
        std::exclusive_scan(counts.begin(), counts.end(), result.begin(), std::uint64_t{0});
        return result;
    };
    request.send_offsets = contract.send_offsets.empty() ? offsets(request.send_counts) : contract.send_offsets[me];
    request.receive_offsets =
        contract.receive_offsets.empty() ? offsets(request.receive_counts) : contract.receive_offsets[me];
}

// All ranks' schedules, by the algorithm that the request names.
std::vector<Schedule> schedules_of(const Layout& layout, Request request, const Contract& contract) {
    std::vector<Schedule> schedules;
    for (Rank rank = 0; rank < layout.size(); ++rank) {
        request.rank = rank;
        request.in_place = contract.in_place && traits_of(contract.collective).may_be_in_place(rank, contract.root);
        if (traits_of(contract.collective).exchanges()) set_blocks(request, contract);
        schedules.push_back(plan(layout, request));
    }
    return schedules;
}

// Proves all algorithms for one collective; returns how many were proved.
void expect_same(const Schedule& a, const Schedule& b, const std::string& text) {
    EXPECT_EQ(a.algorithm, b.algorithm);
    EXPECT_EQ(a.after, b.after) << text;
    ASSERT_EQ(a.steps.size(), b.steps.size()) << text;
    for (std::size_t i = 0; i < a.steps.size(); ++i) {
        const auto facts = [](const schedule::Step& s) {
            return std::tuple(s.kind, s.arrival_first, s.finish, s.everywhere, s.peer, s.round, s.slot_offset, s.whole,
                              s.target.buffer, s.target.offset, s.target.count, s.first_operand, s.operand_count,
                              s.first_after, s.after_count);
        };
        EXPECT_EQ(facts(a.steps[i]), facts(b.steps[i])) << "step " << i << " of\n" << text;
    }
    ASSERT_EQ(a.operands.size(), b.operands.size()) << text;
    for (std::size_t i = 0; i < a.operands.size(); ++i) {
        EXPECT_EQ(a.operands[i].peer, b.operands[i].peer);
        EXPECT_EQ(a.operands[i].chunk.count, b.operands[i].chunk.count);
        EXPECT_EQ(a.operands[i].slot_offset, b.operands[i].slot_offset);
    }
    EXPECT_EQ(a.buffers, b.buffers);
    EXPECT_EQ(
        std::tuple(a.publications, a.turn_group, a.in_place, a.in_slots, a.input_is_output, a.maps, a.single_rounding),
        std::tuple(b.publications, b.turn_group, b.in_place, b.in_slots, b.input_is_output, b.maps, b.single_rounding));
    ASSERT_EQ(a.otherwise == nullptr, b.otherwise == nullptr);
    if (a.otherwise) expect_same(*a.otherwise, *b.otherwise, text);
}

// Whatever a generator makes can be written down and read back.
void expect_same_by_text(const std::vector<Schedule>& schedules, const Contract& contract) {
    const std::string text = schedule::to_text({contract, schedules});
    const schedule::Recipe again = schedule::parse(text, "the text");
    ASSERT_EQ(again.ranks.size(), schedules.size());
    for (std::size_t r = 0; r < schedules.size() && !testing::Test::HasFailure(); ++r)
        expect_same(schedules[r], again.ranks[r], text);
}

int prove_all(const Layout& layout, Contract contract, const std::set<std::string>& only = {}) {
    const int n = layout.size();
    contract.host_of = layout.host_of;
    contract.slots = layout.slots;
    contract.slot_elements = layout.slot_bytes;
    Request request = request_of(layout, contract);
    contract.rank_order |= traits_of(contract.collective).is_prefix();  // by any algorithm
    int proved = 0;
    for (const std::string& name : applicable(layout, request)) {
        if (!only.empty() && !only.contains(name)) continue;
        request.algorithm = name;
        const std::vector<Schedule> schedules = schedules_of(layout, request, contract);
        expect_same_by_text(schedules, contract);
        const auto faults = schedule::prove(schedules, contract);
        EXPECT_TRUE(faults.empty()) << to_string(contract.collective) << ' ' << name << " n=" << n
                                    << " count=" << contract.count << ": " << (faults.empty() ? "" : faults.front());
        ++proved;
    }
    return proved;
}

std::vector<std::uint64_t> awkward_counts(int n) {
    return {0, 1, static_cast<std::uint64_t>(n - 1), static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(n + 1),
            13};
}

using Matrix = std::vector<std::vector<std::uint64_t>>;

Matrix uneven_matrix(std::size_t size) {
    Matrix matrix(size, std::vector<std::uint64_t>(size));
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t j = 0; j < size; ++j) matrix[i][j] = (i * 3 + j * 5) % 4;
    }
    return matrix;
}

// Those between the root and each rank.
Matrix with_root(Collective collective, int root, Matrix matrix) {
    for (std::size_t from = 0; from < matrix.size(); ++from) {
        for (std::size_t to = 0; to < matrix.size(); ++to) {
            if (!traits_of(collective).exchanges_between(static_cast<int>(from), static_cast<int>(to), root))
                matrix[from][to] = 0;
        }
    }
    return matrix;
}

// An exchange whose blocks lie in falling order of ranks, with a gap before each.
Contract apart(const Matrix& matrix, Collective collective = Collective::all_to_all, int root = 0) {
    const std::size_t size = matrix.size();
    Matrix send_offsets(size, std::vector<std::uint64_t>(size)), receive_offsets = send_offsets;
    for (std::size_t i = 0; i < size; ++i) {
        std::uint64_t sent = 0, received = 0;
        for (std::size_t j = size; j-- > 0;) {
            send_offsets[i][j] = sent += 1;
            receive_offsets[i][j] = received += 2;
            sent += matrix[i][j];
            received += matrix[j][i];
        }
    }
    return {.collective = collective,
            .root = root,
            .matrix = matrix,
            .send_offsets = send_offsets,
            .receive_offsets = receive_offsets};
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
        for (const Collective prefix : {Collective::scan, Collective::exscan}) {
            for (const bool in_place : {false, true}) {
                for (const bool once : {false, true}) {
                    prove_all(layout, {.collective = prefix,
                                       .count = count,
                                       .in_place = in_place,
                                       .single_rounding = once,
                                       .rank_order = once});
                }
            }
        }
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
    const Matrix matrix = uneven_matrix(size);
    prove_all(layout, {.collective = Collective::all_to_all, .matrix = matrix});
    prove_all(layout, apart(matrix));
    for (const std::uint64_t count : {0, 1, 3}) {
        const Matrix even(size, std::vector<std::uint64_t>(size, count));
        prove_all(layout, {.collective = Collective::all_to_all, .matrix = even});
        prove_all(layout, apart(even));
    }
    for (const Collective collective : {Collective::gather_v, Collective::scatter_v}) {
        for (const int root : {0, n - 1, n / 2}) {
            for (const Matrix& blocks : {matrix, Matrix(size, std::vector<std::uint64_t>(size, 3))}) {
                const Matrix rooted = with_root(collective, root, blocks);
                prove_all(layout, {.collective = collective, .root = root, .matrix = rooted});
                prove_all(layout, apart(rooted, collective, root));
            }
        }
    }
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
#ifdef TUTTI_EMULATED  // all of them take five minutes there
constexpr std::array many_ranks{10, 13, 18, 32};
#else
constexpr std::array many_ranks{10, 12, 13, 14, 15, 18, 23, 31, 32, 33, 64};
#endif

TEST(ManyRanks, are_proved_too) {
    for (const int n : many_ranks) {
        for (const int kind : {0, 1, 2, 4}) {
            if (kind == 4 && n % 4 != 0) continue;
            const Layout layout = layout_of(n, kind, static_cast<std::uint64_t>(n));
            const std::set<std::string> all;
            EXPECT_GT(
                prove_all(layout, {.collective = Collective::all_reduce, .count = static_cast<std::uint64_t>(n) + 1},
                          all),
                0);
            EXPECT_GT(prove_all(layout, {.collective = Collective::scan, .count = 5}), 0);
            EXPECT_GT(prove_all(layout, {.collective = Collective::exscan, .count = 5, .in_place = true}), 0);
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

TEST(InPlace, has_something_else_where_buffers_cannot_be_reached) {
    Layout layout = layout_of(4, 0, 1 << 17);
    Request request{.collective = Collective::broadcast, .element_bytes = 4, .count = 1 << 20, .symmetric = true};
    const Schedule mapped = plan(layout, request);
    EXPECT_EQ(mapped.algorithm, "in_place");
    ASSERT_TRUE(mapped.otherwise);
    EXPECT_EQ(mapped.otherwise->algorithm, "single_copy") << "the kernel may reach what is not mapped";
    ASSERT_TRUE(mapped.otherwise->otherwise);
    EXPECT_EQ(mapped.otherwise->otherwise->algorithm, "shared");
    EXPECT_FALSE(mapped.otherwise->otherwise->in_place);
    request.collective = Collective::all_reduce;
    EXPECT_EQ(plan(layout, request).algorithm, "in_place");
    EXPECT_EQ(plan(layout, request).otherwise->algorithm, "two_shot");
    request.symmetric = false;
    EXPECT_EQ(plan(layout, request).algorithm, "two_shot");
    EXPECT_EQ(plan(layout, request).otherwise, nullptr);
}

// Schedules in place with one step left out.
TEST(InPlace, needs_every_step) {
    int left_out = 0;
    const std::vector<std::uint64_t> counts(3, 4);
    for (const Contract& asked : {Contract{.collective = Collective::all_reduce, .count = 7},
                                  Contract{.collective = Collective::reduce, .root = 1, .count = 7},
                                  Contract{.collective = Collective::broadcast, .root = 1, .count = 7},
                                  Contract{.collective = Collective::gather, .root = 1, .counts = counts},
                                  Contract{.collective = Collective::all_gather, .counts = counts},
                                  Contract{.collective = Collective::scatter, .root = 1, .counts = counts},
                                  Contract{.collective = Collective::reduce_scatter, .counts = counts}}) {
        const Layout layout = layout_of(3, 0, 4);
        Contract contract = asked;
        contract.host_of = layout.host_of;
        contract.slots = layout.slots;
        contract.slot_elements = layout.slot_bytes;
        Request request = request_of(layout, contract);
        request.algorithm = "in_place";
        const std::vector<Schedule> right = schedules_of(layout, request, contract);
        for (std::size_t rank = 0; rank < right.size(); ++rank) {
            for (std::size_t i = 0; i < right[rank].steps.size(); ++i) {
                std::vector<Schedule> schedules = right;
                schedules[rank].steps[i] = {.kind = schedule::StepKind::release};  // of nothing
                EXPECT_FALSE(schedule::prove(schedules, contract).empty())
                    << to_string(contract.collective) << " rank " << rank << " step " << i << ": "
                    << schedule::to_string(right[rank].steps[i].kind);
                ++left_out;
            }
        }
    }
    EXPECT_GT(left_out, 60);
}

// Every place that some step of an all_to_all names, moved by one element, to either side.
template <class Try>
void with_each_offset_wrong(std::vector<Schedule>& schedules, Try&& attempt) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
        const auto move = [&](std::size_t step, const char* what, std::uint64_t& place) {
            const std::uint64_t right = place;
            for (const int by : {1, -1}) {
                if (by < 0 && right == 0) continue;
                place = right + static_cast<std::uint64_t>(by);
                attempt(::testing::Message()
                        << "rank " << rank << ", step " << step << ": " << what << " of " << right << " is " << place);
            }
            place = right;
        };
        Schedule& s = schedules[rank];
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            schedule::Step& step = s.steps[i];
            if (step.target.count > 0) {
                move(i, "the target", step.target.offset);
                if (step.kind == schedule::StepKind::read) move(i, "the place in a slot", step.slot_offset);
            }
            for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                schedule::Chunk& chunk = s.operands[step.first_operand + o].chunk;
                if (chunk.count > 0) move(i, "an operand", chunk.offset);
            }
        }
    }
}

TEST(Prover, finds_every_wrong_offset_of_every_all_to_all) {
    int mutations = 0;
    for (const int kind : {0, 1}) {
        const Layout layout = layout_of(4, kind, 4);
        for (const Matrix& matrix : {uneven_matrix(4), Matrix(4, std::vector<std::uint64_t>(4, 2))}) {
            Contract contract = apart(matrix);
            contract.host_of = layout.host_of;
            contract.slots = layout.slots;
            contract.slot_elements = layout.slot_bytes;
            Request request = request_of(layout, contract);
            for (const std::string& name : applicable(layout, request)) {
                request.algorithm = name;
                std::vector<Schedule> schedules = schedules_of(layout, request, contract);
                ASSERT_TRUE(schedule::prove(schedules, contract).empty()) << name;
                with_each_offset_wrong(schedules, [&](const ::testing::Message& what) {
                    EXPECT_FALSE(schedule::prove(schedules, contract).empty()) << name << ": " << what;
                    ++mutations;
                });
            }
        }
    }
    EXPECT_GT(mutations, 200);
}

// A block that goes to another place than was promised, and one that comes from another.
TEST(Prover, holds_schedules_to_the_promised_places) {
    const Layout layout = layout_of(5, 1, 4);
    const Contract right = apart(uneven_matrix(5));
    Contract contract = right;
    contract.host_of = layout.host_of;
    Request request = request_of(layout, contract);
    request.algorithm = "pairwise";
    const std::vector<Schedule> schedules = schedules_of(layout, request, contract);
    EXPECT_TRUE(schedule::prove(schedules, contract).empty());
    contract.receive_offsets[2][1] -= 1;
    EXPECT_FALSE(schedule::prove(schedules, contract).empty());
    contract.receive_offsets = right.receive_offsets;
    contract.send_offsets[4][1] -= 1;
    EXPECT_FALSE(schedule::prove(schedules, contract).empty());
}

TEST(Selection, passes_short_blocks_on_where_ranks_have_only_messages) {
    Request request{.collective = Collective::all_to_all, .element_bytes = 4, .largest_count = 64, .even = true};
    EXPECT_EQ(choose(layout_of(8, 1, 1 << 17), request).algorithm, "bruck");
    EXPECT_EQ(choose(layout_of(3, 1, 1 << 17), request).algorithm, "pairwise") << "it takes as many messages";
    EXPECT_EQ(choose(layout_of(8, 0, 1 << 17), request).algorithm, "slots");
    request.scheduled = true;
    EXPECT_EQ(choose(layout_of(8, 0, 1 << 17), request).algorithm, "shared");
    request.largest_count = 1 << 20;
    EXPECT_EQ(choose(layout_of(8, 1, 1 << 17), request).algorithm, "pairwise");
    request.largest_count = 64;
    request.even = false;
    EXPECT_EQ(choose(layout_of(8, 1, 1 << 17), request).algorithm, "pairwise") << "no rank knows the others' blocks";
}

TEST(Pairwise, has_only_so_much_under_way_over_sockets) {
    const Contract contract{.collective = Collective::all_to_all,
                            .matrix = Matrix(6, std::vector<std::uint64_t>(6, 2))};
    const auto waiting_sends = [&](Layout layout, std::uint64_t segment_bytes) {
        layout.segment_bytes = segment_bytes;
        Request request = request_of(layout, contract);
        request.algorithm = "pairwise";
        const Schedule schedule = schedules_of(layout, request, contract).front();
        return std::ranges::count_if(schedule.steps, [](const schedule::Step& step) {
            return step.kind == schedule::StepKind::send && step.after_count == 2;  // for a send, and for a receive
        });
    };
    EXPECT_EQ(waiting_sends(layout_of(6, 1, 64), 10), 0) << "all five blocks at once";
    EXPECT_EQ(waiting_sends(layout_of(6, 1, 64), 6), 2) << "three at once";
    EXPECT_EQ(waiting_sends(layout_of(6, 1, 64), 1), 4) << "one by one";
    EXPECT_EQ(waiting_sends(layout_of(6, 0, 64), 1), 0) << "shared memory";
}

TEST(Selection, chooses_by_size_layout_and_precision) {
    Layout host = layout_of(4, 0, 1 << 17), spread = layout_of(16, 1, 1 << 17);
    Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 2};
    EXPECT_EQ(choose(host, request).algorithm, "slots");
    request.scheduled = true;
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

TEST(Selection, sends_a_short_prefix_far_and_a_long_one_down_the_line) {
    const Layout host = layout_of(4, 0, 1 << 17), spread = layout_of(16, 1, 1 << 17);
    for (const Collective prefix : {Collective::scan, Collective::exscan}) {
        Request request{.collective = prefix, .element_bytes = 4, .count = 2};
        EXPECT_EQ(choose(host, request).algorithm, "slots");
        EXPECT_EQ(choose(spread, request).algorithm, "recursive_doubling");
        request.count = 1 << 24;
        EXPECT_EQ(choose(host, request).algorithm, "chain");
        EXPECT_EQ(choose(spread, request).algorithm, "chain");
        request.single_rounding = true;
        EXPECT_EQ(choose(host, request).algorithm, "shared");
        EXPECT_EQ(choose(spread, request).algorithm, "direct");
    }
}

// By formula, for a machine that has been measured.
TEST(Selection, prices_prefixes_by_length) {
    Layout spread = layout_of(16, 1, 1 << 17);
    spread.segment_bytes = 1 << 20;
    spread.machines = 16;
    spread.tuning.costs = CostModel{};
    spread.tuning.costs->cores = 64;
    for (const Collective prefix : {Collective::scan, Collective::exscan}) {
        Request request{.collective = prefix, .element_bytes = 4, .count = 2};
        EXPECT_NE(choose(spread, request).algorithm, "chain") << "15 messages one after the other";
        request.count = 1 << 24;
        EXPECT_EQ(choose(spread, request).algorithm, "chain");
    }
}

// Ranks of one machine that talk over TCP share its cores, which the formulas for many hosts do not know.
TEST(Selection, knows_many_hosts_from_ranks_that_share_none) {
    Layout spread = layout_of(13, 1, 1 << 17);
    const Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 1 << 14};
    EXPECT_EQ(choose(spread, request).algorithm, "recursive_halving");
    spread.machines = 13;
    EXPECT_EQ(choose(spread, request).algorithm, "circulant");
}

// A prefix must not have a rank's values twice, and not in another place.
TEST(Prover, holds_prefixes_to_the_order_of_ranks) {
    const Layout layout = layout_of(4, 1, 4);
    for (const Collective prefix : {Collective::scan, Collective::exscan}) {
        Contract contract{.collective = prefix, .count = 5, .rank_order = true, .host_of = layout.host_of};
        Request request = request_of(layout, contract);
        request.algorithm = "direct";
        const std::vector<Schedule> right = schedules_of(layout, request, contract);
        EXPECT_TRUE(schedule::prove(right, contract).empty());
        std::vector<Schedule> schedules = right;
        const auto combine = std::ranges::find(schedules[3].steps, schedule::StepKind::combine, &schedule::Step::kind);
        ASSERT_NE(combine, schedules[3].steps.end());
        std::swap(schedules[3].operands[combine->first_operand], schedules[3].operands[combine->first_operand + 1]);
        EXPECT_FALSE(schedule::prove(schedules, contract).empty()) << "rank 1 before rank 0";
        schedules = right;
        schedules[3].steps[static_cast<std::size_t>(combine - schedules[3].steps.begin())].operand_count = 2;
        contract.rank_order = false;
        EXPECT_TRUE(schedule::prove(right, contract).empty());
        EXPECT_FALSE(schedule::prove(schedules, contract).empty()) << "a rank is left out";
        Contract other = contract;
        other.collective = prefix == Collective::scan ? Collective::exscan : Collective::scan;
        EXPECT_FALSE(schedule::prove(right, other).empty()) << "with the rank's own values, or without";
    }
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
    EXPECT_EQ(parse_override("slots", Collective::barrier), "slots");
    EXPECT_EQ(parse_override("all_reduce=^slots", Collective::all_reduce), "^slots");
    EXPECT_THROW(parse_override("^rign", Collective::all_reduce), InvalidArgument);
    EXPECT_THROW(parse_override("rign", Collective::all_reduce), InvalidArgument);
}

TEST(Selection, takes_any_but_the_one_that_is_excluded) {
    const Layout host = layout_of(4, 0, 1 << 17);
    Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 2, .algorithm = "^slots"};
    EXPECT_EQ(choose(host, request).algorithm, "one_shot");
    EXPECT_EQ(plan(host, request).algorithm, "one_shot");
    const auto can = applicable(host, request);
    EXPECT_EQ(std::ranges::find(can, "slots"), can.end());
    request.algorithm = "^one_shot";
    EXPECT_EQ(choose(host, request).algorithm, "slots");
    request = {.collective = Collective::all_to_all, .algorithm = "^pairwise"};
    EXPECT_THROW(choose(layout_of(3, 1, 1 << 17), request), InvalidArgument) << "there is no other one";
}

Request even_request(Collective collective, std::uint64_t bytes, int ranks) {
    Request request{.collective = collective, .count = bytes, .largest_count = bytes, .even = true};
    if (!traits_of(collective).exchanges()) request.counts.assign(static_cast<std::size_t>(ranks), bytes);
    return request;
}

// The sizes that the group asks for beforehand agree with choose() for each size.
void expect_slot_sizes(const Layout& layout, const std::optional<std::string>& named) {
    const int n = layout.size();
    for (int c = 1; c <= collective_count; ++c) {
        const auto collective = static_cast<Collective>(c);
        const auto sizes = slot_sizes(layout, collective, named);
        const std::uint64_t most = schedule::longest_in_slot(collective, n);
        std::set<std::uint64_t> tried{0, 1, 8, 1000, 4095, 4096, 5000, 9000, 20000, most - 1, most, most + 1, 2 * most};
        for (const Rule& rule : layout.tuning.rules) tried.insert({rule.up_to_bytes, rule.up_to_bytes + 1});
        for (const std::uint64_t bytes : tried) {
            if (bytes > (collective == Collective::barrier ? 0 : 4 * most)) continue;
            Request request = even_request(collective, bytes, n);
            request.algorithm = named;
            const bool said =
                std::ranges::any_of(sizes, [&](const SlotSizes& s) { return bytes >= s.from && bytes <= s.to; });
            bool chosen = false;
            try {
                chosen = choose(layout, request).algorithm == in_slots;
            } catch (const InvalidArgument&) {  // the named algorithm does not serve it
            }
            EXPECT_EQ(said, chosen) << to_string(collective) << ' ' << bytes << " bytes, " << named.value_or("-");
        }
    }
}

TEST(Slots, are_taken_for_the_sizes_that_are_said_beforehand) {
    for (const int n : {1, 2, 3, 8, 32}) {
        for (const int kind : {0, 1}) {
            Layout layout = layout_of(n, kind, 1 << 17);
            for (const char* const name : {"", "slots", "^slots", "^ring", "one_shot", "shared"}) {
                const auto named = name[0] == 0 ? std::nullopt : std::optional<std::string>(name);
                layout.tuning.rules = {};
                expect_slot_sizes(layout, named);
                layout.tuning.rules = {
                    {Collective::all_reduce, "one_shot", 64},   {Collective::all_reduce, "slots", 1024},
                    {Collective::all_reduce, "two_shot", 4096}, {Collective::broadcast, "shared"},
                    {Collective::barrier, "shared", 0},         {Collective::all_to_all, "pairwise", 16}};
                expect_slot_sizes(layout, named);
                layout.tuning.costs = CostModel{};
                layout.tuning.costs->cores = 64;
                expect_slot_sizes(layout, named);
                layout.tuning.rules = {};
                expect_slot_sizes(layout, named);
                layout.tuning.costs.reset();
            }
        }
    }
    Layout two = layout_of(2, 0, 1 << 17);
    EXPECT_EQ(slot_sizes(two, Collective::all_reduce, {}), (std::vector<SlotSizes>{{0, 32768}}));
    EXPECT_EQ(slot_sizes(two, Collective::all_reduce, "^slots"), std::vector<SlotSizes>{});
    EXPECT_EQ(slot_sizes(layout_of(2, 1, 1 << 17), Collective::all_reduce, {}), std::vector<SlotSizes>{});
    two.tuning.rules = {{Collective::all_reduce, "one_shot", 64},
                        {Collective::all_reduce, "slots", 1024},
                        {Collective::all_reduce, "two_shot", 4096}};
    EXPECT_EQ(slot_sizes(two, Collective::all_reduce, {}), (std::vector<SlotSizes>{{65, 1024}, {4097, 32768}}));
}

TEST(Slots, are_published_into_once_and_by_all_ranks_or_none) {
    const Layout layout = layout_of(3, 0, 4);
    const Contract contract{
        .collective = Collective::all_reduce, .count = 13, .host_of = layout.host_of, .slot_elements = 4};
    Request request = request_of(layout, contract);
    request.algorithm = "slots";
    std::vector<Schedule> schedules = schedules_of(layout, request, contract);
    EXPECT_TRUE(schedule::prove(schedules, contract).empty());
    schedules[1].in_slots = false;
    EXPECT_FALSE(schedule::prove(schedules, contract).empty()) << "one rank runs a schedule, the others do not";
    schedules[1].in_slots = true;
    const auto publish = std::ranges::find(schedules[2].steps, schedule::StepKind::publish, &schedule::Step::kind);
    schedules[2].steps.insert(publish, *publish);
    EXPECT_FALSE(schedule::prove(schedules, contract).empty()) << "a second publication";
}

TEST(Explain, names_the_algorithm_the_reason_and_the_steps) {
    Request request{.collective = Collective::all_reduce, .element_bytes = 4, .count = 2};
    const std::string text = explain(layout_of(2, 0, 1 << 17), request, "a test");
    for (const char* words : {"2 ranks: slots\n", "why:", "read_combine", "slots of 32768 bytes"})
        EXPECT_NE(text.find(words), std::string::npos) << words << " in " << text;
    request.algorithm = "^slots";
    EXPECT_NE(explain(layout_of(2, 0, 1 << 17), request, "a test").find("2 ranks: one_shot\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::algorithm
