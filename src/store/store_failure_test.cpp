// Failures: killed processes, strangers, full and foreign files, aborts. Network only on loopback.
#include "core/socket.hpp"
#include "security/handshake.hpp"
#include "store/pending_connections.hpp"
#include "store/process_test_support.hpp"
#include "store/tcp_server.hpp"
#include "store/tcp_test_support.hpp"
#include "store/wire.hpp"
#include "support/covers.hpp"
#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <thread>

namespace tutti {
namespace {

using test::message_of;
using namespace std::chrono_literals;
using test::a_client;
using test::a_master;
using test::Child;
using test::closes_within;
using test::connect_raw;
using test::covers;
using test::expect_contains;
using test::Pipe;
using test::TempPath;

TEST(FileStoreFailure, whole_records_survive_writers_killed_at_any_moment) {
    const TempPath file("killed");
    FileStore store(file.path);
    std::mt19937 random(4711);
    int torn = 0;
    for (int round = 0; round < 12; ++round) {
        Child writer([&] {
            FileStore mine(file.path);
            for (int i = 0;; ++i) mine.set("big", std::string(std::size_t{4} << 20U, static_cast<char>('a' + i % 26)));
            return 0;
        });
        std::this_thread::sleep_for(std::chrono::microseconds(5000 + random() % 20000));
        writer.kill();
        struct stat before {};
        ::stat(file.path.c_str(), &before);
        store.set("round", std::to_string(round));
        struct stat after {};
        ::stat(file.path.c_str(), &after);
        torn += after.st_size < before.st_size ? 1 : 0;  // a torn record was cut off
        FileStore fresh(file.path);
        EXPECT_EQ(fresh.get("round"), std::to_string(round));
        if (fresh.check({"big"})) {
            const std::string value = fresh.get("big");
            EXPECT_EQ(value, std::string(std::size_t{4} << 20U, value.front()));
        }
    }
    RecordProperty("rounds_with_a_torn_record", torn);
}

TEST(FileStoreFailure, a_foreign_file_is_refused_and_left_alone) {
    const TempPath file("foreign");
    const std::string text = "dear diary, this is not a store";
    std::ofstream(file.path) << text;
    ASSERT_EQ(::chmod(file.path.c_str(), 0600), 0);
    const std::string refusal = message_of<DistStoreError>([&] { FileStore(file.path).set("a", "b"); });
    expect_contains(refusal, file.path);
    expect_contains(refusal, "not a store's file");
    std::ifstream again(file.path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), text);
    EXPECT_THROW(FileStore("/tmp"), DistStoreError);
    EXPECT_THROW(FileStore(""), InvalidArgument);
}

TEST(FileStoreFailure, a_record_damaged_in_the_middle_is_an_error_and_not_a_loss) {
    const TempPath file("damaged");
    {
        FileStore store(file.path);
        store.set("first", "1");
        store.set("second", "2");
    }
    std::fstream(file.path, std::ios::in | std::ios::out | std::ios::binary).seekp(30).put('#');
    expect_contains(message_of<DistStoreError>([&] { FileStore store(file.path); }), "damaged");
}

TEST(FileStoreFailure, a_file_whose_user_died_belongs_to_an_earlier_job) {
    covers("A-40");
    const TempPath file("stale");
    Child crashed([&] {
        FileStore store(file.path, 2);
        store.set("address", "of a dead process");
        ::_exit(0);  // without leaving
        return 0;
    });
    EXPECT_EQ(crashed.wait(), 0);
    const std::string text = message_of<DistStoreError>([&] { FileStore(file.path, 2); });
    expect_contains(text, file.path);
    expect_contains(text, "earlier job");
}

TEST(FileStoreFailure, more_users_than_its_world_size_are_refused) {
    const TempPath file("crowded");
    FileStore first(file.path, 2);
    FileStore second(file.path, 2);
    expect_contains(message_of<DistStoreError>([&] { FileStore(file.path, 2); }), "2 users already");
}

TEST(FileStoreFailure, a_lock_that_somebody_keeps_ends_in_a_timeout) {
    const TempPath file("locked");
    FileStore store(file.path, -1, 100ms);
    const UniqueFd other(::open(file.path.c_str(), O_RDWR | O_CLOEXEC));
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    ASSERT_EQ(::fcntl(other.get(), F_OFD_SETLK, &range), 0);
    const Instant start = Clock::now();
    EXPECT_THROW(store.set("a", "b"), DistStoreError);
    EXPECT_THROW((void)store.get("a"), DistStoreError);
    EXPECT_LT(Clock::now() - start, test::patience(5s));
}

TEST(FileStoreFailure, processes_and_forked_children_never_lose_an_addition) {
    const TempPath file("counted");
    FileStore store(file.path);
    store.add("counter", 0);
    {
        std::vector<std::unique_ptr<Child>> children;
        for (int i = 0; i < 4; ++i) {
            // Two use their parent's object, two make their own.
            children.push_back(std::make_unique<Child>([&, i] {
                std::optional<FileStore> own;
                if (i % 2 == 0) own.emplace(file.path);
                Store& mine = own ? static_cast<Store&>(*own) : store;
                for (int n = 0; n < 100; ++n) mine.add("counter", 1);
                return 0;
            }));
        }
        for (auto& child : children) EXPECT_EQ(child->wait(), 0);
    }
    EXPECT_EQ(store.add("counter", 0), 400);
}

TEST(TCPStoreFailure, silent_strangers_are_dropped_and_hold_nobody_up) {
    ::setenv("TUTTI_HANDSHAKE_TIMEOUT_MS", "300", 1);
    TCPStore store = a_master();
    ::unsetenv("TUTTI_HANDSHAKE_TIMEOUT_MS");
    const UniqueFd silent = connect_raw(store.port());
    const UniqueFd half = connect_raw(store.port());
    ASSERT_EQ(::send(half.get(), "TUTTI", 5, MSG_NOSIGNAL), 5);
    TCPStore client = a_client(store.port());
    client.set("a", "b");
    EXPECT_TRUE(closes_within(silent.get(), 5s));
    EXPECT_TRUE(closes_within(half.get(), 5s));
    EXPECT_EQ(client.get("a"), "b");
}

TEST(TCPStoreFailure, a_crowd_of_silent_strangers_does_not_keep_a_client_out) {
    TCPStore store = a_master();
    std::vector<UniqueFd> strangers;
    for (std::size_t i = 0; i < store::PendingConnections::most_of_process() + 50; ++i)
        strangers.push_back(connect_raw(store.port()));
    const Instant start = Clock::now();
    TCPStore client = a_client(store.port());
    client.set("a", "b");
    EXPECT_LT(Clock::now() - start, test::patience(2s));
    EXPECT_TRUE(closes_within(strangers.front().get(), 2s)) << "the oldest goes first";
}

TEST(TCPStoreFailure, hostile_frames_of_a_trusted_client_cost_it_its_connection_and_the_server_nothing) {
    TCPStore store = a_master();
    using store::Op;
    std::vector<std::string> attacks;
    const auto header = [](Op op, std::uint64_t body) {
        auto raw = store::encode({Op::set, 1, 0});  // which encodes nothing that no peer understands
        raw[3] = static_cast<char>(op);
        std::ranges::copy(store::encode_number(body), raw.begin() + 16);
        return std::string(raw.begin(), raw.end());
    };
    attacks.push_back(header(Op::set, ~std::uint64_t{0}));
    attacks.push_back(header(Op::set, store::max_body_bytes + 1));
    attacks.push_back(header(Op::set, 8) + std::string(8, '\xff'));  // a field longer than its body
    attacks.push_back(header(Op::set, 3) + "abc");
    attacks.push_back(header(Op::ok, 0));
    attacks.push_back(header(static_cast<Op>(77), 0));
    attacks.push_back(header(Op::add, 0));
    attacks.push_back("GET / HTTP/1.1\r\n\r\n......");
    for (const auto& attack : attacks) {
        const UniqueFd fd = connect_raw(store.port());
        security::authenticate(fd.get(), security::Secret::from_text("the tests' secret"), security::Role::connecting,
                               store::store_purpose, Deadline::after(10s), nullptr);
        ASSERT_GT(::send(fd.get(), attack.data(), attack.size(), MSG_NOSIGNAL), 0);
        EXPECT_TRUE(closes_within(fd.get(), 5s));
    }
    store.set("still", "there");
    EXPECT_EQ(store.get("still"), "there");
}

TEST(TCPStoreFailure, an_announced_gigabyte_takes_no_memory_until_it_comes) {
    TCPStore store = a_master();
    std::vector<UniqueFd> liars;
    for (int i = 0; i < 50; ++i) {
        liars.push_back(connect_raw(store.port()));
        security::authenticate(liars.back().get(), security::Secret::from_text("the tests' secret"),
                               security::Role::connecting, store::store_purpose, Deadline::after(10s), nullptr);
        const auto raw = store::encode({store::Op::set, 1, store::max_body_bytes});
        ASSERT_GT(::send(liars.back().get(), raw.data(), raw.size(), MSG_NOSIGNAL), 0);
    }
    store.set("a", "b");
    std::size_t pages = 0;
    std::ifstream statm("/proc/self/statm");
    std::size_t resident = 0;
    statm >> pages >> resident;
    EXPECT_LT(resident * 4096, std::size_t{1} << 30U);
}

TEST(TCPStoreFailure, what_a_process_sets_right_before_its_end_arrives) {
    TCPStore store = a_master();
    for (const char* local : {"1", "0"}) {
        Child last_words([&] {
            ::setenv("TUTTI_STORE_LOCAL", local, 1);
            TCPStore client = a_client(store.port());
            EXPECT_THROW((void)client.get("absent", 0ms), DistStoreError);
            for (int i = 0; i < 300; ++i) client.set(fmt::format("{}/{}", local, i), std::string(2000, 'x'));
            return 0;
        });
        EXPECT_EQ(last_words.wait(), 0);
        for (int i = 0; i < 300; ++i) EXPECT_EQ(store.get(fmt::format("{}/{}", local, i), 5s).size(), 2000U);
    }
}

TEST(TCPStoreFailure, posted_sets_arrive_whole_and_in_order_also_when_the_socket_is_full) {
    for (const char* local : {"1", "0"}) {
        ::setenv("TUTTI_STORE_LOCAL", local, 1);
        const Pipe pipe;
        Child server([&] {
            // Over TCP a narrow window leaves requests half-way.
            UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
            const int narrow = 4096;
            ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &narrow, sizeof narrow);
            const TCPStore store(
                {.is_master = true, .master_listen_fd = listener.release(), .secret = "the tests' secret"});
            pipe.put(store.port());
            ::pause();
            return 0;
        });
        TCPStore client = a_client(pipe.take<std::uint16_t>());
        ::unsetenv("TUTTI_STORE_LOCAL");
        for (int round = 0; round < 20; ++round) {
            EXPECT_EQ(client.add("heard", 1), round + 1);  // posts are allowed from here on
            ::kill(server.pid(), SIGSTOP);
            std::thread waker([&] {
                std::this_thread::sleep_for(10ms);
                ::kill(server.pid(), SIGCONT);
            });
            std::string last;
            for (int i = 0; i < 300; ++i) {
                last = fmt::format("{}/{}/", round, i) + std::string(15000, static_cast<char>('a' + i % 26));
                client.set(i % 2 == 0 ? "even" : "odd", last);
            }
            waker.join();
            EXPECT_EQ(client.get("odd"), last);
        }
    }
}

