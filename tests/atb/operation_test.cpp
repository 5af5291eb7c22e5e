// AllToAllVV2: the document's example, random exchanges against its formula, arguments that it refuses.
#include "atb/ranks.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/tutti.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using atb::AllToAllVV2;
using atb::AllToAllVV2Inputs;
using atb::AllToAllVV2Param;
using atb::OperationTorch;
using Numbers = std::vector<std::int64_t>;
using Clock = std::chrono::steady_clock;

// ---- The document's example

const std::vector<Numbers> send_counts{{2, 4}, {2, 1}}, send_places{{0, 2}, {0, 2}}, receive_counts{{2, 2}, {4, 1}},
    receive_places{{0, 2}, {0, 4}};
const std::vector<std::vector<int>> inputs{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 6}},
    outputs{{0, 1, 0, 1}, {2, 3, 4, 5, 2}};

std::string json(const Numbers& numbers) {
    std::string text;
    for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
    return "[" + text + "]";
}

template <class T>
std::vector<T> as(const std::vector<int>& values) {
    std::vector<T> result;
    for (const int value : values) result.push_back(static_cast<T>(static_cast<float>(value)));
    return result;
}

template <class T>
void documents_test(OperationTorch& operation, std::size_t rank, const std::string& mode) {
    operation.set_param(R"({"rank": )" + std::to_string(rank) + R"(, "rankSize": 2, "rankRoot": 0, "backend": "hccl")" +
                        mode + "}");
    operation.set_varaintpack_param(R"({"sendCounts": )" + json(send_counts[rank]) + R"(, "sdispls": )" +
                                    json(send_places[rank]) + R"(, "recvCounts": )" + json(receive_counts[rank]) +
                                    R"(, "rdispls": )" + json(receive_places[rank]) + "}");
    const std::vector<T> x = as<T>(inputs[rank]);
    const std::vector<std::int8_t> shape(outputs[rank].size(), 3);
    const auto columns = static_cast<std::int64_t>(x.size() / 2);
    const std::vector<Tensor> results =
        operation.execute({view(x.data(), {2, columns}), send_counts[rank], send_places[rank], receive_counts[rank],
                           receive_places[rank], shape});
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].shape(), (Extents{1, static_cast<std::int64_t>(outputs[rank].size())}));
    EXPECT_TRUE(std::ranges::equal(results[0].span<T>(), as<T>(outputs[rank])));
}

void documents_program(int rank, const std::string& mode) {
    OperationTorch operation("AllToAllVV2Operation");
    const auto r = static_cast<std::size_t>(rank);
    documents_test<std::int8_t>(operation, r, mode);
    documents_test<std::int16_t>(operation, r, mode);
    documents_test<std::int32_t>(operation, r, mode);
    documents_test<std::int64_t>(operation, r, mode);
    documents_test<float>(operation, r, mode);
    documents_test<Float16>(operation, r, mode);
    documents_test<BFloat16>(operation, r, mode);
}

class Operation : public Atb {};

TEST_F(Operation, of_the_document_runs_in_processes_for_its_seven_types) {
    covers("A-24", "S21-001", "S21-016", "S21-017", "S21-018", "S21-019", "S21-020", "S21-021", "S21-022", "S21-023",
           "S21-024", "S21-025", "E-401");
    run_processes(2, [](int rank) { documents_program(rank, ""); });
}

TEST_F(Operation, of_the_document_runs_in_threads) {
    covers("S21-015");
    run_threads(2, [](int rank) { documents_program(rank, R"(, "commMode": 1)"); });
}

TEST_F(Operation, has_a_name) {
    EXPECT_TRUE(
        has(message_of<atb::Error>([] { OperationTorch("AllGatherOperation"); }), "expected \"AllToAllVV2Operation\""));
    OperationTorch operation("AllToAllVV2Operation");
    EXPECT_EQ(operation.op_name(), "AllToAllVV2Operation");
    EXPECT_TRUE(has(message_of<atb::Error>([&] { operation.execute({}); }), "expected a call of set_param before"));
}

// ---- Random exchanges, in a group of the caller's

struct Exchange {
    std::vector<Numbers> counts, from, to;  // [rank][peer]; counts: from rank to peer
    std::vector<std::int64_t> elements;     // of each input
    Numbers received_by(std::size_t rank) const {
        Numbers received;
        for (const Numbers& row : counts) received.push_back(row[rank]);
        return received;
    }
};

Exchange random_exchange(std::mt19937& random, std::size_t n, bool gaps) {
    const auto some = [&](unsigned most) { return static_cast<std::int64_t>(random() % (most + 1)); };
    Exchange e;
    for (std::size_t r = 0; r < n; ++r) {
        e.counts.emplace_back();
        for (std::size_t p = 0; p < n; ++p)
            e.counts.back().push_back(random() % 4 == 0 ? 0 : some(random() % 5 == 0 ? 5000 : 9));
    }
    const auto place = [&](const Numbers& counts, Numbers& places) {
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), std::size_t{0});
        if (gaps) std::ranges::shuffle(order, random);
        places.assign(n, 0);
        std::int64_t end = 0;
        for (const std::size_t i : order) {
            if (gaps) end += some(3);
            places[i] = end;
            end += counts[i];
        }
        return end;
    };
    e.from.resize(n);
    e.to.resize(n);
    for (std::size_t r = 0; r < n; ++r) e.elements.push_back(place(e.counts[r], e.from[r]) + some(4));
    for (std::size_t r = 0; r < n; ++r) place(e.received_by(r), e.to[r]);
    return e;
}

