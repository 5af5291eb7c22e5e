// The default group on real processes: every way to meet, what it tells about itself, what a second world sees.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <type_traits>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// Runs `body` in `size` processes; every one must return true.
void run_processes(int size, const std::function<bool(int rank)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
        const pid_t child = ::fork();
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        int status = 1;
        try {
            status = body(rank) && !::testing::Test::HasFailure() ? 0 : 1;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
        int status = 0;
        ::waitpid(children[rank], &status, 0);
        EXPECT_EQ(status, 0) << "rank " << rank;
    }
}

bool world_works(int rank, int size) {
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(get_rank(), rank);
    EXPECT_EQ(get_world_size(), size);
    EXPECT_EQ(get_backend(), "native");
    std::vector<int> x{rank + 1}, all(static_cast<std::size_t>(size)), got{-1};
    all_reduce(x);
    EXPECT_EQ(x[0], size * (size + 1) / 2);
    all_gather_into_tensor(all, std::vector<int>{rank});
    EXPECT_EQ(all.back(), size - 1);
    broadcast(x, {.src = size - 1});
    const int next = (rank + 1) % size;
    Work sent = isend(x, next);
    recv(got);
    sent.wait();
    EXPECT_EQ(got[0], x[0]);
    barrier();
    monitored_barrier({.timeout = 10s});
    destroy_process_group();
    EXPECT_FALSE(is_initialized());
    return true;
}

void set_environment(int rank, int size, std::uint16_t port) {
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
}

TEST(Jobs, meet_by_environment_address_file_and_store) {
    covers("S1-005", "S1-006", "S1-011", "S1-012", "S1-013", "S1-014", "S1-024", "S1-026", "S1-032", "S1-033", "S1-040",
           "S2-015", "S3-001", "S3-002", "S3-003", "S3-004", "S4-018", "S8-002", "S18-001");
    for (const int size : {2, 4}) {
        const std::uint16_t port = free_port();
        run_processes(size, [&](int rank) {
            set_environment(rank, size, port);
            init_process_group();
            return world_works(rank, size);
        });
        const std::uint16_t other = free_port();
        run_processes(size, [&](int rank) {
            ::setenv("RANK", "77", 1);  // the arguments win
            init_process_group(
                {.init_method = "tcp://127.0.0.1:" + std::to_string(other), .world_size = size, .rank = rank});
            return world_works(rank, size);
        });
        ::unsetenv("RANK");
        const std::string file = ::testing::TempDir() + "tutti_jobs_" + std::to_string(::getpid());
        run_processes(size, [&](int rank) {
            init_process_group({.init_method = "file://" + file, .world_size = size, .rank = rank});
            return world_works(rank, size);
        });
        EXPECT_NE(::access(file.c_str(), F_OK), 0) << "the last user removes the file";
        const std::uint16_t third = free_port();
        run_processes(size, [&](int rank) {
            const TCPStore store({.port = third, .is_master = rank == 0, .wait_for_workers = false});
            init_process_group({.world_size = size, .rank = rank, .store = PrefixStore("job", store)});
            const bool good = world_works(rank, size);
            // The store is this program's: the server goes last.
            Store mine = store;
            if (mine.add("done", 1) == size) mine.set("all done", "1");
            if (rank == 0) mine.wait({"all done"});
            return good;
        });
    }
}

TEST(Jobs, come_again_after_they_have_ended_in_the_same_processes) {
    covers("S18-003", "A-47");
    const std::uint16_t port = free_port();
    run_processes(3, [&](int rank) {
        const TCPStore store({.port = port, .is_master = rank == 0, .wait_for_workers = false});
        Store meeting = store;
        for (int generation = 0; generation < 4; ++generation) {
            init_process_group({.world_size = 3, .rank = (rank + generation) % 3, .store = store});
            world_works((rank + generation) % 3, 3);
            // They meet by other means before they begin again.
            meeting.add("left/" + std::to_string(generation), 1);
            while (meeting.add("left/" + std::to_string(generation), 0) < 3) std::this_thread::sleep_for(1ms);
        }
        if (meeting.add("done", 1) == 3) meeting.set("all done", "1");
        if (rank == 0) meeting.wait({"all done"});
        return true;
    });
}

