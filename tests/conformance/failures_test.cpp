// Errors and deaths on real ranks; how ranks join, and the default group.
#include "conformance/world.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Failures : public ::testing::TestWithParam<How> {};

#ifdef TUTTI_THREADS_ONLY
INSTANTIATE_TEST_SUITE_P(Ranks, Failures, ::testing::Values(How::threads, How::tcp_threads),
                         [](const auto& instance) { return to_string(instance.param); });
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Failures, ::testing::Values(How::threads, How::shm_processes, How::tcp_processes),
                         [](const auto& instance) { return to_string(instance.param); });
#endif

TEST_P(Failures, of_a_monitored_barrier_name_who_is_missing) {
    covers("E-226", "E-227", "S16-004", "S16-005", "S16-006", "S16-007", "S16-008", "A-35", "S17-005");
    for (const bool all : {false, true}) {
        run_ranks(3, GetParam(),
                  [all](const ProcessGroup& g) {
                      const bool comes = g.rank() == 0 || (!all && g.rank() == 2);
                      if (!comes) return std::this_thread::sleep_for(1500ms);
                      try {
                          monitored_barrier({.group = g, .timeout = 300ms, .wait_all_ranks = all});
                          ADD_FAILURE();
                      } catch (const DistError& error) {
                          const std::string text = error.what();
                          if (g.rank() == 0) {
                              EXPECT_NE(text.find(all ? "Ranks 1, 2 failed to pass monitoredBarrier in 300 ms"
                                                      : "Rank 1 failed to pass monitoredBarrier in 300 ms"),
                                        std::string::npos)
                                  << text;
                          }
                      }
                  },
                  {.leave = false});
    }
}

TEST_P(Failures, of_a_monitored_barrier_name_a_rank_that_has_left) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        if (g.rank() == 1) return;
        try {
            monitored_barrier({.group = g, .timeout = 20s});
            ADD_FAILURE();
        } catch (const PeerLost& error) {
            const std::string text = error.what();
            EXPECT_NE(text.find("Rank 1 failed to pass monitoredBarrier in 20000 ms: "), std::string::npos) << text;
            EXPECT_NE(text.find("left the group"), std::string::npos) << text;
            EXPECT_EQ(error.context().peer, 1);
        }
    });
}

// In front of a collective it tells who called something else, and what follows runs when all have come.
TEST_P(Failures, of_a_monitored_barrier_of_some_ranks_name_the_world_s_rank_that_has_left) {
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup g = new_group({1, 2}, {.world = w});
        if (w.rank() != 1) return;
        try {
            monitored_barrier({.group = g, .timeout = 20s});
            ADD_FAILURE();
        } catch (const PeerLost& error) {
            const std::string text = error.what();
            EXPECT_NE(text.find("Rank 2 failed to pass monitoredBarrier in 20000 ms: "), std::string::npos) << text;
            EXPECT_EQ(error.context().peer, 2);
        }
    });
}

TEST_P(Failures, of_a_desynchronised_rank_are_found_by_a_monitored_barrier_before_the_collective) {
    covers("S16-009");
    run_ranks(3, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<float> x(1000, 1);
                  monitored_barrier({.group = g});
                  all_reduce(x, {.group = g});
                  if (g.rank() == 1) return std::this_thread::sleep_for(500ms);  // believes to be done
                  const std::string text = message_of<DistError>([&] {
                      monitored_barrier({.group = g, .timeout = 300ms});
                      all_reduce(x, {.group = g});
                  });
                  EXPECT_TRUE(has(text, g.rank() == 0 ? "Rank 1 failed to pass monitoredBarrier in 300 ms" : "rank 0"))
                      << text;
                  EXPECT_EQ(x, std::vector<float>(1000, 3)) << "the collective did not begin";
              },
              {.leave = false});
}

TEST_P(Failures, of_arguments_come_before_any_traffic_and_leave_the_group_whole) {
    covers("S17-006", "S8-003", "A-36", "A-51");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(4), y(4);
        std::vector<double> d(4);
        EXPECT_THROW(broadcast(x, {.group = g}), InvalidArgument);
        EXPECT_THROW(broadcast(x, {.src = 0, .group = g, .group_src = 0}), InvalidArgument);
        EXPECT_THROW(broadcast(x, {.src = 2, .group = g}), InvalidArgument);
        EXPECT_THROW(all_gather({x}, y, {.group = g}), InvalidArgument);
        EXPECT_THROW(all_gather({x, d}, y, {.group = g}), InvalidArgument);
        EXPECT_THROW(all_gather_into_tensor(x, y, {.group = g}), InvalidArgument);
        EXPECT_THROW(reduce_scatter_tensor(x, y, {.group = g}), InvalidArgument);
        EXPECT_THROW(all_to_all_single(x, y, {.output_split_sizes = {1, 2}, .group = g}), InvalidArgument);
        EXPECT_THROW(all_reduce(x, {.op = ReduceOp::bor, .group = g}), InvalidArgument);
        EXPECT_THROW(all_reduce(TensorView(x.data(), {4}, float32, {}, {Device::Type::cuda, 0}), {.group = g}),
                     InvalidArgument);
        EXPECT_THROW(scatter(x, g.rank() == 0 ? ConstTensorList{y} : ConstTensorList{y, y}, {.src = 0, .group = g}),
                     InvalidArgument);
        all_reduce(x, {.group = g});
    });
}

