// Ranks that call different things learn it, all of them, with both sides; impossible arguments never leave the caller.
#include "conformance/world.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Agreement : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Agreement, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

using Ints = std::vector<std::int32_t>;

struct Disagreement {
    const char* name;
    std::function<void(const ProcessGroup&)> call;
    std::vector<std::string> both;  // what the message shows, on every rank
};

// Rank 1 differs. Sizes of all kinds: one cache line, one message, many.
std::vector<Disagreement> disagreements(How how) {
    // A short message that nobody receives is not compared yet when it comes over a socket.
    constexpr bool over_sockets_too = true;
    const bool sockets = how == How::tcp_processes || how == How::tcp_threads;
    std::vector<Disagreement> all;
    for (const std::size_t count : {4, 3000, 400'000}) {
        all.push_back({"dtype",
                       [=](const ProcessGroup& g) {
                           Ints x(count);
                           std::vector<float> y(count);
                           all_reduce(g.rank() == 1 ? TensorView(y) : TensorView(x), {.group = g});
                       },
                       {"float32", "int32"}});
        all.push_back({"count",
                       [=](const ProcessGroup& g) {
                           Ints x(g.rank() == 1 ? count + 1 : count);
                           all_reduce(x, {.group = g});
                       },
                       {std::to_string(count), std::to_string(count + 1)}});
        all.push_back({"reduce op",
                       [=](const ProcessGroup& g) {
                           Ints x(count);
                           all_reduce(x, {.op = g.rank() == 1 ? ReduceOp::bxor : ReduceOp::product, .group = g});
                       },
                       {"bxor", "product"}});
        all.push_back({"operation",
                       [=](const ProcessGroup& g) {
                           Ints x(count), whole(count * 3);
                           if (g.rank() == 1)
                               all_gather_into_tensor(whole, x, {.group = g});
                           else
                               reduce_scatter_tensor(x, whole, {.group = g});
                       },
                       {"all_gather", "reduce_scatter"}});
        if (sockets && !over_sockets_too && count < 100'000) continue;
        all.push_back({"root of a broadcast",
                       [=](const ProcessGroup& g) {
                           Ints x(count);
                           broadcast(x, {.src = g.rank() == 1 ? 1 : 0, .group = g});
                       },
                       {"root 0", "root 1"}});
    }
    all.push_back({"root of a reduce",
                   [](const ProcessGroup& g) {
                       Ints x(1000);
                       reduce(x, {.dst = g.rank() == 1 ? 2 : 0, .group = g});
                   },
                   {"root 0", "root 2"}});
    all.push_back({"type of a broadcast",
                   [](const ProcessGroup& g) {
                       Ints x(1000);
                       std::vector<float> y(1000);
                       broadcast(g.rank() == 1 ? TensorView(y) : TensorView(x), {.src = 0, .group = g});
                   },
                   {"float32", "int32"}});
    all.push_back({"length of a broadcast",
                   [](const ProcessGroup& g) {
                       Ints x(g.rank() == 1 ? 8 : 4);
                       broadcast(x, {.src = 0, .group = g});
                   },
                   {"int32 × 4", "int32 × 8"}});
    all.push_back({"reduce op of a reduce",
                   [](const ProcessGroup& g) {
                       Ints x(1000);
                       reduce(x, {.dst = 0, .op = g.rank() == 1 ? ReduceOp::min : ReduceOp::max, .group = g});
                   },
                   {"min", "max"}});
    all.push_back({"a prefix with the rank's own values, or without",
                   [](const ProcessGroup& g) {
                       Ints x(1000);
                       g.rank() == 1 ? exscan(x, {.group = g}) : scan(x, {.group = g});
                   },
                   {"exscan", "scan of"}});
    all.push_back({"length of a prefix",
                   [](const ProcessGroup& g) {
                       Ints x(g.rank() == 1 ? 8 : 4);
                       scan(x, {.group = g});
                   },
                   {"int32 × 4", "int32 × 8"}});
    all.push_back({"reduce op of a prefix",
                   [](const ProcessGroup& g) {
                       Ints x(100'000);
                       scan(x, {.op = g.rank() == 1 ? ReduceOp::min : ReduceOp::max, .group = g});
                   },
                   {"min", "max"}});
    all.push_back({"reduce op of a reduce_scatter",
                   [](const ProcessGroup& g) {
                       Ints x(100), whole(300);
                       const ReduceOp op = g.rank() == 1 ? ReduceOp::min : ReduceOp::sum;
                       reduce_scatter_tensor(x, whole, {.op = op, .group = g});
                   },
                   {"min", "sum"}});
    all.push_back({"length of an all_gather",
                   [](const ProcessGroup& g) {
                       Ints x(g.rank() == 1 ? 8 : 4), whole(3 * x.size());
                       all_gather_into_tensor(whole, x, {.group = g});
                   },
                   {"int32 × 4", "int32 × 8"}});
    all.push_back({"root of a gather",
                   [](const ProcessGroup& g) {
                       Ints x(5), a(5), b(5), c(5);
                       const int root = g.rank() == 1 ? 1 : 0;
                       gather(x, g.rank() == root ? TensorList{a, b, c} : TensorList{}, {.dst = root, .group = g});
                   },
                   {"root 0", "root 1"}});
    all.push_back(
        {"root of a scatter",
         [](const ProcessGroup& g) {
             Ints x(5), a(5), b(5), c(5);
             const int root = g.rank() == 1 ? 1 : 0;
             scatter(x, g.rank() == root ? ConstTensorList{a, b, c} : ConstTensorList{}, {.src = root, .group = g});
         },
         {"root 0", "root 1"}});
    all.push_back({"sizes of a gather",
                   [](const ProcessGroup& g) {
                       Ints x(g.rank() == 1 ? 6 : 5), a(5), b(5), c(5);
                       gather(x, g.rank() == 0 ? TensorList{a, b, c} : TensorList{}, {.group = g});
                   },
                   {"int32 × 5", "int32 × 6"}});
    all.push_back({"sizes of a scatter",
                   [](const ProcessGroup& g) {
                       Ints x(g.rank() == 1 ? 6 : 5), a(5), b(5), c(5);
                       scatter(x, g.rank() == 0 ? ConstTensorList{a, b, c} : ConstTensorList{}, {.group = g});
                   },
                   {"int32 × 5", "int32 × 6"}});
    all.push_back({"sizes of an all_gather with lists",
                   [](const ProcessGroup& g) {
                       Ints x(5), a(5), b(5), c(g.rank() == 1 ? 6 : 5);
                       all_gather({a, b, c}, x, {.group = g});
                   },
                   {"all_gather of int32"}});
    all.push_back({"splits of an all_to_all",
                   [](const ProcessGroup& g) {
                       Ints in(6), out(g.rank() == 1 ? 7 : 6);
                       using Sizes = std::vector<std::int64_t>;
                       all_to_all_single(out, in,
                                         {.output_split_sizes = g.rank() == 1 ? Sizes{3, 2, 2} : Sizes{2, 2, 2},
                                          .input_split_sizes = {2, 2, 2},
                                          .group = g});
                   },
                   {"all_to_all"}});
    for (const std::int64_t count : {3, 50'000}) {  // short, and with a schedule
        all.push_back({"what one pair of an all_to_all_v exchanges",
                       [count](const ProcessGroup& g) {
                           using Numbers = std::vector<std::int64_t>;
                           Numbers send(3, count), receive(3, count);
                           if (g.rank() == 1) receive[0] = count - 2;  // rank 0 sends more
                           Ints in(static_cast<std::size_t>(3 * count)), out(in.size());
                           all_to_all_v(out, in, {.send_counts = send, .receive_counts = receive, .group = g});
                       },
                       {"all_to_all", "rank 0 sends int32 × " + std::to_string(count) + " to rank 1, which expects " +
                                          std::to_string(count - 2)}});
    }
    all.push_back({"a barrier",
                   [](const ProcessGroup& g) {
                       Ints x(2);
                       if (g.rank() == 1)
                           barrier({.group = g});
                       else
                           all_reduce(x, {.group = g});
                   },
                   {"barrier", "all_reduce"}});
    all.push_back({"what a message holds",
                   [](const ProcessGroup& g) {
                       Ints x(10);
                       std::vector<float> y(10);
                       if (g.rank() == 0) send(x, 1, {.group = g});
                       if (g.rank() == 1) (void)recv(y, {.src = 0, .group = g});
                   },
                   {"int32 × 10", "float32 × 10"}});
    all.push_back({"how long a message is",
                   [](const ProcessGroup& g) {
                       Ints x(200'000), y(199'999);
                       if (g.rank() == 0) send(x, 1, {.group = g});
                       if (g.rank() == 1) (void)recv(y, {.group = g});
                   },
                   {"int32 × 200000", "int32 × 199999"}});
    return all;
}

// What only the root and one other rank know.
std::vector<Disagreement> disagreements_with_the_root() {
    std::vector<Disagreement> all;
    for (const std::int64_t count : {3, 50'000}) {  // in a slot, and with a schedule
        const auto between = [count](int from, int to) {
            return "rank " + std::to_string(from) + " sends int32 × " + std::to_string(count) + " to rank " +
                   std::to_string(to) + ", which expects " + std::to_string(count - 2);
        };
        all.push_back({"what a rank of a gather_v gives",
                       [count](const ProcessGroup& g) {
                           Ints in(static_cast<std::size_t>(count)), out(3 * in.size());
                           gather_v(in, out, {.receive_counts = {count, count - 2, count}, .group = g});
                       },
                       {"gather_v", between(1, 0)}});
        all.push_back({"what a rank of a scatter_v expects",
                       [count](const ProcessGroup& g) {
                           Ints in(static_cast<std::size_t>(3 * count)),
                               out(static_cast<std::size_t>(g.rank() == 1 ? count - 2 : count));
                           scatter_v(out, in, {.send_counts = {count, count, count}, .group = g});
                       },
                       {"scatter_v", between(0, 1)}});
        all.push_back({"the root of a gather_v",
                       [count](const ProcessGroup& g) {
                           Ints in(static_cast<std::size_t>(count)), out(3 * in.size());
                           gather_v(in, out, {.dst = g.rank() == 1 ? 1 : 0, .group = g});
                       },
                       {"gather_v of int32, root 0", "gather_v of int32, root 1"}});
    }
    for (const bool gives : {true, false}) {  // one of the two counts is zero
        all.push_back({"whether a rank of a gather_v gives anything",
                       [gives](const ProcessGroup& g) {
                           Ints in(g.rank() == 1 && !gives ? 0 : 5), out(15);
                           gather_v(in, out, {.receive_counts = {5, gives ? 0 : 5, 5}, .group = g});
                       },
                       {gives ? "rank 1 sends int32 × 5 to rank 0, which expects 0"
                              : "rank 1 sends int32 × 0 to rank 0, which expects 5"}});
    }
    return all;
}

void expect_mismatch(How how, const Disagreement& d) {
    run_ranks(3, how,
              [&](const ProcessGroup& g) {
                  try {
                      barrier({.group = g});  // all have joined and can be told
                      d.call(g);
                      const auto start = std::chrono::steady_clock::now();
                      do {
                          barrier({.group = g});  // a rank whose part was done may only learn it now
                      } while (std::chrono::steady_clock::now() - start < patience(watched ? 5s : 1s));
                      ADD_FAILURE() << d.name << ": rank " << g.rank() << " noticed nothing";
                  } catch (const CollectiveMismatch& error) {
                      for (const std::string& side : d.both) {
                          EXPECT_NE(std::string(error.what()).find(side), std::string::npos)
                              << d.name << ": rank " << g.rank() << ": " << error.what();
                      }
                      EXPECT_EQ(error.code(), ErrorCode::collective_mismatch);
                  } catch (const std::exception& error) {
                      ADD_FAILURE() << d.name << ": rank " << g.rank() << ": " << error.what();
                  }
                  EXPECT_THROW(barrier({.group = g}), CollectiveMismatch) << d.name << ": the group is unusable";
                  std::this_thread::sleep_for(120ms);  // the others have yet to hear of it
              },
              {.timeout = 10s, .leave = false});
}

TEST_P(Agreement, is_checked_for_everything_that_must_agree_and_both_sides_are_shown_on_all_ranks) {
    covers("A-34", "S10-001", "S17-002");
    for (const Disagreement& d : disagreements(GetParam())) expect_mismatch(GetParam(), d);
}

TEST_P(Agreement, about_a_pair_with_the_root_is_checked) {
    for (const Disagreement& d : disagreements_with_the_root()) expect_mismatch(GetParam(), d);
}

// Of one pair of ranks: none, or some; short ones and long ones; few ranks, and so many that they pass blocks on.
TEST_P(Agreement, about_a_pair_s_blocks_is_checked_within_a_second) {
    covers("A-26");
    struct Pair {
        std::int64_t sent, expected;
    };
    for (const int n : {3, 5}) {
        for (const Pair pair :
             {Pair{3, 1}, Pair{0, 3}, Pair{3, 0}, Pair{0, 50'000}, Pair{50'000, 0}, Pair{50'000, 7}}) {
            const auto body = [=](const ProcessGroup& g) {
                using Numbers = std::vector<std::int64_t>;
                Numbers send(static_cast<std::size_t>(n), 2), receive = send;
                if (g.rank() == 0) send[1] = pair.sent;
                if (g.rank() == 1) receive[0] = pair.expected;
                Ints in(static_cast<std::size_t>(2 * n + 50'000)), out(in.size());
                const auto start = std::chrono::steady_clock::now();
                try {
                    barrier({.group = g});  // others may be through with it before this rank is
                    all_to_all_v(out, in, {.send_counts = send, .receive_counts = receive, .group = g});
                    // A rank whose part was done learns it while it does something else.
                    while (std::chrono::steady_clock::now() - start < patience(watched ? 5s : 1s))
                        barrier({.group = g});
                    ADD_FAILURE() << "rank " << g.rank() << " noticed nothing";
                } catch (const CollectiveMismatch& error) {
                    const std::string what = "rank 0 sends int32 × " + std::to_string(pair.sent) +
                                             " to rank 1, which expects " + std::to_string(pair.expected);
                    EXPECT_TRUE(has(error.what(), what)) << "rank " << g.rank() << ": " << error.what();
                }
                EXPECT_LT(std::chrono::steady_clock::now() - start, patience(watched ? 5s : 1200ms)) << pair.sent;
                std::this_thread::sleep_for(120ms);  // the others have yet to hear of it
            };
            run_ranks(n, GetParam(), body, {.timeout = 10s, .leave = false});
        }
    }
}

// The error names the function and everything that is listed, and is the caller's alone.
template <class F>
void expect_refused(F call, std::initializer_list<const char*> words) {
    try {
        call();
        ADD_FAILURE() << "accepted: " << *words.begin();
    } catch (const InvalidArgument& error) {
        for (const char* word : words) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
                << word << " is not in: " << error.what();
        }
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
}

TEST_P(Agreement, is_not_disturbed_by_calls_that_are_refused) {
    covers("S17-006", "S17-005", "S8-003", "S8-016", "S8-018", "S8-020", "S8-021", "S6-002", "S6-006", "S6-007",
           "S6-014");
    const char* ranks = GetParam() == How::part ? "ranks 0, 1" : "0 to 1";
    run_ranks(2, GetParam(), [ranks](const ProcessGroup& g) {
        Ints x(4), y(4), z(3);
        std::vector<double> d(4);
        const TensorView device(x.data(), {4}, int32, {}, {Device::Type::cuda, 1});
        const int me = g.rank();
        if (me == 1) {  // rank 0 makes no mistakes meanwhile, and waits
            expect_refused([&] { reduce(x, {.group = g}); }, {"reduce", "no dst"});
            expect_refused([&] { reduce(x, {.dst = 0, .group = g, .group_dst = 0}); }, {"reduce", "both"});
            expect_refused([&] { reduce(x, {.dst = -1, .group = g}); }, {"reduce", "dst -1", ranks});
            expect_refused([&] { broadcast(x, {.group = g, .group_src = 7}); }, {"broadcast", "group_src 7", "0 to 1"});
            expect_refused([&] { broadcast(device, {.src = 0, .group = g}); }, {"broadcast", "cuda:1", "host memory"});
            expect_refused([&] { all_gather({x, y, x}, y, {.group = g}); }, {"all_gather", "output_list", "3", "2"});
            expect_refused([&] { all_gather({x, d}, y, {.group = g}); }, {"all_gather", "float64[4]", "int32"});
            expect_refused([&] { all_gather({x, z}, y, {.group = g}); }, {"all_gather", "3 elements", "expected 4"});
            expect_refused([&] { all_gather_into_tensor(x, y, {.group = g}); }, {"output", "4 elements", "expected 8"});
            expect_refused([&] { all_gather_into_tensor(d, y, {.group = g}); }, {"output", "float64", "int32"});
            expect_refused([&] { gather(x, {x, y}, {.dst = 0, .group = g}); }, {"gather_list", "rank 1", "rank 0"});
            expect_refused([&] { gather(x, {}, {.dst = 1, .group = g}); }, {"gather_list", "0 tensors", "expected 2"});
            expect_refused([&] { gather(x, {x, z}, {.dst = 1, .group = g}); }, {"gather_list", "3 elements"});
            expect_refused([&] { gather(x, {x, d}, {.dst = 1, .group = g}); }, {"gather_list", "float64"});
            expect_refused([&] { scatter(x, {x, y}, {.src = 0, .group = g}); }, {"scatter_list", "rank 1", "rank 0"});
            expect_refused([&] { scatter(x, {x}, {.src = 1, .group = g}); }, {"scatter_list", "1 tensors"});
            expect_refused([&] { scatter(x, {x, z}, {.src = 1, .group = g}); }, {"scatter_list", "3 elements"});
            expect_refused([&] { scatter(x, {}, {.src = 0, .group = g, .group_src = 0}); }, {"scatter", "both"});
            expect_refused([&] { reduce_scatter(x, {x}, {.group = g}); }, {"input_list", "1 tensors", "expected 2"});
            expect_refused([&] { reduce_scatter(x, {x, z}, {.group = g}); }, {"input_list", "4", "expected"});
            expect_refused([&] { reduce_scatter(x, {d, d}, {.group = g}); }, {"input_list", "float64"});
            expect_refused([&] { reduce_scatter_tensor(x, y, {.group = g}); }, {"input", "4 elements", "expected 8"});
            expect_refused([&] { all_to_all({x}, {x, y}, {.group = g}); }, {"output_list", "1 tensors"});
            expect_refused([&] { all_to_all({x, d}, {x, y}, {.group = g}); }, {"output_list", "float64"});
            expect_refused([&] { all_to_all_single(z, z, {.group = g}); }, {"dimension 0", "3", "multiple of 2"});
            expect_refused(
                [&] {
                    all_to_all_single(x, y, {.input_split_sizes = {1, 2}, .group = g});
                },
                {"input_split_sizes", "add up to 3", "expected 4"});
            expect_refused(
                [&] {
                    all_to_all_single(x, y, {.input_split_sizes = {1, 2, 1}, .group = g});
                },
                {"input_split_sizes", "3 entries", "expected 2"});
            expect_refused(
                [&] {
                    all_to_all_single(x, y, {.output_split_sizes = {-1, 5}, .group = g});
                },
                {"output_split_sizes", "-1"});
            expect_refused([&] { all_to_all_single(d, y, {.group = g}); }, {"output", "float64"});
            expect_refused([&] { all_reduce(d, {.op = ReduceOp::band, .group = g}); }, {"band", "float64"});
            expect_refused([&] { all_reduce(x, {.group = g, .timeout = -5ms}); }, {"all_reduce", "timeout -5 ms"});
            expect_refused([&] { barrier({.group = g, .timeout = -5ms}); }, {"barrier", "timeout -5 ms"});
            expect_refused([&] { send(x, 1, {.group = g}); }, {"send", "itself"});
            expect_refused([&] { send(x, 2, {.group = g}); }, {"send", "dst 2", ranks});
            expect_refused([&] { send(x, 0, {.tag = -3, .group = g}); }, {"tag -3"});
            expect_refused([&] { send(x, 0, {.group = g, .timeout = -5ms}); }, {"send", "timeout -5 ms"});
            expect_refused([&] { send_to_group_rank(x, -1, {.group = g}); }, {"send", "group_dst -1"});
            expect_refused([&] { (void)recv(x, {.src = 0, .group = g, .group_src = 0}); }, {"recv", "both"});
            expect_refused([&] { (void)recv(x, {.src = 9, .group = g}); }, {"recv", "src 9"});
            expect_refused([&] { (void)irecv(device, {.src = 0, .group = g}); }, {"irecv", "host memory"});
            expect_refused([&] { (void)isend(device, 0, {.group = g}); }, {"isend", "host memory"});
            P2POp no_peer = isend_op(x, 0, {.group = g});
            no_peer.peer.reset();
            expect_refused(
                [&] {
                    (void)batch_isend_irecv({irecv_op(y, 0, {.group = g}), no_peer});
                },
                {"isend", "no dst"});
            expect_refused([&] { (void)batch_isend_irecv({}); }, {"batch_isend_irecv", "empty"});
        }
        x.assign(4, me + 1);
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, Ints(4, 3));
        Ints got(4);
        if (me == 0) {
            send_to_group_rank(x, 1, {.group = g});
        } else {
            EXPECT_EQ(recv(got, {.group = g, .group_src = 0}), 0) << "no message of a refused call came before";
            EXPECT_EQ(got, x);
        }
        barrier({.group = g, .device_ids = {0, 1}});
    });
}

TEST_P(Agreement, of_device_ids_is_not_needed_by_a_barrier) {
    covers("S8-032", "S8-031");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        barrier({.group = g, .device_ids = {g.rank()}});
        std::vector<int> late(1);
        const auto start = std::chrono::steady_clock::now();
        if (g.rank() == 1) std::this_thread::sleep_for(100ms);
        Work gate = async::barrier({.group = g});
        gate.wait();
        if (g.rank() == 0) {
            EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms) << "it waited for rank 1";
        }
    });
}

}  // namespace
}  // namespace tutti::test
