// The debug level DETAIL, and the breakpoint.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/debug.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// DETAIL, for the ranks that are made meanwhile.
class Detail : public ::testing::TestWithParam<How> {
 protected:
    Detail() { set_debug_level(DebugLevel::detail); }
    ~Detail() override { set_debug_level(DebugLevel::off); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Detail, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(Detail, lets_collectives_that_agree_pass) {
    covers("S16-014", "A-07");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank(), n = g.size();
        std::vector<int> x(5, me);
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, std::vector<int>(5, 3));
        // A number and a tensor of one element are of equal count.
        int number = me;
        all_reduce(me == 0 ? TensorView(&number, {}, int32) : TensorView(&number, {1}, int32), {.group = g});
        EXPECT_EQ(number, 3);
        broadcast(x, {.src = 1, .group = g});
        std::vector<int> all(static_cast<std::size_t>(n));
        std::vector<int> mine{me};
        all_gather_into_tensor(all, mine, {.group = g});
        EXPECT_EQ(all, (std::vector<int>{0, 1, 2}));
        std::vector<int> received(3);
        all_to_all_single(received, all, {.group = g});
        EXPECT_EQ(received, std::vector<int>(3, me));
        // Blocks of different lengths are allowed.
        std::vector<int> a(1), b(2), c(3), own(static_cast<std::size_t>(me) + 1, me);
        all_gather({a, b, c}, own, {.group = g});
        EXPECT_EQ(c, std::vector<int>(3, 2));
        Work work = async::all_reduce(x, {.group = g});
        work.wait();
        EXPECT_EQ(x, std::vector<int>(5, 9));
        barrier({.group = g});
    });
}

TEST_P(Detail, shows_different_shapes_on_every_rank_and_the_group_lives_on) {
    covers("S16-012", "S16-015", "S16-016", "E-230");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(g.rank() == 0 ? 10 : 20);
        try {
            all_reduce(x, {.group = g});
            ADD_FAILURE() << "rank " << g.rank();
        } catch (const CollectiveMismatch& error) {
            const std::string expected =
                "Error when verifying shape tensors for collective ALLREDUCE on rank " + std::to_string(g.rank()) +
                ". This likely indicates that input shapes into the collective are mismatched across ranks. Got "
                "shapes:  " +
                std::to_string(x.size()) +
                "\n[ torch.LongTensor{1} ]\n  rank 0: ALLREDUCE of shape [10] (all_reduce of float32 × 10, sum)\n  "
                "rank 1: "
                "ALLREDUCE of shape [20] (all_reduce of float32 × 20, sum)";
            EXPECT_EQ(error.what(), expected);
        }
        std::vector<int> y{g.rank()};
        all_reduce(y, {.group = g});
        EXPECT_EQ(y[0], 1);
    });
}

TEST_P(Detail, shows_different_functions_on_every_rank) {
    covers("S16-015");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(4);
        try {
            if (g.rank() == 0)
                all_reduce(x, {.group = g});
            else
                barrier({.group = g});
            ADD_FAILURE() << "rank " << g.rank();
        } catch (const CollectiveMismatch& error) {
            EXPECT_STREQ(
                error.what(),
                "Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE, but "
                "rank 1 is running collective: BARRIER.\n  rank 0: ALLREDUCE of shape [4] (all_reduce of float32 × "
                "4, sum)\n  rank 1: BARRIER");
        }
    });
}

struct Difference {
    const char* what;
    std::function<void(const ProcessGroup&, bool other)> call;  // `other`: of the rank that differs, rank 1 of two
    std::vector<std::string> both{};                            // what the message shows
};

