// run_ranks: a test's body on n ranks, as threads of this process or as processes of their own.
#pragma once

#include "support/job_of_mpirun.hpp"
#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

/// The variant that runs under sanitizers, which look at each access of the tests too: less data, as many messages.
#ifdef TUTTI_THREADS_ONLY
inline constexpr bool watched = true;
#else
inline constexpr bool watched = false;
#endif

/// `part`: the body's group is a part of a world with one rank more.
enum class How { threads, shm_processes, tcp_processes, tcp_threads, part };

inline std::string to_string(How how) {
    switch (how) {
        case How::threads: return "threads";
        case How::shm_processes: return "shm";
        case How::tcp_processes: return "tcp";
        case How::tcp_threads: return "tcp_threads";
        case How::part: return "part";
    }
    return "?";
}

/// What the groups are made with; empty: native.
inline std::string backend_under_test() {
    const char* name = std::getenv("TUTTI_CONFORMANCE_BACKEND");
    return name != nullptr ? name : "";
}

/// The ways that this program tries: sanitizers watch threads, real jobs are processes.
inline std::vector<How> every_way() {
    if (!backend_under_test().empty()) return {How::threads, How::shm_processes};
#ifdef TUTTI_THREADS_ONLY
    return {How::threads, How::tcp_threads};
#else
    return {How::threads, How::shm_processes, How::tcp_processes, How::part};
#endif
}

/// Those in which the body's group is all of its world.
inline std::vector<How> whole_worlds() {
    std::vector<How> ways = every_way();
    std::erase(ways, How::part);
    return ways;
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// A port that was free a moment ago.
inline std::uint16_t free_port() {
    return TCPStore({.is_master = true}).port();
}

using Body = std::function<void(const ProcessGroup&)>;

struct WorldOptions {
    std::chrono::milliseconds timeout = patience(std::chrono::seconds(30));
    Determinism determinism = Determinism::fast;
    bool leave = true;  // destroy the group after the body
};

inline void run_rank(const Store& store, int rank, int size, How how, const Body& body, const WorldOptions& options) {
    const bool tcp = how == How::tcp_processes || how == How::tcp_threads;
    ProcessGroup group({.store = store,
                        .rank = rank,
                        .world_size = how == How::part ? size + 1 : size,
                        .timeout = options.timeout,
                        .transport = tcp ? TransportKind::tcp : TransportKind::shm,
                        .determinism = options.determinism,
                        .backend = backend_under_test()});
    if (how == How::part) {
        const ProcessGroup part = group.split({.color = rank < size ? 0 : -1, .timeout = options.timeout});
        if (rank == size) {
            try {  // what fails in the part fails in the whole, perhaps before this rank is through
                barrier({.group = group});
                group.destroy();
            } catch (const DistError&) {
            }
            return;
        }
        barrier({.group = group});
        body(part);
        if (options.leave) ProcessGroup(part).destroy();
    } else {
        body(group);
    }
    if (options.leave) group.destroy();
}

/// TUTTI_CONFORMANCE_PORT: this process is a rank of a job (of mpirun's), and all ranks run the same tests.
inline const char* port_of_job() {
    return std::getenv("TUTTI_CONFORMANCE_PORT");
}

/// The body on the first ranks of that job; the others wait until they are done.
inline void run_in_job(int size, const Body& body, const WorldOptions& options) {
    const int rank = rank_of_mpirun(), ranks = ranks_of_mpirun();
    if (size > ranks) GTEST_SKIP() << "by design: a job of " << ranks << " ranks has no " << size;
    static const TCPStore store({.port = static_cast<std::uint16_t>(std::atoi(port_of_job())), .is_master = rank == 0});
    static int runs = 0;
    if (runs == 0) {  // all ranks begin MPI, or none
        run_rank(
            PrefixStore("begin", store), rank, ranks, How::threads, [](const ProcessGroup&) {}, options);
    }
    PrefixStore own("run/" + std::to_string(++runs), store);
    try {
        if (rank < size) run_rank(own, rank, size, How::threads, body, options);
    } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " of " << size << ": " << error.what();
    }
    if (own.add("done", 1) == ranks) own.set("all done", "");
    own.wait({"all done"});
}

/// EXPECTs and FAILs of the body count on every rank; an exception that escapes it is a failure.
inline void run_ranks(int size, How how, const Body& body, const WorldOptions& options = {}) {
    if (port_of_job() != nullptr) return run_in_job(size, body, options);
    if (how == How::threads || how == How::tcp_threads || how == How::part) {
        const HashStore store;
        std::vector<std::thread> threads;
        for (int rank = 0; rank < (how == How::part ? size + 1 : size); ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    run_rank(store, rank, size, how, body, options);
                } catch (const std::exception& error) {
                    ADD_FAILURE() << "rank " << rank << " of " << size << ": " << error.what();
                }
            });
        }
        for (auto& thread : threads) thread.join();
        return;
    }
    // Children are forked before the store's server makes threads.
    int ports[2];
    ASSERT_EQ(::pipe(ports), 0);
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
        const pid_t child = ::fork();
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        int status = 1;
        try {
            std::uint16_t port = 0;
            if (::read(ports[0], &port, sizeof port) == sizeof port) {
                const TCPStore store({.port = port});
                run_rank(store, rank, size, how, body, options);
                status = ::testing::Test::HasFailure() ? 1 : 0;
            }
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d of %d: %s\n", rank, size, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    const TCPStore store({.is_master = true});
    const std::uint16_t port = store.port();
    for (int rank = 0; rank < size; ++rank)
        ASSERT_EQ(::write(ports[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    ::close(ports[0]);
    ::close(ports[1]);
    for (int rank = 0; rank < size; ++rank) {
        int status = 0;
        ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
        EXPECT_EQ(status, 0) << "rank " << rank << " of " << size << " over " << to_string(how);
    }
}

}  // namespace tutti::test