std::vector<float> input_of(const Exchange& e, std::size_t rank) {
    std::vector<float> x(static_cast<std::size_t>(e.elements[rank]));
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(1000 * rank + k % 997 + 1);
    return x;
}

class Communicator : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Communicator, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(Communicator, of_the_caller_carries_what_the_formula_says) {
    covers("S21-008", "S21-009", "S21-026");
    for (const int n : {1, 2, 3, 5}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto me = static_cast<std::size_t>(g.rank()), un = static_cast<std::size_t>(g.size());
            AllToAllVV2 operation({.hcclComm = g, .commMode = atb::COMM_MULTI_THREAD});
            EXPECT_EQ(operation.group(), g);
            std::mt19937 random(5);
            for (int round = 0; round < 40; ++round) {
                const bool gaps = round % 2 == 1;
                const Exchange e = random_exchange(random, un, gaps);
                const std::vector<float> x = input_of(e, me);
                AllToAllVV2Inputs given{.sendCounts = e.counts[me],
                                        .sdispls = e.from[me],
                                        .recvCounts = e.received_by(me),
                                        .rdispls = gaps ? e.to[me] : Numbers{}};
                const Tensor output = operation.execute(x, given);
                // For each rank in turn the slice of its input; at its place, where places are given.
                std::vector<float> want(static_cast<std::size_t>(output.element_count()));
                std::int64_t next = 0;
                for (std::size_t peer = 0; peer < un; ++peer) {
                    const std::vector<float> theirs = input_of(e, peer);
                    const std::int64_t count = e.counts[peer][me], begin = e.from[peer][me];
                    std::copy_n(theirs.begin() + begin, count, want.begin() + (gaps ? e.to[me][peer] : next));
                    next += count;
                }
                ASSERT_TRUE(std::ranges::equal(output.span<float>(), want)) << "round " << round << " of " << un;
            }
        });
    }
}

TEST_P(Communicator, transposes_a_matrix_whose_rows_are_shared_by_ranks) {
    covers("S21-002");
    // Each rank has rows of a matrix with 6 columns, and gets columns: from data-parallel to model-parallel.
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t columns = 6;
        const std::int64_t rows = g.rank() + 1, mine = columns / 3;  // ranks have 1, 2 and 3 rows
        std::vector<int> x;                                          // column by column, as a transpose needs it
        const std::int64_t first_row = g.rank() * (g.rank() + 1) / 2;
        for (std::int64_t c = 0; c < columns; ++c)
            for (std::int64_t r = 0; r < rows; ++r) x.push_back(static_cast<int>(100 * (first_row + r) + c));
        AllToAllVV2 operation({.hcclComm = g});
        const Tensor y =
            operation.execute(x, {.sendCounts = Numbers(3, mine * rows), .recvCounts = {mine * 1, mine * 2, mine * 3}});
        std::vector<int> want;
        for (std::int64_t from = 0, first = 0; from < 3; first += ++from)
            for (std::int64_t c = 0; c < mine; ++c)
                for (std::int64_t r = 0; r <= from; ++r)
                    want.push_back(static_cast<int>(100 * (first + r) + g.rank() * mine + c));
        EXPECT_TRUE(std::ranges::equal(y.span<int>(), want));
    });
}

TEST_P(Communicator, leaves_what_no_block_covers_as_it_is) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        AllToAllVV2 operation({.hcclComm = g});
        const std::vector<int> x{10 * g.rank() + 1, 10 * g.rank() + 2};
        const AllToAllVV2Inputs apart{.sendCounts = {1, 1}, .recvCounts = {1, 1}, .rdispls = {3, 1}};
        const int a = 1 + g.rank(), b = 11 + g.rank();
        const Tensor fresh = operation.execute(x, apart);
        EXPECT_EQ(fresh.shape(), (Extents{1, 4}));
        EXPECT_TRUE(std::ranges::equal(fresh.span<int>(), std::vector<int>{0, b, 0, a}));
        std::vector<int> kept(6, -1);
        operation.execute(kept, x, apart);
        EXPECT_EQ(kept, (std::vector<int>{-1, b, -1, a, -1, -1}));
    });
}

TEST_P(Communicator, of_the_caller_stays_usable_after_a_call_that_was_refused) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        AllToAllVV2 operation({.hcclComm = g});
        std::vector<int> x{1, 2};
        std::vector<float> other(2);
        EXPECT_TRUE(has(message_of<atb::Error>([&] { operation.execute(x, {.sendCounts = {1, 2}}); }), "leaves x"));
        EXPECT_TRUE(
            has(message_of<atb::Error>([&] { operation.execute(other, x); }), "output is float32[2]: expected int32"));
        EXPECT_TRUE(has(message_of<atb::Error>([&] { operation.execute(x, x); }), "shares memory with x"));
        EXPECT_EQ(sum_over(operation, g.rank() + 1), 3);
    });
}