TEST_P(Failures, of_agreement_show_both_sides_on_every_rank) {
    covers("A-34");
    const auto expect_mismatch = [this](auto call, std::vector<std::string> both) {
        run_ranks(3, GetParam(),
                  [&](const ProcessGroup& g) {
                      try {
                          call(g);
                          barrier({.group = g});  // a rank whose part was done may only learn it now
                          ADD_FAILURE() << "rank " << g.rank();
                      } catch (const CollectiveMismatch& error) {
                          for (const std::string& side : both) {
                              EXPECT_NE(std::string(error.what()).find(side), std::string::npos)
                                  << "rank " << g.rank() << ": " << error.what();
                          }
                      }
                      EXPECT_THROW(barrier({.group = g}), CollectiveMismatch) << "the group is unusable";
                      std::this_thread::sleep_for(300ms);  // the others have yet to hear of it
                  },
                  {.timeout = 20s, .leave = false});
    };
    expect_mismatch(
        [](const ProcessGroup& g) {
            std::vector<float> x(g.rank() == 1 ? 20 : 10);
            all_reduce(x, {.group = g});
        },
        {"float32 × 10", "float32 × 20"});
    expect_mismatch(
        [](const ProcessGroup& g) {
            std::vector<float> x(100'000);
            std::vector<std::int32_t> y(100'000);
            all_reduce(g.rank() == 2 ? TensorView(y) : TensorView(x), {.group = g});
        },
        {"float32", "int32"});
    expect_mismatch(
        [](const ProcessGroup& g) {
            std::vector<float> x(50);
            if (g.rank() == 0)
                barrier({.group = g});
            else
                all_reduce(x, {.group = g});
        },
        {"barrier", "all_reduce"});
    expect_mismatch(
        [](const ProcessGroup& g) {
            std::vector<float> x(50);
            all_reduce(x, {.op = g.rank() == 1 ? ReduceOp::max : ReduceOp::sum, .group = g});
        },
        {"sum", "max"});
}

TEST_P(Failures, to_receive_from_a_rank_that_has_left_come_soon_and_after_what_it_sent) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 1) {
                      std::vector<float> large(300'000, 2.F);
                      Work sent = isend(large, 0, {.group = g});
                      send(std::vector<float>{1.F}, 0, {.tag = 1, .group = g});
                      sent.wait();
                      ProcessGroup(g).destroy();
                      std::this_thread::sleep_for(2s);
                      return;
                  }
                  std::vector<float> large(300'000), small(1);
                  recv(large, {.src = 1, .group = g});
                  EXPECT_EQ(large.back(), 2.F);
                  recv(small, {.src = 1, .tag = 1, .group = g});
                  EXPECT_EQ(small[0], 1.F);
                  const auto begin = std::chrono::steady_clock::now();
                  EXPECT_THROW(recv(small, {.src = 1, .tag = 1, .group = g}), PeerLost);
                  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(5s));
              },
              {.timeout = 30s, .leave = false});
}

TEST_P(Failures, by_a_rank_that_never_comes_name_it) {
    run_ranks(3, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 2) return std::this_thread::sleep_for(1500ms);
                  std::vector<float> x(1000);
                  try {
                      all_reduce(x, {.group = g, .timeout = 300ms});
                      ADD_FAILURE();
                  } catch (const Timeout& error) {
                      // Whoever it waits for itself, in whatever algorithm: what all ranks say counts.
                      const std::string text = error.what();
                      EXPECT_NE(text.find("ranks 0, 1: called #1 all_reduce of float32 × 1000, sum"), std::string::npos)
                          << text;
                      EXPECT_NE(text.find("rank 2: has not called it: it has called nothing in this group"),
                                std::string::npos)
                          << text;
                      EXPECT_EQ(error.context().peer, 2) << text;
                      EXPECT_EQ(error.context().operation, "all_reduce");
                  }
                  std::this_thread::sleep_for(300ms);
              },
              {.leave = false});
}

