// A store's server whose process may open no more descriptors.
#include "core/descriptors.hpp"
#include "core/unique_fd.hpp"
#include "store/tcp_test_support.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
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

/// A socket that connects later, and needs no further descriptor for it.
UniqueFd a_socket() {
    return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool connect_to(const UniqueFd& socket, std::uint16_t port) {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Limits stay lowered: each test runs in a process of its own.
void serve_many_clients_below_the_hard_limit() {
    ::setenv("TUTTI_STORE_LOCAL", "0", 1);
    const TCPStore store = a_master();
    const UniqueFd stranger = a_socket();
    allow_more(0, false);  // none for the server's end of the connection
    if (!connect_to(stranger, store.port())) std::_Exit(2);
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
