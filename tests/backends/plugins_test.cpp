// The backends of others, as programs see them: found without a setting, by all spellings of their names, on the
// devices that they serve.
#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <tutti/hfai.hpp>
#include <tutti/tutti.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// What the build has made, as CTest says.
bool is_built(const std::string& name) {
    const char* built = std::getenv("BUILT_BACKENDS");
    const std::string list = "," + std::string(built != nullptr ? built : "gloo,mpi,hf_zmq") + ",";
    return list.find("," + name + ",") != std::string::npos;
}

void run_ranks(int size, const std::string& backend, const std::function<void(ProcessGroup&)>& body) {
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ProcessGroup g({.store = store, .rank = rank, .world_size = size, .timeout = 20s, .backend = backend});
                body(g);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

void expect_sum(ProcessGroup& g) {
    std::vector<double> x(1000, g.rank() + 1.0);
    all_reduce(x, {.group = g});
    EXPECT_EQ(x.back(), g.size() * (g.size() + 1) / 2.0);
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Plugins, are_available_where_their_library_was_when_tutti_was_built) {
    covers("S2-001", "S2-005", "S1-035", "S1-037");
    EXPECT_EQ(is_gloo_available(), is_built("gloo"));
    EXPECT_EQ(is_mpi_available(), is_built("mpi"));
    EXPECT_EQ(is_backend_available("hf_zmq"), is_built("hf_zmq"));
    for (const std::string name : {"gloo", "mpi", "nccl"}) {
        EXPECT_EQ(Backend(name), name) << "a known name, in any case";
        const HashStore store;
        const auto on_cards = [&] {
            ProcessGroup({.store = store, .rank = 0, .world_size = 1, .backend = "cuda:" + name});
        };
        if (is_backend_available(name) && name != "nccl") {
            EXPECT_TRUE(has(message_of<InvalidArgument>(on_cards), "does not serve cuda"));
        } else if (!is_backend_available(name)) {
            // nccl's plug-in is there without NCCL, and says what it misses.
            EXPECT_TRUE(has(message_of<DistBackendError>(on_cards), name == "nccl" ? "nccl" : "is not here"));
        }
    }
}

TEST(Plugins, that_lack_something_here_are_not_available_until_they_have_it) {
    covers("S1-036");
    const char* folder = std::getenv("FOLDER_OF_TROUBLED");
    if (folder == nullptr) GTEST_SKIP() << "FOLDER_OF_TROUBLED is not set";
    ::setenv("TUTTI_BACKEND_PATH", folder, 1);
    ::setenv("TROUBLE", "not here: its library is missing", 1);
    EXPECT_FALSE(is_backend_available("troubled"));
    ::setenv("TROUBLE", "its library 1.2 (its file)", 1);
    EXPECT_TRUE(is_backend_available("troubled"));
    ::unsetenv("TROUBLE");
    EXPECT_TRUE(is_backend_available("troubled"));
    ::unsetenv("TUTTI_BACKEND_PATH");
}

TEST(Plugins, that_were_built_for_another_version_of_a_header_are_refused_with_a_message) {
    const char* folder = std::getenv("FOLDER_OF_TROUBLED");
    if (folder == nullptr) GTEST_SKIP() << "FOLDER_OF_TROUBLED is not set";
    ::setenv("TUTTI_BACKEND_PATH", folder, 1);
    EXPECT_FALSE(is_backend_available("outdated"));
    const std::string text = message_of<DistBackendError>([] { (void)Backend("outdated"); });
    EXPECT_TRUE(has(text, "was built for version 0 of tutti/transport.hpp: expected 4, this tutti's; build it anew"))
        << text;
    ::unsetenv("TUTTI_BACKEND_PATH");
}

TEST(Plugins, that_cannot_be_loaded_are_not_available_and_say_why) {
    const std::string folder = ::testing::TempDir() + "tutti_backends_" + std::to_string(::getpid());
    const std::string file = folder + "/libtutti-backend-broken.so";
    ASSERT_EQ(std::system(("mkdir -p " + folder + " && echo nothing > " + file).c_str()), 0);
    ::setenv("TUTTI_BACKEND_PATH", folder.c_str(), 1);
    EXPECT_FALSE(is_backend_available("broken"));
    EXPECT_TRUE(has(message_of<DistBackendError>([] { (void)Backend("broken"); }), file));
    ::unsetenv("TUTTI_BACKEND_PATH");
    ASSERT_EQ(std::system(("rm -r " + folder).c_str()), 0);
}

TEST(Gloo, serves_host_memory_also_in_a_map_and_passes_monitored_barriers) {
    covers("S2-003", "S2-019");
    if (!is_built("gloo")) GTEST_SKIP() << "libgloo was not here";
    for (const char* interfaces : {"", "lo", "lo,lo"}) {
        ::setenv("GLOO_SOCKET_IFNAME", interfaces, 1);
        run_ranks(3, "cpu:gloo", [](ProcessGroup& g) {
            EXPECT_EQ(g.backend(), "gloo");
            expect_sum(g);
            monitored_barrier({.group = g});
            const ProcessGroup two = g.split({.color = g.rank() < 2 ? 0 : -1});
            if (two) {
                ProcessGroup part = two;
                expect_sum(part);
            }
        });
    }
    ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(Gloo, names_the_interface_that_is_not_there) {
    if (!is_built("gloo")) GTEST_SKIP() << "libgloo was not here";
    ::setenv("GLOO_SOCKET_IFNAME", "lo,eth77", 1);
    const HashStore store;
    const std::string text = message_of<DistBackendError>(
        [&] { ProcessGroup({.store = store, .rank = 0, .world_size = 1, .backend = "gloo"}); });
    EXPECT_TRUE(has(text, "GLOO_SOCKET_IFNAME=lo,eth77: this host has no \"eth77\"")) << text;
    ::unsetenv("GLOO_SOCKET_IFNAME");
}

// One of two ranks whose group fails, and leaves it: `first` before the other one. The time that the other one takes.
std::chrono::steady_clock::duration time_to_leave_after_a_failure(Store store, int rank, int first) {
    std::optional<ProcessGroup> g =
        ProcessGroup({.store = store, .rank = rank, .world_size = 2, .timeout = 20s, .backend = "hf_zmq"});
    std::vector<int> x(1000);
    if (rank == 0) {
        (void)message_of<Timeout>([&] { all_reduce(x, {.group = *g, .timeout = 150ms}); });
        store.set("it has failed", "");
    }
    store.wait({rank == first ? "it has failed" : "the first has gone"}, 20s);
    if (rank != first) std::this_thread::sleep_for(100ms);  // ZeroMQ learns of it
    const auto begin = std::chrono::steady_clock::now();
    g.reset();
    const auto took = std::chrono::steady_clock::now() - begin;
    if (rank == first) store.set("the first has gone", "");
    return rank == first ? took.zero() : took;
}

// The child's exit status: 0, if no rank waited.
int leave_after_a_failure(int ports, int rank, int first) {
    try {
        std::uint16_t port = 0;
        if (::read(ports, &port, sizeof port) != sizeof port) return 3;
        if (time_to_leave_after_a_failure(TCPStore({.port = port}), rank, first) > 2s) return 2;
        return ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        return 3;
    }
}

// Ranks in processes of their own, and no thread of the one that has gone.
TEST(HfZmq, lets_a_rank_go_at_once_after_a_failure_although_its_peer_has_gone) {
    if (!is_built("hf_zmq")) GTEST_SKIP() << "libzmq was not here";
    for (const int first : {0, 1}) {
        int ports[2];
        ASSERT_EQ(::pipe(ports), 0);
        std::array<pid_t, 2> ranks{};
        for (int rank = 0; rank < 2; ++rank) {
            ranks[static_cast<std::size_t>(rank)] = ::fork();
            if (ranks[static_cast<std::size_t>(rank)] == 0) ::_exit(leave_after_a_failure(ports[0], rank, first));
        }
        const TCPStore store({.is_master = true});
        const std::uint16_t port = store.port();
        for (const pid_t rank : ranks) {
            ASSERT_GT(rank, 0);
            ASSERT_EQ(::write(ports[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
        }
        for (const pid_t rank : ranks) {
            int status = 0;
            ::waitpid(rank, &status, 0);
            EXPECT_EQ(WEXITSTATUS(status), 0)
                << "process " << rank << " of " << ranks[0] << " and " << ranks[1] << "; rank " << first
                << " leaves first; 2: the other one has waited for it";
        }
        ::close(ports[0]);
        ::close(ports[1]);
    }
}

TEST(HfZmq, has_one_backend_for_all_its_names) {
    covers("S2-009", "A-17");
    EXPECT_STREQ(hfai::HF_ZMQ_BACKEND, "hf_zmq");
    EXPECT_EQ(Backend("HF_BARRIER").name(), "hf_zmq");
    EXPECT_EQ(Backend::attribute("HF_ZMQ"), "hf_zmq");
    if (!is_built("hf_zmq")) GTEST_SKIP() << "libzmq was not here";
    for (const char* name : {"hf_barrier", "cpu:HF_Barrier", hfai::HF_ZMQ_BACKEND}) {
        run_ranks(2, name, [](ProcessGroup& g) {
            EXPECT_EQ(g.backend(), "hf_zmq");
            expect_sum(g);
            barrier({.group = g});
            std::vector<std::string> all =
                gather_object(std::string("rank ") + std::to_string(g.rank()), {.dst = 0, .group = g});
            if (g.rank() == 0) {
                EXPECT_EQ(all, (std::vector<std::string>{"rank 0", "rank 1"}));
            }
        });
    }
}

TEST(Mpi, without_mpirun_is_a_world_of_one) {
    covers("S2-005", "S2-019");
    if (!is_built("mpi")) GTEST_SKIP() << "Open MPI was not here";
    run_ranks(1, "mpi", [](ProcessGroup& g) {
        EXPECT_EQ(g.backend(), "mpi");
        expect_sum(g);
        barrier({.group = g});
    });
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank : {0, 1}) {
        threads.emplace_back([&, rank] {
            const std::string text = message_of<DistBackendError>([&] {
                ProcessGroup({.store = store, .rank = rank, .world_size = 2, .timeout = 10s, .backend = "mpi"});
            });
            EXPECT_TRUE(has(text, "are not different ranks of one MPI world (rank 0: MPI rank 0 of 1")) << text;
        });
    }
    for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::test
