// Ranks that find each other by AllToAllVV2's parameters: threads, and processes that this one starts.
#pragma once

#include "support/message_of.hpp"

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

using RankBody = std::function<void(int rank)>;

/// A child that runs the body and says by its status whether its expectations held. It dies with this process.
inline pid_t start_process(int rank, const RankBody& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 1;
    try {
        body(rank);
        status = ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
}

inline int status_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

inline void run_processes(int size, const RankBody& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) children.push_back(start_process(rank, body));
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(status_of(children[static_cast<std::size_t>(rank)]), 0) << rank;
}

inline void run_threads(int size, const RankBody& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&body, rank] {
            try {
                body(rank);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

/// A test that no launcher's variables reach.
class Atb : public ::testing::Test {
 protected:
    Atb() {
        for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TUTTI_JOB_SECRET"})
            ::unsetenv(name);
    }
};

/// The sum of all ranks' numbers, by an exchange of one element with everybody: that the domain is what it should be.
inline int sum_over(atb::AllToAllVV2& operation, int mine) {
    const ProcessGroup group = operation.group();  // none: a call has failed, and this one joins another
    const std::vector<int> x(static_cast<std::size_t>(group ? group.size() : operation.param().rankSize), mine);
    const Tensor all = operation.execute(x);
    int sum = 0;
    for (const int value : all.span<int>()) sum += value;
    return sum;
}

}  // namespace tutti::test
