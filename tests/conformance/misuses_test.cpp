// What people who know MPI or PyTorch get wrong most often: each row has the call with its wrong value, and what the
// error says: the call, the argument, the value, and what was expected. tests/python/misuses_test.py has the same for
// Python.
#include "conformance/world.hpp"

#include <fmt/format.h>

#include <array>
#include <complex>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

struct Misuse {
    const char* what;
    std::function<void()> call;
    std::string message;
};

void expect_told(const std::vector<Misuse>& misuses) {
    for (const Misuse& misuse : misuses) {
        try {
            misuse.call();
            ADD_FAILURE() << misuse.what << ": no error";
        } catch (const InvalidArgument& error) {
            EXPECT_EQ(error.what(), misuse.message) << misuse.what;
            EXPECT_FALSE(error.context().hint.empty()) << misuse.what << ": " << error.what();
        } catch (const std::exception& error) {
            ADD_FAILURE() << misuse.what << ": another error: " << error.what();
        }
    }
}

// Three ranks; the second group has ranks 1 and 2, the third rank 0 alone.
void misuse_a_group(const ProcessGroup& g) {
    const ProcessGroup tail = g.split({.color = g.rank() > 0 ? 1 : -1});
    const ProcessGroup other = g.split({});
    ProcessGroup gone = g.split({});
    gone.destroy();
    std::vector<float> x(4), y(4), twelve(12), five(5);
    std::vector<double> doubles(12);
    std::vector<std::int32_t> ints(4);
    std::array<bool, 4> bools{};
    std::vector<std::complex<float>> complexes(4);
    const int me = g.rank(), next = (me + 1) % 3;
    int somewhere = 0;
    const TensorView on_device(&somewhere, {1}, int32, {}, {.type = Device::Type::cuda, .index = 0});
    const Plan sends = plan::send(x, next, {.group = g});

    expect_told({
        {"a root that is no rank", [&] { broadcast(x, {.src = 3, .group = g}); }, "broadcast: src 3: expected 0 to 2"},
        {"MPI_PROC_NULL as root", [&] { reduce(x, {.dst = -1, .group = g}); }, "reduce: dst -1: expected 0 to 2"},
        {"no root", [&] { broadcast(x, {.group = g}); }, "broadcast: no src is given: expected src or group_src"},
        {"two roots", [&] { broadcast(x, {.src = 0, .group = g, .group_src = 0}); },
         "broadcast: src and group_src are both given: expected one"},
        {"MPI_ANY_SOURCE", [&] { recv(x, {.src = -1, .group = g}); }, "recv: src -1: expected 0 to 2"},
        {"a peer that is no rank", [&] { send(x, 7, {.group = g}); }, "send: dst 7: expected 0 to 2"},
        {"a message to itself", [&] { send(x, me, {.group = g}); },
         fmt::format("send: rank {} sends to itself: expected another rank (isend can)", me)},
        {"MPI_ANY_TAG", [&] { recv(x, {.src = next, .tag = -1, .group = g}); }, "recv: tag -1: expected zero or more"},
        {"bits of floats", [&] { all_reduce(x, {.op = ReduceOp::band, .group = g}); },
         "all_reduce: op band is not defined for float32: expected one of sum, avg, product, min, max, premul_sum"},
        {"the largest complex number", [&] { all_reduce(complexes, {.op = ReduceOp::max, .group = g}); },
         "all_reduce: op max is not defined for complex64: expected one of sum, avg, premul_sum"},
        {"the mean of bools", [&] { all_reduce(bools, {.op = ReduceOp::avg, .group = g}); },
         "all_reduce: op avg is not defined for bool: expected one of sum, product, min, max, band, bor, bxor"},
        {"an output without room", [&] { all_gather_into_tensor(x, y, {.group = g}); },
         "all_gather_into_tensor: output has 4 elements: expected 12, for each of 3 ranks as many as input has, 4"},
        {"an output of another type", [&] { all_gather_into_tensor(doubles, y, {.group = g}); },
         "all_gather_into_tensor: output is float64[12]: expected float32, as the other tensor"},
        {"an input that ranks cannot share", [&] { reduce_scatter_tensor(x, five, {.group = g}); },
         "reduce_scatter_tensor: input has 5 elements: expected 12, for each of 3 ranks as many as output has, 4"},
        {"a short list",
         [&] {
             all_gather({x, y}, x, {.group = g});
         },
         "all_gather: output_list has 2 tensors: expected 3, one per rank"},
        {"a list off the root",
         [&] {
             gather(x, {x, y, y}, {.dst = next, .group = g});
         },
         fmt::format("gather: gather_list is given on rank {}: expected it only on the root, rank {}", me, next)},
        {"no list on the root", [&] { scatter(x, {}, {.src = me, .group = g}); },
         "scatter: scatter_list has 0 tensors: expected 3, one per rank"},
        {"splits that do not add up",
         [&] {
             all_to_all_single(twelve, twelve, {.input_split_sizes = {4, 4, 3}, .group = g});
         },
         "all_to_all_single: input_split_sizes add up to 11: expected 12, the size of dimension 0"},
        {"too few splits",
         [&] {
             all_to_all_single(twelve, twelve, {.output_split_sizes = {6, 6}, .group = g});
         },
         "all_to_all_single: output_split_sizes has 2 entries: expected 3, one per rank"},
        {"a negative split",
         [&] {
             all_to_all_single(twelve, twelve, {.input_split_sizes = {9, 4, -1}, .group = g});
         },
         "all_to_all_single: input_split_sizes has -1: expected zero or more"},
        {"rows that ranks cannot share", [&] { all_to_all_single(five, five, {.group = g}); },
         "all_to_all_single: dimension 0 of input is 5: expected a multiple of 3 (or split sizes)"},
        {"a displacement in bytes",
         [&] {
             all_to_all_v(twelve, twelve, {.send_counts = {4, 4, 4}, .send_offsets = {0, 16, 32}, .group = g});
         },
         "all_to_all_v: the block for rank 1 (4 elements at send_offsets 16) leaves input: expected blocks within its "
         "12 elements"},
        {"a time limit below zero", [&] { all_reduce(x, {.group = g, .timeout = -1ms}); },
         "all_reduce: timeout -1 ms: expected zero (the group's) or more"},
        {"an empty handle", [&] { (void)ProcessGroup().ranks(); }, "ProcessGroup: an empty handle: expected a group"},
        {"the option of one group for another", [&] { g.all_reduce(x, {.group = other}); },
         fmt::format("ProcessGroup.all_reduce: options name another group, \"{}\": expected none, or this one",
                     other.name())},
        {"a tensor on a device", [&] { all_reduce(on_device, {.group = g}); },
         "all_reduce: tensor is on cuda:0: expected host memory"},
        {"the rank of a rank elsewhere", [&] { (void)g.global_rank(3); },
         "get_global_rank: group_rank 3: expected 0 to 2"},
        {"a prefix mean", [&] { scan(x, {.op = ReduceOp::avg, .group = g}); },
         "scan: op avg: expected another one; each rank combines another number of values: take sum, and divide by the "
         "number of them"},
        {"the sender of a plan that sends", [&] { (void)sends.source_rank(); },
         "Plan.source_rank: this plan sends: expected a plan of recv"},
    });
    if (me == 0) {
        expect_told({{"a message in a group of others", [&] { send(x, 1, {.group = tail}); },
                      "send: this rank is not in the group: expected a member"}});
    } else {
        expect_told({{"a rank of the group for a global rank", [&] { broadcast(x, {.src = 0, .group = tail}); },
                      fmt::format("broadcast: src 0 is not in group \"{}\": expected one of its global ranks 1, 2, or "
                                  "group_src for a rank in the group",
                                  tail.name())},
                     {"a global rank for a rank of the group", [&] { send_to_group_rank(x, 2, {.group = tail}); },
                      "send: group_dst 2: expected 0 to 1"}});
    }
    EXPECT_TRUE(has(message_of<DistError>([&] { all_reduce(x, {.group = gone}); }), "all_reduce"));
    barrier({.group = g});
}

