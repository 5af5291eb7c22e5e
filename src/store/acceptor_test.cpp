// A store's server whose process may open no more descriptors.
#include "core/descriptors.hpp"
#include "core/unique_fd.hpp"
#include "store/tcp_test_support.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using test::a_client;
using test::a_master;
using test::connect_raw;

using namespace std::chrono_literals;

/// From here on only `count` more can be opened, or, below the hard limit, until the process raises the soft one.
void allow_more(int count, bool hard_too) {
    const UniqueFd next(::dup(0));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(next.get() + count);
    if (hard_too) limit.rlim_max = limit.rlim_cur;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Limits stay lowered: each test runs in a process of its own.
void serve_many_clients_below_the_hard_limit() {
    ::setenv("TUTTI_STORE_LOCAL", "0", 1);
    const TCPStore store = a_master();
    std::vector<UniqueFd> strangers;
    // There is a descriptor for each connect_raw(), whatever the server's thread opens, and none for the second
    // accept(2).
    UniqueFd for_second(::dup(0));
    allow_more(2, false);
    strangers.push_back(connect_raw(store.port()));
    for_second.reset();
    strangers.push_back(connect_raw(store.port()));
    for (int i = 0; i < 500 && descriptors::limits().soft != descriptors::limits().hard; ++i)
        std::this_thread::sleep_for(10ms);
    TCPStore late = a_client(store.port());
    late.set("late", "is served");
    std::_Exit(late.get("late") == "is served" ? 0 : 1);
}

TEST(AcceptorDeathTest, raises_the_soft_limit_when_it_needs_more) {
    EXPECT_EXIT(serve_many_clients_below_the_hard_limit(), ::testing::ExitedWithCode(0), "");
}

void wait_at_the_hard_limit() {
    ::setenv("TUTTI_STORE_LOCAL", "0", 1);
    const TCPStore store = a_master();
    std::vector<UniqueFd> spare;
    for (int i = 0; i < 8; ++i) spare.emplace_back(::open("/dev/null", O_RDONLY));
    allow_more(1, true);
    std::thread freeing([&] {
        std::this_thread::sleep_for(1s);
        spare.clear();
    });
    const auto start = std::chrono::steady_clock::now();
    TCPStore late = a_client(store.port());  // one descriptor for its end, none for the server's
    late.set("late", "is served");
    const bool waited = std::chrono::steady_clock::now() - start > 500ms;
    freeing.join();
    std::_Exit(late.get("late") == "is served" && waited ? 0 : 1);
}

TEST(AcceptorDeathTest, says_at_the_hard_limit_that_clients_wait_and_serves_them_later) {
    EXPECT_EXIT(wait_at_the_hard_limit(), ::testing::ExitedWithCode(0), "may open no more.*two for each rank");
}

}  // namespace
}  // namespace tutti