// Returns when the child has stopped: the signal alone lets it go on for a moment.
void stop(pid_t child) {
    ::kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
}

TEST(TCPStoreFailure, a_set_does_not_overtake_an_earlier_one_that_timed_out) {
    const Pipe pipe;
    Child server([&] {
        TCPStore store = a_master();
        pipe.put(store.port());
        ::pause();
        return 0;
    });
    TCPStore client = a_client(pipe.take<std::uint16_t>());
    for (int round = 0; round < 10; ++round) {
        const std::string value = std::to_string(round);
        EXPECT_EQ(client.add("heard", 1), round + 1);  // posts are allowed from here on
        stop(server.pid());
        client.set_timeout(5ms);
        EXPECT_THROW(client.set("k", std::string(20000, 'x')), DistStoreError) << "too large to be only sent";
        EXPECT_THROW(client.set("k", value), DistStoreError) << "only sent, though an earlier set is unconfirmed";
        client.set_timeout(20s);
        ::kill(server.pid(), SIGCONT);
        EXPECT_EQ(client.get("k"), value);
    }
}

TEST(TCPStoreFailure, a_set_to_a_server_that_died_is_an_error_and_not_lost) {
    for (const char* local : {"1", "0"}) {
        ::setenv("TUTTI_STORE_LOCAL", local, 1);
        const Pipe pipe;
        Child server([&] {
            TCPStore store = a_master();
            pipe.put(store.port());
            ::pause();
            return 0;
        });
        TCPStore client = a_client(pipe.take<std::uint16_t>());
        client.set("a", "b");
        EXPECT_EQ(client.get("a"), "b");
        server.kill();
        expect_contains(message_of<DistStoreError>([&] { client.set("a", "c"); }), "server is gone");
        ::unsetenv("TUTTI_STORE_LOCAL");
    }
}