TEST_F(Operation, takes_a_handle_of_the_c_interface_as_communicator) {
    covers("S21-008");
    tutti_store* store = nullptr;
    ASSERT_EQ(tutti_store_hash(0, &store), TUTTI_OK);
    run_threads(2, [&](int rank) {
        tutti_group_options options = TUTTI_GROUP_OPTIONS_INIT;
        options.store = store;
        options.rank = rank;
        options.world_size = 2;
        tutti_group* group = nullptr;
        ASSERT_EQ(tutti_group_create(&options, &group), TUTTI_OK) << tutti_last_error();
        AllToAllVV2 operation({.hcclComm = group, .commMode = atb::COMM_MULTI_THREAD});
        EXPECT_EQ(sum_over(operation, rank + 1), 3);
        EXPECT_FALSE(atb::HcclComm(static_cast<tutti_group*>(nullptr)));
        const auto no_group = reinterpret_cast<tutti_group*>(store);
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { (void)atb::HcclComm(no_group); }), "HcclComm"));
        tutti_group_free(group);
    });
    tutti_store_free(store);
}

// ---- What one rank alone can know is an error on all of them, in the same call, and the group stays as it is

void refused_on_one_rank(AllToAllVV2& operation) {
    const int rank = operation.group().rank();
    const std::vector<int> x(6);
    std::vector<int> too_short(2);
    for (int turn = 0; turn < 20; ++turn) {
        EXPECT_EQ(sum_over(operation, rank), 3);
        const auto began = Clock::now();
        const auto call = [&] {
            if (turn % 2 == 0) {
                operation.execute(x, {.sendCounts = {1, rank == 1 ? -1 : 1, 1}, .recvCounts = {1, 1, 1}});
            } else if (rank == 1) {
                operation.execute(too_short, x, {.recvCounts = {2, 2, 2}});
            } else {
                operation.execute(x);
            }
        };
        try {
            call();
            ADD_FAILURE() << "rank " << rank << " noticed nothing in turn " << turn;
        } catch (const atb::Error& error) {
            const std::string text = error.what();
            EXPECT_LT(Clock::now() - began, 5s);
            EXPECT_EQ(has(text, "rank 1 was refused"), rank != 1) << text;
            EXPECT_EQ(error.context().peer, rank != 1 ? 1 : -1);
            EXPECT_TRUE(has(text, turn % 2 == 0 ? "sendCounts[1] is -1" : "output has 2 elements")) << text;
            EXPECT_EQ(error.code(), turn % 2 == 0 ? atb::ERROR_INVALID_PARAM : atb::ERROR_INVALID_TENSOR_DIM);
        }
    }
    EXPECT_EQ(sum_over(operation, rank), 3) << "the next call of all ranks is as good as ever";
}

TEST_P(Communicator, of_the_caller_tells_all_ranks_that_one_was_refused_and_stays_usable) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        AllToAllVV2 operation({.hcclComm = g});
        refused_on_one_rank(operation);
    });
}

TEST_F(Operation, that_is_refused_on_one_rank_is_refused_on_all_in_a_domain_of_processes_and_of_threads) {
    run_processes(3, [](int rank) {
        AllToAllVV2 operation({.rank = rank, .rankSize = 3});
        refused_on_one_rank(operation);
    });
    run_threads(3, [](int rank) {
        AllToAllVV2 operation({.rank = rank, .rankSize = 3, .commMode = atb::COMM_MULTI_THREAD});
        refused_on_one_rank(operation);
    });
}

TEST_P(Communicator, names_pairs_that_disagree_on_every_rank_within_a_second_and_stays_usable) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        AllToAllVV2 operation({.hcclComm = g});
        const std::vector<int> x(9);
        const std::vector<float> y(9);
        const AllToAllVV2Inputs ones{.sendCounts = {1, 1, 1}, .recvCounts = {1, 1, 1}};
        for (int turn = 0; turn < 20; ++turn) {
            EXPECT_EQ(sum_over(operation, g.rank()), 3);
            AllToAllVV2Inputs given = ones;
            if (g.rank() == 0 && turn % 2 == 0) given.sendCounts = {1, 3, 1};
            const auto began = Clock::now();
            const std::string text = message_of<CollectiveMismatch>([&] {
                if (turn % 2 == 1 && g.rank() == 2)
                    operation.execute(y, given);
                else
                    operation.execute(x, given);
            });
            EXPECT_LT(Clock::now() - began, 1s);
            if (turn % 2 == 0) {
                EXPECT_TRUE(text.ends_with("rank 0 sends int32 × 3 to rank 1, which expects int32 × 1")) << text;
            } else {
                EXPECT_TRUE(has(text, "rank 2 sends float32 × 1 to rank 0, which expects int32 × 1")) << text;
            }
        }
        EXPECT_EQ(sum_over(operation, g.rank()), 3);
    });
}

}  // namespace
}  // namespace tutti::test