TEST(Misuses, of_one_rank_are_told_before_anything_is_sent) {
    run_ranks(3, How::threads, misuse_a_group);
}

TEST(Misuses, without_a_group_are_told) {
    std::vector<float> x(4);
    float value = 0;
    expect_told({
        {"a collective before init", [&] { all_reduce(x); },
         "all_reduce: there is no default group; call init_process_group first"},
        {"a rank before init", [] { (void)get_rank(); },
         "get_rank: there is no default group; call init_process_group first"},
        {"an operator of another library", [] { (void)reduce_op_from_string("mean"); },
         "reduce op \"mean\": expected one of sum, avg, product, min, max, band, bor, bxor, premul_sum; did you mean "
         "\"min\"?"},
        {"a type of another library", [] { (void)dtype_from_string("half"); },
         "dtype \"half\": expected one of bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, "
         "bfloat16, float32, float64, complex64, complex128, float8_e4m3fn, float8_e5m2; did you mean \"float16\"?"},
        {"elements of another type", [] { (void)zeros(float32, {2}).data<double>(); },
         "Tensor::data: elements of float64: expected float32, which the tensor has"},
        {"strides of another number of dimensions",
         [&] {
             TensorView(&value, {1, 1}, float32, {1});
         },
         "strides [1]: expected 2 of them, one per dimension of shape [1, 1]"},
        {"no memory", [] { TensorView(nullptr, {3}, float32); },
         "data: null pointer for 3 elements: expected their memory"},
        {"a rank beyond the world's size",
         [] { init_process_group({.world_size = 2, .rank = 2, .store = HashStore()}); },
         "init_process_group: rank 2: expected 0 to 1; a store needs rank and world_size as arguments"},
        {"a store without a rank", [] { init_process_group({.store = HashStore()}); },
         "init_process_group: world_size -1: expected at least 1; a store needs rank and world_size as arguments"},
        {"another scheme", [] { init_process_group({.init_method = "mpi://", .world_size = 1, .rank = 0}); },
         "init_process_group: init_method \"mpi://\": expected env://, tcp://host:port or file:///path"},
    });
}

