// One suite for all stores, then the tests of each one alone.
#include "core/socket.hpp"
#include "store/tcp_server.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <atomic>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::covers;

TCPStore tcp_master(Milliseconds timeout = 30s) {
    return TCPStore({.host = "127.0.0.1", .port = 0, .world_size = 1, .is_master = true, .timeout = timeout});
}

/// A store whose server and clients do not leave TCP, though they are on one host.
TCPStore tcp_only_master() {
    ::setenv("TUTTI_STORE_LOCAL", "0", 1);
    TCPStore store = tcp_master();
    ::unsetenv("TUTTI_STORE_LOCAL");
    return store;
}

std::string temp_path(const std::string& name) {
    return ::testing::TempDir() + "tutti_store_test_" + std::to_string(::getpid()) + name;
}

struct Maker {
    const char* name;
    Store (*make)();
    std::int64_t own_keys;
};

class EveryStore : public ::testing::TestWithParam<Maker> {
 protected:
    void TearDown() override { ::unlink(temp_path("every").c_str()); }
    Store store = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(Stores, EveryStore,
                         ::testing::Values(Maker{"hash", [] { return Store(HashStore()); }, 0},
                                           Maker{"file", [] { return Store(FileStore(temp_path("every"))); }, 1},
                                           Maker{"tcp", [] { return Store(tcp_master()); }, 1},
                                           Maker{"tcp_only", [] { return Store(tcp_only_master()); }, 1},
                                           Maker{"prefix", [] { return Store(PrefixStore("p", tcp_master())); }, 1}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(EveryStore, adds) {
    covers("E-250", "S11-006");
    EXPECT_EQ(store.add("first_key", 1), 1);
    EXPECT_EQ(store.add("first_key", 6), 7);
    EXPECT_EQ(store.get("first_key"), "7");
}

TEST_P(EveryStore, appends) {
    covers("E-251", "S11-008");
    store.append("first_key", "po");
    store.append("first_key", "tato");
    EXPECT_EQ(store.get("first_key"), "potato");
}

TEST_P(EveryStore, checks_without_waiting) {
    covers("E-252", "S11-009", "A-12");
    store.add("first_key", 1);
    EXPECT_TRUE(store.check({"first_key"}));
    EXPECT_FALSE(store.check({"first_key", "bad_key"}));
}

TEST_P(EveryStore, compares_and_sets) {
    covers("E-253", "S11-010", "A-09");
    store.set("key", "first_value");
    EXPECT_EQ(store.compare_set("key", "first_value", "second_value"), "second_value");
    EXPECT_EQ(store.get("key"), "second_value");
    EXPECT_EQ(store.compare_set("key", "wrong", "third"), "second_value");
    EXPECT_EQ(store.compare_set("key", "", "third"), "second_value");
    EXPECT_EQ(store.compare_set("new", "something", "value"), "something");
    EXPECT_FALSE(store.check({"new"}));
    EXPECT_EQ(store.compare_set("new", "", "value"), "value");
    EXPECT_EQ(store.get("new"), "value");
}

TEST_P(EveryStore, deletes) {
    covers("E-254", "S11-011", "A-13", "A-14");
    store.set("first_key", "x");
    EXPECT_TRUE(store.delete_key("first_key"));
    EXPECT_FALSE(store.delete_key("bad_key"));
    EXPECT_FALSE(store.check({"first_key"}));
}

TEST_P(EveryStore, sets_and_gets_any_bytes) {
    covers("E-255", "S11-004", "S11-005", "S11-003", "S11-001");
    store.set("first_key", "first_value");
    EXPECT_EQ(store.get("first_key"), "first_value");
    const std::string odd("\0\xff\n/\0", 5);
    store.set(odd, odd);
    EXPECT_EQ(store.get(odd), odd);
    store.set("", "");
    EXPECT_EQ(store.get(""), "");
}

TEST_P(EveryStore, gets_and_sets_several) {
    covers("E-256", "E-257", "S11-012", "S11-013", "S11-014");
    store.multi_set({"first_key", "second_key"}, {"po", "tato"});
    EXPECT_EQ(store.get("first_key"), "po");
    EXPECT_EQ(store.multi_get({"first_key", "second_key"}), (std::vector<std::string>{"po", "tato"}));
    EXPECT_THROW(store.multi_set({"a"}, {}), InvalidArgument);
    EXPECT_TRUE(store.has_extended_api());
}

TEST_P(EveryStore, counts_keys) {
    covers("E-258", "S11-015", "A-11");
    store.set("first_key", "first_value");
    EXPECT_EQ(store.num_keys(), 1 + GetParam().own_keys);
}

TEST_P(EveryStore, times_out_with_the_key_and_the_time) {
    covers("E-259", "E-260", "E-261", "S11-017", "S11-018", "S11-019", "S11-020");
    const auto times_out_after = [&](Milliseconds expected, auto&& wait) {
        const auto start = std::chrono::steady_clock::now();
        try {
            wait();
            ADD_FAILURE();
        } catch (const DistStoreError& error) {
            EXPECT_EQ(error.code(), ErrorCode::timeout);
            EXPECT_NE(std::string(error.what()).find("bad_key"), std::string::npos);
            EXPECT_NE(std::string(error.what()).find(std::to_string(expected.count()) + " ms"), std::string::npos);
        }
        EXPECT_GE(std::chrono::steady_clock::now() - start, expected);
    };
    store.set_timeout(50ms);
    EXPECT_EQ(store.timeout(), 50ms);
    times_out_after(50ms, [&] { store.wait({"bad_key"}); });
    times_out_after(50ms, [&] { store.get("bad_key"); });
    times_out_after(20ms, [&] { store.wait({"bad_key"}, 20ms); });
    store.set("good", "1");  // the store still works
    EXPECT_EQ(store.get("good"), "1");
}

TEST_P(EveryStore, refuses_to_add_to_a_value) {
    covers("S11-007", "A-10");
    store.set("text", "5");
    try {
        store.add("text", 1);
        FAIL();
    } catch (const DistStoreError& error) {
        EXPECT_NE(std::string(error.what()).find("text"), std::string::npos);
    }
    store.add("counter", 1);
    store.set("counter", "2");
    EXPECT_THROW(store.add("counter", 1), DistStoreError);
    store.add("huge", INT64_MAX);
    EXPECT_THROW(store.add("huge", 1), DistStoreError);
}

TEST_P(EveryStore, wakes_waiters_of_other_threads) {
    covers("S11-002");
    std::thread waiter([this] { EXPECT_EQ(store.get("late", 10s), "value"); });
    std::thread both([this] { store.wait({"late", "later"}, 10s); });
    std::this_thread::sleep_for(20ms);
    store.set("late", "value");  // a waiting call does not hold up another
    store.set("later", "value");
    waiter.join();
    both.join();
}

TEST(HashStore, is_seen_by_other_threads) {
    covers("E-263", "S11-033");
    HashStore store;
    store.set("first_key", "first_value");
    std::thread([&] { EXPECT_EQ(store.get("first_key"), "first_value"); }).join();
}

TEST(PrefixStore, puts_its_prefix_before_every_key) {
    covers("S11-036", "S11-037", "A-46");
    HashStore below;
    PrefixStore store("prefix", below);
    store.set("key", "value");
    EXPECT_EQ(below.get("prefix/key"), "value");
    EXPECT_EQ(Store(store.underlying_store()).get("prefix/key"), "value");
}

TEST(FileStore, is_shared_by_two_stores_on_one_path) {
    covers("E-264", "S11-034", "S11-035", "S11-016");
    const std::string path = temp_path("two");
    {
        FileStore first(path, 2), second(path, 2);
        first.set("first_key", "first_value");
        EXPECT_EQ(second.get("first_key"), "first_value");
        EXPECT_EQ(first.path(), path);
    }
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the last user removes the file";
    {
        FileStore keeps(path);
        keeps.set("a", "1");
    }
    FileStore again(path);
    EXPECT_EQ(again.num_keys(), 2);
    ::unlink(path.c_str());
}

TEST(FileStore, is_not_misled_by_a_bell_that_rings_too_early) {
    const std::string path = temp_path("bell");
    FileStore store(path);
    int bell[2];
    ASSERT_EQ(::pipe(bell), 0);
    ASSERT_EQ(::write(bell[1], "", 1), 1);
    const PrefixStore prefixed("prefix", store);
    EXPECT_TRUE(prefixed.backend()->asks_again());
    EXPECT_FALSE(HashStore().backend()->asks_again());
    EXPECT_THROW(store.backend()->get_with_bell("key", 50ms, bell[0]), DistStoreError);
    std::thread late([&] {
        std::this_thread::sleep_for(50ms);
        store.set("prefix/key", "value");
    });
    EXPECT_EQ(prefixed.backend()->get_with_bell("key", 10s, bell[0]), "value");
    late.join();
    ::close(bell[0]);
    ::close(bell[1]);
    ::unlink(path.c_str());
}

TEST(FileStore, survives_a_writer_that_was_killed_in_the_middle) {
    covers("S1-030");
    const std::string path = temp_path("torn");
    FileStore store(path);
    store.set("before", "1");
    std::ofstream(path, std::ios::app | std::ios::binary)
        << std::string("\x12\x34\x56\x78\x01\0\0\0\x09\0\0\0\0\0\0\0half", 20);
    FileStore second(path);
    EXPECT_EQ(second.get("before"), "1");
    second.set("after", "2");
    EXPECT_EQ(store.get("after"), "2");
    ::unlink(path.c_str());
}

TEST(FileStore, says_when_the_disk_is_full_and_stays_usable) {
    const std::string path = temp_path("full");
    FileStore store(path);
    store.set("a", "1");
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{4096, 4096};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        FileStore limited(path);
        try {
            limited.set("big", std::string(1 << 20, 'x'));
            ::_exit(1);
        } catch (const DistStoreError& error) {
            ::_exit(std::string(error.what()).find(path) != std::string::npos && limited.get("a") == "1" ? 0 : 2);
        }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(store.get("a"), "1");
    store.set("b", "2");
    EXPECT_EQ(store.get("b"), "2");
    ::unlink(path.c_str());
}

TEST(FileStore, names_a_directory_that_is_not_there) {
    EXPECT_THROW(FileStore("/nonexistent/directory/file"), DistStoreError);
}

TEST(TCPStore, waits_in_its_constructor_for_the_other_process) {
    covers("E-262", "S11-021", "S11-022", "S11-023", "S11-024", "S11-025", "S11-026", "S11-028", "S11-031");
    UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = net::local_address(listener.get()).port;
    const pid_t child = ::fork();
    if (child == 0) {
        listener.reset();
        try {
            TCPStore client({.host = "127.0.0.1", .port = port, .world_size = 2});
            ::_exit(client.get("first_key") == "first_value" ? 0 : 1);
        } catch (const std::exception&) {
            ::_exit(2);
        }
    }
    TCPStore server({.host = "127.0.0.1",
                     .port = port,
                     .world_size = 2,
                     .is_master = true,
                     .timeout = 30s,
                     .master_listen_fd = listener.release()});
    EXPECT_EQ(server.port(), port);
    server.set("first_key", "first_value");
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(TCPStore, reports_who_is_missing_and_what_is_impossible) {
    covers("S11-029", "S11-030", "S11-032");
    try {
        TCPStore({.world_size = 2, .is_master = true, .timeout = 50ms});
        FAIL();
    } catch (const DistStoreError& error) {
        EXPECT_NE(std::string(error.what()).find("1 of 2 users"), std::string::npos) << error.what();
    }
    EXPECT_THROW(TCPStore({.world_size = 0, .is_master = true}), InvalidArgument);
    EXPECT_THROW(TCPStore({.host = "239.0.0.1", .port = 1}), InvalidArgument);
    // The store closes these sockets; others could not find a server at either.
    for (const int unbound : {::socket(AF_INET, SOCK_STREAM, 0), ::socket(AF_UNIX, SOCK_STREAM, 0)})
        EXPECT_THROW(TCPStore({.is_master = true, .master_listen_fd = unbound}), InvalidArgument);
    auto store = tcp_master();
    EXPECT_EQ(store.host(), "127.0.0.1");
    EXPECT_TRUE(store.libuv_backend());
    EXPECT_THROW(TCPStore({.port = store.port(), .is_master = true}), DistNetworkError);
}

TEST(TCPStore, shares_one_server_between_tenants) {
    covers("S11-027");
    const std::uint16_t port = net::local_address(net::listen_tcp("127.0.0.1", 0).get()).port;
    TCPStore first({.port = port, .is_master = true, .multi_tenant = true});
    TCPStore second({.port = port, .is_master = true, .multi_tenant = true});
    first.set("k", "v");
    EXPECT_EQ(second.get("k"), "v");
}

TEST(TCPStore, tells_its_clients_within_a_second_that_the_server_died) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        auto store = tcp_master();
        const std::uint16_t port = store.port();
        (void)!::write(pipe_ends[1], &port, sizeof port);
        ::pause();
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(pipe_ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    TCPStore client({.port = port});
    std::thread killer([&] {
        std::this_thread::sleep_for(50ms);
        ::kill(child, SIGKILL);
    });
    const auto start = std::chrono::steady_clock::now();
    try {
        client.get("never");
        ADD_FAILURE();
    } catch (const DistStoreError& error) {
        EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)), std::string::npos);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, test::patience(1s));
    killer.join();
    ::waitpid(child, nullptr, 0);
}

TEST(TCPStore, refuses_a_wrong_secret_and_a_forked_connection) {
    TCPStore store({.is_master = true, .secret = "the right secret"});
    try {
        TCPStore({.port = store.port(), .timeout = 2s, .secret = "the wrong secret"});
        FAIL();
    } catch (const DistNetworkError& error) {
        EXPECT_EQ(error.code(), ErrorCode::security);
    }
#ifndef __SANITIZE_ADDRESS__  // the server's thread may have its allocator's lock at the fork, and the child for ever
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            store.set("a", "b");
        } catch (const DistStoreError&) {
            ::_exit(0);
        }
        ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
#endif
}