std::vector<Difference> differences() {
    using Values = std::vector<float>;
    using Sizes = std::vector<std::int64_t>;
    return {
        {"type",
         [](const ProcessGroup& g, bool other) {
             std::vector<int> x(4);
             Values y(4);
             all_reduce(other ? TensorView(x) : TensorView(y), {.group = g});
         },
         {"float32 × 4", "int32 × 4"}},
        {"operator",
         [](const ProcessGroup& g, bool other) {
             Values x(4);
             all_reduce(x, {.op = other ? ReduceOp::max : ReduceOp::sum, .group = g});
         },
         {"× 4, sum", "× 4, max"}},
        {"operator of an asynchronous reduce_scatter",
         [](const ProcessGroup& g, bool other) {
             Values x(2), whole(4);
             async::reduce_scatter_tensor(x, whole, {.op = other ? ReduceOp::min : ReduceOp::avg, .group = g}).wait();
         },
         {"× 2, avg", "× 2, min"}},
        {"root of a broadcast",
         [](const ProcessGroup& g, bool other) {
             Values x(4);
             broadcast(x, {.src = other ? 1 : 0, .group = g});
         },
         {"root 0", "root 1"}},
        {"root of a reduce",
         [](const ProcessGroup& g, bool other) {
             Values x(4);
             reduce(x, {.dst = other ? 1 : 0, .group = g});
         },
         {"root 0", "root 1"}},
        {"root of a gather",
         [](const ProcessGroup& g, bool other) {
             Values x(4), a(4), b(4);
             gather(x, {a, b}, {.dst = other ? 1 : 0, .group = g});
         },
         {"root 0", "root 1"}},
        {"root of a scatter",
         [](const ProcessGroup& g, bool other) {
             Values x(4), a(4), b(4);
             scatter(x, ConstTensorList{a, b}, {.src = other ? 1 : 0, .group = g});
         },
         {"root 0", "root 1"}},
        {"lengths of the blocks of an all_gather",
         [](const ProcessGroup& g, bool other) {
             Values x(2), a(other ? 3 : 2), b(2);
             all_gather({a, b}, x, {.group = g});
         },
         {"ALLGATHER of shape [2]", "blocks of [3, 2]"}},
        {"lengths of blocks that differ anyway",
         [](const ProcessGroup& g, bool other) {
             Values x(other ? 2 : 5), whole(other ? 6 : 7);
             reduce_scatter_v(x, whole, {.input_split_sizes = other ? Sizes{4, 2} : Sizes{5, 2}, .group = g});
         },
         {"blocks of [5, 2]", "blocks of [4, 2]"}},
        {"what a pair of an all_to_all exchanges",
         [](const ProcessGroup& g, bool other) {
             Values in(4), out(other ? 3 : 2);
             all_to_all_single(out, in,
                               {.output_split_sizes = other ? Sizes{2, 1} : Sizes{1, 1},
                                .input_split_sizes = other ? Sizes{3, 1} : Sizes{1, 3},
                                .group = g});
         },
         {"rank 0 sends 3 elements to rank 1, which expects 2"}},
        {"one of several calls that go together",
         [](const ProcessGroup& g, bool other) {
             Values in(other ? 1 : 2), a(2 * in.size()), b(a.size());
             all_gather_into_tensor_coalesced({a, b}, ConstTensorList{in, in}, {.group = g});
         },
         {"float32 × 2; all_gather of float32 × 2", "float32 × 1; all_gather of float32 × 1"}},
        {"how a quantised call stores its codes",
         [](const ProcessGroup& g, bool other) {
             Values x(64);
             quantized_all_reduce(x, {.type = other ? QuantizedType::int4 : QuantizedType::int8, .group = g});
         },
         {"as int8", "as int4"}},
        {"the run of a plan",
         [](const ProcessGroup& g, bool other) {
             Values x(4);
             plan::all_reduce(x, {.op = other ? ReduceOp::product : ReduceOp::sum, .group = g}).run();
         },
         {"× 4, sum", "× 4, product"}},
    };
}

TEST_P(Detail, compares_all_on_which_ranks_must_agree_and_the_group_lives_on) {
    covers("S16-012", "S16-015");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const Difference& one : differences()) {
            const std::string text = message_of<CollectiveMismatch>([&] { one.call(g, g.rank() == 1); });
            for (const std::string& side : one.both) EXPECT_TRUE(has(text, side)) << one.what << ": " << text;
        }
        std::vector<int> x{g.rank()};
        all_reduce(x, {.group = g});
        EXPECT_EQ(x[0], 1);
    });
}