TEST(TCPStoreFailure, values_are_what_they_were_when_they_were_read_however_slowly) {
    TCPStore store = a_master();
    const std::string first(std::size_t{3} << 20U, 'a');
    store.set("k", first);
    TCPStore slow = a_client(store.port());
    std::string got;
    std::thread reader([&] { got = slow.get("k"); });
    for (int i = 0; i < 50; ++i) store.set("k", std::string(std::size_t{3} << 20U, static_cast<char>('b' + i % 20)));
    reader.join();
    ASSERT_EQ(got.size(), first.size());
    EXPECT_EQ(got.find_first_not_of(got.front()), std::string::npos) << "two values mixed";
}

TEST(TCPStoreFailure, a_forked_child_of_the_server_does_not_hide_its_death) {
    const Pipe pipe;
    Child server([&] {
        TCPStore store = a_master();
        const pid_t grandchild = ::fork();
        if (grandchild == 0) {
            ::sleep(20);
            ::_exit(0);
        }
        pipe.put(store.port());
        pipe.put(grandchild);
        ::pause();
        return 0;
    });
    const auto port = pipe.take<std::uint16_t>();
    const auto grandchild = pipe.take<pid_t>();
    TCPStore client = a_client(port);
    client.set("a", "b");
    server.kill();
    const Instant start = Clock::now();
    const std::string text = message_of<DistStoreError>([&] { (void)client.get("never"); });
    EXPECT_LT(Clock::now() - start, test::patience(1s));
    expect_contains(text, fmt::format("127.0.0.1:{}", port));
    expect_contains(message_of<DistStoreError>([&] { client.set("a", "c"); }), "server is gone");
    ::kill(grandchild, SIGKILL);
}