TEST(TCPStore, needs_a_secret_beyond_loopback) {
    ::unsetenv("TUTTI_JOB_SECRET");
    try {
        TCPStore({.host = "10.255.255.1", .port = 5, .timeout = 100ms});
        FAIL();
    } catch (const DistNetworkError& error) {
        EXPECT_NE(std::string(error.what()).find("TUTTI_JOB_SECRET"), std::string::npos);
    }
}

std::size_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    statm >> total >> resident;
    return resident * static_cast<std::size_t>(::getpagesize());
}

TEST(TCPStore, serves_its_clients_while_strangers_send_garbage) {
    auto store = tcp_master();
    const std::size_t before = resident_bytes();
    std::atomic<bool> stop{false};
    std::thread stranger([&] {
        std::mt19937 random(4711);
        std::vector<UniqueFd> half_open;
        for (int i = 0; i < 10'000; ++i) {
            UniqueFd fd = net::connect_tcp({"127.0.0.1", store.port()}, Deadline::after(5s), nullptr);
            std::string bytes(random() % 200, '\0');
            for (char& c : bytes) c = static_cast<char>(random());
            if (random() % 4 == 0) bytes.insert(0, "TUTTIHS\x02");
            (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (i % 100 == 0) half_open.push_back(std::move(fd));
        }
        stop = true;
    });
    std::int64_t count = 0;
    while (!stop) EXPECT_EQ(store.add("counter", 1), ++count);
    stranger.join();
    EXPECT_GT(count, 10) << "one request in a thousand connections, on a machine that has other work too";
#ifndef __SANITIZE_ADDRESS__  // it keeps freed memory
    EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20)) << "memory stays bounded";
#else
    (void)before;
#endif
}

TEST(TCPStore, carries_large_values_between_threads) {
    auto store = tcp_master();
    const std::string large(std::size_t{64} << 20, 'x');
    std::thread reader([&] { EXPECT_EQ(store.get("large", 20s).size(), large.size()); });
    store.set("large", large);
    reader.join();
}

}  // namespace
}  // namespace tutti