TEST_P(Detail, logs_the_stack_where_ranks_differ) {
    covers("S3-018", "S16-020");
    ::setenv("TORCH_SHOW_CPP_STACKTRACES", "1", 1);
    ::testing::internal::CaptureStderr();
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(static_cast<std::size_t>(g.rank()) + 1);
        EXPECT_THROW(all_reduce(x, {.group = g}), CollectiveMismatch);
    });
    const std::string text = ::testing::internal::GetCapturedStderr();
    ::unsetenv("TORCH_SHOW_CPP_STACKTRACES");
    const std::string said = "all_reduce differs from what another rank calls; called from:\n  #1 ";
    const std::size_t first = text.find(said);
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_NE(text.find(said, first + 1), std::string::npos) << "one rank alone says so: " << text;
}

TEST_P(Detail, names_the_rank_that_does_not_come) {
    covers("S16-015");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 1) return std::this_thread::sleep_for(800ms);
                  std::vector<float> x(4);
                  try {
                      all_reduce(x, {.group = g, .timeout = 300ms});
                      ADD_FAILURE();
                  } catch (const DistBackendError& error) {
                      EXPECT_STREQ(error.what(), "Ranks 1 failed to pass monitoredBarrier in 300 ms");
                  }
              },
              {.leave = false});
}

#ifndef TUTTI_THREADS_ONLY
TEST(Breakpoint, stops_one_rank_in_a_debugger_while_the_others_wait) {
    covers("S16-001", "S16-002", "S16-003", "A-53");
    // This process is the debugger of rank 1, its child, which is a rank of a world with rank 0, another child. The
    // ranks' standard input is nothing, as of most launchers; rank 1 has a terminal.
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal, 0);
    ASSERT_TRUE(::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
    const std::string terminal_name = ::ptsname(terminal);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    int ready[2], passed[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(passed), 0);
    TCPStore store(TCPStoreOptions{.host = "127.0.0.1", .port = 0, .is_master = true, .wait_for_workers = false});
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        const pid_t child = ::fork();
        if (child == 0) {
            int status = 1;
            ::dup2(nothing, STDIN_FILENO);
            ::setsid();
            if (rank == 1) ::close(::open(terminal_name.c_str(), O_RDWR));  // becomes the session's terminal
            try {
                ProcessGroup g({.store = TCPStore({.host = "127.0.0.1", .port = store.port(), .is_master = false}),
                                .rank = rank,
                                .world_size = 2});
                breakpoint(1, 1, g);  // skipped
                (void)!::write(ready[1], "r", 1);
                breakpoint(1, 1, g);
                (void)!::write(passed[1], "p", 1);
                g.destroy();
                status = std::filesystem::read_symlink("/proc/self/fd/0") == "/dev/null" ? 0 : 2;
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
            }
            ::_exit(status);
        }
        ranks.push_back(child);
    }
    char byte = 0;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ASSERT_EQ(::ptrace(PTRACE_SEIZE, ranks[1], nullptr, nullptr), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(ranks[1], &status, 0), ranks[1]);
    ASSERT_TRUE(WIFSTOPPED(status));
    EXPECT_EQ(WSTOPSIG(status), SIGTRAP);
    EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(ranks[1]) + "/fd/0"), "/dev/tty");
    // Rank 0 waits as long as the debugger keeps rank 1.
    pollfd gone{passed[0], POLLIN, 0};
    EXPECT_EQ(::poll(&gone, 1, 300), 0);
    ASSERT_EQ(::ptrace(PTRACE_DETACH, ranks[1], nullptr, nullptr), 0);
    for (const pid_t rank : ranks) {
        ASSERT_EQ(::waitpid(rank, &status, 0), rank);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (const int fd : {ready[0], ready[1], passed[0], passed[1], terminal, nothing}) ::close(fd);
}
#endif

TEST(Breakpoint, refuses_ranks_that_are_not_there) {
    const HashStore store;
    const ProcessGroup g({.store = store, .rank = 0, .world_size = 1});
    EXPECT_THROW(breakpoint(1, 0, g), InvalidArgument);
    EXPECT_THROW(breakpoint(-1, 0, g), InvalidArgument);
    EXPECT_THROW(breakpoint(0, -1, g), InvalidArgument);
}

}  // namespace
}  // namespace tutti::test