TEST(Joining, lists_who_is_missing_on_every_rank) {
    covers("S1-001", "A-04");
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank : {0, 1, 3}) {
        threads.emplace_back([&, rank] {
            try {
                ProcessGroup({.store = store, .rank = rank, .world_size = 4, .timeout = 200ms});
                ADD_FAILURE();
            } catch (const DistStoreError& error) {
                EXPECT_EQ(error.code(), ErrorCode::timeout);
                EXPECT_NE(std::string(error.what()).find("missing: rank 2"), std::string::npos) << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_THROW(ProcessGroup({.store = store, .rank = 4, .world_size = 4}), InvalidArgument);
    EXPECT_THROW(ProcessGroup({.rank = 0, .world_size = 1}), InvalidArgument);
}

TEST(DefaultGroup, comes_and_goes_and_comes_again) {
    covers("S1-003", "S1-005", "S1-006", "S1-012", "S1-013", "S1-014", "S1-015", "S1-017", "S1-024", "S1-026", "S1-032",
           "S1-033", "S1-034", "S4-001", "S4-018", "S4-019", "S18-001", "S18-003", "A-39", "A-47");
    EXPECT_FALSE(is_initialized());
    EXPECT_EQ(message_of<InvalidArgument>([] { (void)get_rank(); }),
              "get_rank: there is no default group; call init_process_group first");
    EXPECT_EQ(message_of<InvalidArgument>([] { destroy_process_group(); }),
              "destroy_process_group: there is no default group; call init_process_group first");
    const std::string file = ::testing::TempDir() + "tutti_default_group_" + std::to_string(::getpid());
    const std::string port = std::to_string(free_port());
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", port.c_str(), 1);
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "1", 1);
    const InitOptions ways[] = {{.init_method = "file://" + file + "?rank=0&world_size=1"},
                                {.world_size = 1, .rank = 0, .store = HashStore(), .group_name = "ignored"},
                                {.init_method = "tcp://127.0.0.1:" + port, .world_size = 1, .rank = 0},
                                {.init_method = "env://", .timeout = 7s},
                                {}};
    for (const InitOptions& way : ways) {
        init_process_group(way);
        EXPECT_TRUE(is_initialized());
        EXPECT_EQ(get_rank(), 0);
        EXPECT_EQ(get_world_size(), 1);
        EXPECT_EQ(default_group().timeout(), way.timeout.value_or(default_timeout));
        std::vector<float> x{1};
        all_reduce(x);
        EXPECT_EQ(message_of<InvalidArgument>([&] { broadcast(x, {.src = 7}); }), "broadcast: src 7: expected 0 to 0");
        EXPECT_EQ(message_of<InvalidArgument>([&] { reduce(x, {.group_dst = 7}); }),
                  "reduce: group_dst 7: expected 0 to 0");
        EXPECT_EQ(message_of<InvalidArgument>([&] { broadcast(x, {}); }),
                  "broadcast: no src is given: expected src or group_src");
        EXPECT_THROW(init_process_group(), InvalidArgument);
        destroy_process_group();
        EXPECT_FALSE(is_initialized());
    }
    EXPECT_NE(::access(file.c_str(), F_OK), 0);
}

// A share that is mounted as its URL says; a drive only where a folder has its name.
TEST(DefaultGroup, takes_the_file_urls_of_windows_where_they_name_something) {
    covers("S1-031");
    const std::string text = message_of<InvalidArgument>(
        [] { init_process_group({.init_method = "file:///d:/tmp/some_file", .world_size = 1, .rank = 0}); });
    EXPECT_TRUE(has(text, "\"file:///d:/tmp/some_file\": folder /d:/tmp is not here (a drive of Windows")) << text;
    const std::string folder = ::testing::TempDir() + "machine_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder + "/d:");
    for (const std::string& url : {"file:////" + folder + "/some_file", "file://" + folder + "/d:/some_file"}) {
        init_process_group({.init_method = url, .world_size = 1, .rank = 0});
        EXPECT_EQ(get_world_size(), 1);
        destroy_process_group();
    }
    std::filesystem::remove_all(folder);
}

TEST(DefaultGroup, says_what_is_wrong_with_an_address) {
    covers("S1-011", "S1-025", "S1-027", "A-38");
    for (const char* bad :
         {"tcp://127.0.0.1?rank=0&world_size=1", "tcp://127.0.0.1:99999?rank=0&world_size=1", "ftp://x",
          "tcp://239.1.1.1:5?rank=0&world_size=1", "tcp://127.0.0.1:5", "file://relative?rank=0&world_size=1",
          "tcp://127.0.0.1:5?rank=0&world_size=1&colour=red", "nonsense"}) {
        ::unsetenv("RANK");
        EXPECT_THROW(init_process_group({.init_method = bad}), InvalidArgument) << bad;
    }
    EXPECT_THROW(init_process_group({.init_method = "tcp://127.0.0.1:5?rank=0&world_size=1", .rank = 1}),
                 InvalidArgument);
    EXPECT_THROW(init_process_group({.init_method = "env://", .store = HashStore()}), InvalidArgument);
}

TEST(DefaultGroup, is_a_world_of_one_in_a_program_that_nobody_launched) {
    constexpr std::array variables{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    for (const char* variable : variables) ::unsetenv(variable);
    for (int turn = 0; turn < 2; ++turn) {
        init_process_group();
        EXPECT_EQ(get_world_size(), 1);
        EXPECT_EQ(get_rank(), 0);
        std::vector<int> x{7};
        all_reduce(x);
        EXPECT_EQ(x[0], 7);
        destroy_process_group();
    }
    const std::array<std::pair<const char*, const char*>, 4> halves{{
        {"RANK", "WORLD_SIZE is not set, while RANK is set; set it"},
        {"WORLD_SIZE", "RANK is not set, while WORLD_SIZE is set; set it"},
        {"MASTER_ADDR", "RANK and WORLD_SIZE are not set, while MASTER_ADDR is set; set both"},
        {"MASTER_PORT", "RANK and WORLD_SIZE are not set, while MASTER_PORT is set; set both"},
    }};
    for (const auto& [variable, words] : halves) {
        ::setenv(variable, "1", 1);
        const std::string text = message_of<InvalidArgument>([] { init_process_group({.timeout = 2s}); });
        EXPECT_TRUE(has(text, words)) << text;
        ::unsetenv(variable);
    }
}

#ifndef TUTTI_THREADS_ONLY
TEST(Death, of_a_rank_is_known_to_the_others_within_two_seconds) {
    for (const How how : {How::shm_processes, How::tcp_processes}) {
        int ports[2];
        ASSERT_EQ(::pipe(ports), 0);
        std::vector<pid_t> children;
        for (int rank = 0; rank < 3; ++rank) {
            const pid_t child = ::fork();
            if (child != 0) {
                children.push_back(child);
                continue;
            }
            std::uint16_t port = 0;
            int status = 1;
            if (::read(ports[0], &port, sizeof port) != sizeof port) ::_exit(9);
            try {
                const TCPStore store({.port = port});
                const ProcessGroup g({.store = store,
                                      .rank = rank,
                                      .world_size = 3,
                                      .transport = how == How::tcp_processes ? TransportKind::tcp : TransportKind::shm,
                                      .backend = backend_under_test()});
                std::vector<float> x(1 << 20);
                const auto start = std::chrono::steady_clock::now();
                try {
                    for (int i = 0;; ++i) {
                        if (rank == 1 && i == 20) ::raise(SIGKILL);
                        all_reduce(x, {.group = g});
                    }
                } catch (const PeerLost& lost) {
                    const bool named =
                        lost.context().peer == 1 && std::string(lost.what()).find("rank 1") != std::string::npos;
                    if (!named) std::fprintf(stderr, "rank %d: %s\n", rank, lost.what());
                    status = named && std::chrono::steady_clock::now() - start < 20s ? 0 : 2;
                }
                std::this_thread::sleep_for(200ms);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
                status = 3;
            }
            std::fflush(nullptr);
            ::_exit(status);
        }
        const TCPStore store({.is_master = true});
        const std::uint16_t port = store.port();
        for (int rank = 0; rank < 3; ++rank)
            ASSERT_EQ(::write(ports[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
        int status = 0;
        ::waitpid(children[1], &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status));
        const auto died = std::chrono::steady_clock::now();
        for (const int survivor : {0, 2}) {
            ::waitpid(children[static_cast<std::size_t>(survivor)], &status, 0);
            EXPECT_EQ(status, 0) << "rank " << survivor << " over " << to_string(how);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - died, patience(3s));
        ::close(ports[0]);
        ::close(ports[1]);
    }
}

TEST(Waiting, burns_next_to_no_cpu) {
    run_ranks(2, How::shm_processes, [](const ProcessGroup& g) {
        barrier({.group = g});
        if (g.rank() == 1) return (std::this_thread::sleep_for(1s), barrier({.group = g}));
        rusage before{}, after{};
        ::getrusage(RUSAGE_SELF, &before);
        barrier({.group = g});
        ::getrusage(RUSAGE_SELF, &after);
        const auto ms = [](const timeval& t) { return t.tv_sec * 1000 + t.tv_usec / 1000; };
        EXPECT_LT(ms(after.ru_utime) + ms(after.ru_stime) - ms(before.ru_utime) - ms(before.ru_stime), 50);
    });
}
#endif

}  // namespace
}  // namespace tutti::test