TEST(Jobs, come_again_to_the_same_address_without_waiting_for_each_other) {
    covers("S18-003", "A-47");
    const std::uint16_t port = free_port();
    run_processes(3, [&](int rank) {
        set_environment(rank, 3, port);
        for (int generation = 0; generation < 8; ++generation) {
            if (generation % 3 == rank) std::this_thread::sleep_for(20ms);
            init_process_group();
            world_works(rank, 3);
        }
        return true;
    });
}

TEST(Jobs, refuse_backends_that_are_not_there_before_anything_happens) {
    covers("S1-007", "S1-001");
    for (const char* name : {"nccl", "mpi", "cpu:gloo,cuda:custom_backend"}) {
        try {
            init_process_group({.backend = name});
            ADD_FAILURE() << name;
        } catch (const DistBackendError& error) {
            const std::string first = std::string(name).substr(0, std::string(name).find(','));
            EXPECT_NE(std::string(error.what()).find(first.substr(first.find(':') + 1)), std::string::npos)
                << error.what();
        }
    }
    EXPECT_THROW(init_process_group({.backend = "Native "}), InvalidArgument);
    EXPECT_THROW(init_process_group({.timeout = 0ms, .world_size = 1, .rank = 0, .store = HashStore()}),
                 InvalidArgument);
    std::vector<int> x(1);
    try {
        all_reduce(x);
        ADD_FAILURE() << "there is no group";
    } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.code(), ErrorCode::not_initialized);
        EXPECT_NE(std::string(error.what()).find("init_process_group"), std::string::npos) << error.what();
    }
    for (const char* name : {"", "native", "cpu:native"}) {
        init_process_group({.backend = name, .world_size = 1, .rank = 0, .store = HashStore()});
        all_reduce(x);
        destroy_process_group();
    }
}

TEST(Jobs, know_whether_an_elastic_launcher_started_them) {
    covers("S1-039", "S1-003", "S3-006");
    ::unsetenv("TORCHELASTIC_RUN_ID");
    EXPECT_FALSE(is_torchelastic_launched());
    ::setenv("TORCHELASTIC_RUN_ID", "job-1", 1);
    EXPECT_TRUE(is_torchelastic_launched());
    ::unsetenv("TORCHELASTIC_RUN_ID");
    EXPECT_TRUE(is_available());
}

TEST(Jobs, wait_half_an_hour_for_an_operation_unless_told_otherwise) {
    covers("A-03", "S1-015");
    init_process_group({.world_size = 1, .rank = 0, .store = HashStore()});
    EXPECT_EQ(default_group().timeout(), 30min);
    default_group().set_timeout(5s);
    EXPECT_EQ(default_group().timeout(), 5s);
    EXPECT_THROW(default_group().set_timeout(0ms), InvalidArgument);
    destroy_process_group();
    EXPECT_EQ(HashStore().timeout(), 300s);
}

TEST(Errors, are_one_family_that_is_caught_at_any_level) {
    covers("S17-001", "S17-002", "S17-003", "S17-004", "S17-005", "S17-006");
    static_assert(std::is_base_of_v<std::runtime_error, DistError>);
    static_assert(std::is_base_of_v<DistError, DistBackendError>);
    static_assert(std::is_base_of_v<DistError, DistNetworkError>);
    static_assert(std::is_base_of_v<DistError, DistStoreError>);
    static_assert(std::is_base_of_v<DistError, InvalidArgument>);
    for (const auto& derived :
         {std::is_base_of_v<DistBackendError, CollectiveMismatch>, std::is_base_of_v<DistBackendError, PeerLost>,
          std::is_base_of_v<DistBackendError, Timeout>, std::is_base_of_v<DistBackendError, Aborted>}) {
        EXPECT_TRUE(derived);
    }
    // A store whose key never comes, a server that is not there: each its own class, all a std::runtime_error.
    EXPECT_THROW((void)HashStore().get("never", 20ms), DistStoreError);
    EXPECT_THROW((void)TCPStore({.port = free_port(), .timeout = 200ms}), DistNetworkError);
    EXPECT_THROW((void)HashStore().get("never", 20ms), std::runtime_error);
}

}  // namespace
}  // namespace tutti::test