// Each row ends its group: rank 1 does something else, and all ranks read both sides.
struct Disagreement {
    const char* what;
    std::function<void(const ProcessGroup&)> call;
    std::vector<std::string> both;
};

TEST(Misuses, between_ranks_show_both_sides_on_all_of_them) {
    const std::vector<Disagreement> disagreements = {
        {"another type",
         [](const ProcessGroup& g) {
             std::vector<float> x(4);
             std::vector<double> y(4);
             all_reduce(g.rank() == 1 ? TensorView(y) : TensorView(x), {.group = g});
         },
         {"rank 0 called all_reduce of float32 × 4", "rank 1 called all_reduce of float64 × 4"}},
        {"another shape",
         [](const ProcessGroup& g) {
             std::vector<float> x(g.rank() == 1 ? 8 : 4);
             all_reduce(x, {.group = g});
         },
         {"float32 × 4", "float32 × 8"}},
        {"another order",
         [](const ProcessGroup& g) {
             std::vector<float> x(4);
             if (g.rank() == 1) barrier({.group = g});
             all_reduce(x, {.group = g});
             if (g.rank() != 1) barrier({.group = g});
         },
         {"all_reduce", "barrier"}},
        {"another root",
         [](const ProcessGroup& g) {
             std::vector<float> x(400'000);
             broadcast(x, {.src = g.rank(), .group = g});
             barrier({.group = g});  // a root need not wait for the others in its broadcast
         },
         {"root 0", "root 1"}},
        {"another operator",
         [](const ProcessGroup& g) {
             std::vector<float> x(4);
             all_reduce(x, {.op = g.rank() == 1 ? ReduceOp::max : ReduceOp::sum, .group = g});
         },
         {"sum", "max"}},
        {"a message of another length",
         [](const ProcessGroup& g) {
             std::vector<float> x(4), y(8);
             if (g.rank() == 0)
                 send(x, 1, {.group = g});
             else
                 recv(y, {.src = 0, .group = g});
             barrier({.group = g});
         },
         {"float32 × 4", "float32 × 8"}},
    };
    for (const Disagreement& row : disagreements) {
        run_ranks(2, How::threads,
                  [&](const ProcessGroup& g) {
                      try {
                          row.call(g);
                          ADD_FAILURE() << row.what << ": no error";
                      } catch (const CollectiveMismatch& error) {
                          for (const std::string& part : row.both)
                              EXPECT_TRUE(has(error.what(), part)) << row.what << ": " << error.what();
                          EXPECT_TRUE(has(error.context().hint, "the same collectives in the same order"));
                      }
                  },
                  {.leave = false});
    }
}

}  // namespace
}  // namespace tutti::test