TEST(TCPStoreFailure, a_server_that_stands_still_ends_in_a_timeout) {
    const Pipe pipe;
    Child server([&] {
        TCPStore store = a_master();
        pipe.put(store.port());
        ::pause();
        return 0;
    });
    TCPStore client = a_client(pipe.take<std::uint16_t>());
    client.set_timeout(100ms);
    ::kill(server.pid(), SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(server.pid(), &status, WUNTRACED), server.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
    const Instant start = Clock::now();
    try {
        // Some may be on their way before the client notices the silence.
        for (int i = 0; i < 1000; ++i) client.set("key of the set", "b");
        ADD_FAILURE() << "a stopped server answered";
    } catch (const DistStoreError& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout);
        expect_contains(error.what(), "key of the set");
    }
    EXPECT_LT(Clock::now() - start, test::patience(5s));
}

TEST(TCPStoreFailure, a_client_that_comes_before_its_server_waits_for_it) {
    UniqueFd reserved = net::listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = net::local_address(reserved.get()).port;
    reserved.reset();
    std::string got;
    std::thread early([&] { got = a_client(port).get("a"); });
    std::this_thread::sleep_for(50ms);
    TCPStore server({.port = port, .is_master = true, .secret = "the tests' secret"});
    server.set("a", "b");
    early.join();
    EXPECT_EQ(got, "b");
}

TEST(TCPStoreFailure, a_port_is_free_again_when_its_store_is_gone) {
    std::uint16_t port = 0;
    for (int i = 0; i < 5; ++i) {
        TCPStore store({.port = port, .is_master = true, .timeout = 5s});
        TCPStore client({.port = store.port(), .timeout = 5s});
        client.set("a", "b");
        port = store.port();
    }
}

TEST(TCPStoreFailure, many_threads_share_one_connection_while_others_wait_on_it) {
    TCPStore server = a_master();
    TCPStore store = a_client(server.port());
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            const std::string mine = fmt::format("key{}", i);
            const std::string other = fmt::format("key{}", (i + 1) % 8);
            for (int n = 0; n < 50; ++n) {
                const std::string round = fmt::format("/{}", n);
                EXPECT_THROW((void)store.get(fmt::format("absent {}", mine), Milliseconds(n % 2)), DistStoreError);
                store.set(mine + round, std::string(static_cast<std::size_t>(n) * 997, static_cast<char>('a' + i)));
                EXPECT_EQ(store.get(other + round).size(), static_cast<std::size_t>(n) * 997);
                store.add("sum", 1);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(store.add("sum", 0), 400);
}

TEST(StoreAbort, ends_the_waits_of_every_store) {
    const TempPath file("aborted");
    const std::vector<Store> stores{HashStore(), FileStore(file.path), a_master(), PrefixStore("p", HashStore())};
    for (Store store : stores) {
        std::thread other([&] {
            std::this_thread::sleep_for(20ms);
            store.abort("the test says so");
        });
        const Instant start = Clock::now();
        expect_contains(message_of<Aborted>([&] { (void)store.get("never"); }), "the test says so");
        EXPECT_LT(Clock::now() - start, test::patience(5s)) << store.describe();
        other.join();
    }
}

TEST(StoreLimits, are_checked_before_anything_is_sent) {
    HashStore store;
    EXPECT_THROW(store.set(std::string((std::size_t{1} << 20U) + 1, 'k'), "v"), InvalidArgument);
    EXPECT_THROW((void)store.get("k", Milliseconds(-1)), InvalidArgument);
    EXPECT_THROW(store.set_timeout(Milliseconds(-1)), InvalidArgument);
    EXPECT_THROW(Store().set("a", "b"), InvalidArgument);
    EXPECT_THROW(PrefixStore("p", Store()), InvalidArgument);
    EXPECT_THROW((void)store.get("odd \n\xff key", 0ms), DistStoreError);
}

}  // namespace
}  // namespace tutti
