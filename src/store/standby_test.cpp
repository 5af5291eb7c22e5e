// A store in two servers: processes are killed and stopped, and the others go on.
#include "store/process_test_support.hpp"
#include "store/tcp_test_support.hpp"
#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::Child;
using test::expect_contains;
using test::message_of;
using test::Pipe;

TCPStoreOptions options_of(std::uint16_t port) {
    return {.port = port, .timeout = 20s, .secret = test::store_secret};
}
TCPStoreOptions standby_options(std::uint16_t port) {
    TCPStoreOptions options = options_of(port);
    options.is_standby = true;
    return options;
}

/// Stops a process, and waits until it stands still.
void stop(const Child& process) {
    ::kill(process.pid(), SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(process.pid(), &status, WUNTRACED), process.pid());
}

/// A process that runs a primary, and one that is its standby.
class Standby : public ::testing::Test {
 protected:
    void start_primary() {
        primary_ = std::make_unique<Child>([&] {
            TCPStoreOptions options{.is_master = true, .timeout = 20s, .secret = test::store_secret};
            options.with_standby = true;
            const TCPStore store(options);
            pipe_.put(store.port());
            ::pause();
            return 0;
        });
        port_ = pipe_.take<std::uint16_t>();
    }
    void start_standby() {
        standby_ = std::make_unique<Child>([&] {
            const TCPStore store(standby_options(port_));
            pipe_.put(store.standby_port());
            ::pause();
            return 0;
        });
        standby_port_ = pipe_.take<std::uint16_t>();
    }
    void start() {
        start_primary();
        start_standby();
    }
    TCPStore client() const { return TCPStore(options_of(port_)); }
    /// A process that works, says so, and goes on until it ends by itself.
    std::unique_ptr<Child> process(std::function<int(Store&)> work) {
        return std::make_unique<Child>([this, work = std::move(work)] {
            TCPStore store = client();
            return work(store);
        });
    }

    Pipe pipe_;
    std::uint16_t port_ = 0, standby_port_ = 0;
    std::unique_ptr<Child> primary_, standby_;
};

TEST_F(Standby, takes_over_from_a_killed_primary_with_all_that_was_set) {
    start_primary();
    TCPStore store = client();
    store.set("before the standby", "1");
    store.add("counter", 41);
    store.set("large", std::string(std::size_t{3} << 20U, 'x'));
    start_standby();
    store.set("after it", "2");
    store.append("after it", "3");
    EXPECT_EQ(store.num_keys(), 5);
    const Instant start = Clock::now();
    primary_->kill();
    EXPECT_EQ(store.get("after it"), "23");
    EXPECT_LT(Clock::now() - start, test::patience(2s));
    EXPECT_EQ(store.get("before the standby"), "1");
    EXPECT_EQ(store.add("counter", 1), 42);
    EXPECT_EQ(store.get("large"), std::string(std::size_t{3} << 20U, 'x'));
    EXPECT_EQ(store.compare_set("after it", "23", "new"), "new");
    EXPECT_TRUE(store.delete_key("large"));
    EXPECT_EQ(store.num_keys(), 4);
}

TEST_F(Standby, loses_and_repeats_no_addition_when_the_primary_is_killed_among_them) {
    for (int round = 0; round < 3; ++round) {
        start();
        constexpr int processes = 3, times = 1500;
        std::vector<std::unique_ptr<Child>> adders;
        const Pipe running;
        for (int i = 0; i < processes; ++i) {
            adders.push_back(process([&](Store& store) {
                std::int64_t last = 0;
                for (int n = 0; n < times; ++n) {
                    if (n == 200) running.put('r');
                    const std::int64_t sum = store.add("sum", 1);
                    if (sum <= last) return 3;
                    last = sum;
                    store.append("letters", "a");
                }
                return 0;
            }));
        }
        for (int i = 0; i < processes; ++i) running.take<char>();
        primary_->kill();
        const Instant killed = Clock::now();
        TCPStore late = [&] {
            for (;;) {  // its address is not that of the primary any more
                try {
                    return TCPStore(options_of(standby_port_));
                } catch (const DistStoreError&) {
                    if (Clock::now() > killed + test::patience(10s)) throw;
                }
            }
        }();
        for (auto& adder : adders) EXPECT_EQ(adder->wait(), 0);
        EXPECT_EQ(late.add("sum", 0), processes * times);
        EXPECT_EQ(late.get("letters").size(), std::size_t{processes * times});
        standby_.reset();
    }
}

TEST_F(Standby, ends_the_waits_that_a_killed_primary_had) {
    start();
    TCPStore store = client();
    std::string got;
    std::thread waiter([&, mine = client()]() mutable { got = mine.get("later"); });
    std::thread in_time([&, mine = client()]() mutable {
        const Instant start = Clock::now();
        EXPECT_THROW(mine.wait({"never"}, 2s), DistStoreError);
        EXPECT_GE(Clock::now() - start, 2s);
        EXPECT_LT(Clock::now() - start, test::patience(4s));
    });
    std::this_thread::sleep_for(200ms);
    primary_->kill();
    std::this_thread::sleep_for(300ms);
    store.set("later", "here");
    waiter.join();
    in_time.join();
    EXPECT_EQ(got, "here");
}

TEST_F(Standby, keeps_wills_of_processes_that_live_and_does_those_of_others) {
    start();
    TCPStore store = client();
    const Pipe ready;
    const auto testator = [&](const std::string& key) {
        auto child = process([&, key](Store& mine) {
            if (!mine.backend()->set_will(key, "ended", 5s)) return 3;
            ready.put('r');
            ::pause();  // idle: its witness alone goes to the standby
            return 0;
        });
        ready.take<char>();
        return child;
    };
    const auto lives = testator("lives"), ends = testator("ends later"), with_it = testator("ends with the primary");
    with_it->kill();
    primary_->kill();
    EXPECT_EQ(store.get("ends with the primary", 15s), "ended");
    std::this_thread::sleep_for(6s);
    EXPECT_FALSE(store.check({"lives"}));
    EXPECT_FALSE(store.check({"ends later"}));
    ends->kill();
    EXPECT_EQ(store.get("ends later", 5s), "ended");
    EXPECT_FALSE(store.check({"lives"}));
}

TEST_F(Standby, that_is_killed_leaves_a_primary_that_goes_on_and_takes_another) {
    start();
    TCPStore store = client();
    store.set("a", "1");
    standby_->kill();
    const Instant start = Clock::now();
    store.set("b", "2");
    EXPECT_EQ(store.add("c", 3), 3);
    EXPECT_LT(Clock::now() - start, test::patience(2s));
    start_standby();
    store.set("d", "4");
    std::this_thread::sleep_for(500ms);  // the witness hears of it
    primary_->kill();
    EXPECT_EQ(store.get("a") + store.get("b") + store.get("c") + store.get("d"), "1234");
}

TEST_F(Standby, takes_over_from_a_primary_that_stands_still_which_then_ends_its_clients) {
    start();
    TCPStore store = client();
    store.set("a", "1");
    std::this_thread::sleep_for(300ms);
    stop(*primary_);
    const Instant start = Clock::now();
    EXPECT_EQ(store.add("n", 1), 1);
    EXPECT_LT(Clock::now() - start, test::patience(3s));
    ::kill(primary_->pid(), SIGCONT);
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(store.add("n", 1), 2);
    EXPECT_EQ(store.get("a"), "1");
    TCPStoreOptions late = options_of(port_);
    late.timeout = 3s;
    expect_contains(message_of<DistError>([&] { (void)TCPStore(late).get("a"); }), "has given way to");
}

// Most of the clients are lost with it, as on its host: no votes could help.
TEST_F(Standby, takes_over_from_a_primary_that_is_killed_before_it_has_read_all) {
    start();
    TCPStore store = client();
    store.set("a", "1");
    const Pipe ready;
    std::vector<std::unique_ptr<Child>> others;
    for (int i = 0; i < 3; ++i) {
        others.push_back(process([&](Store& mine) {
            mine.add("n", 1);
            ready.put('r');
            ::pause();
            return 0;
        }));
        ready.take<char>();
    }
    std::this_thread::sleep_for(300ms);
    stop(*standby_);
    std::this_thread::sleep_for(120ms);  // it has a pulse to answer
    stop(*primary_);
    ::kill(standby_->pid(), SIGCONT);
    std::this_thread::sleep_for(100ms);
    primary_->kill();
    others.clear();
    EXPECT_EQ(store.get("a"), "1");
    EXPECT_EQ(store.add("n", 1), 4);
}

TEST_F(Standby, does_not_take_over_when_the_primary_could_not_say_that_it_goes_on) {
    start();
    TCPStore store = client();
    std::this_thread::sleep_for(300ms);
    stop(*standby_);
    store.set("large", std::string(std::size_t{64} << 20U, 'x'));  // it fills what the kernel keeps for the standby
    store.set("answered", "1");
    primary_->kill();
    ::kill(standby_->pid(), SIGCONT);
    const std::string text = message_of<DistStoreError>([&] { EXPECT_TRUE(store.check({"answered"})); });
    expect_contains(text, "keys and counters are lost");
}

TEST_F(Standby, and_primary_that_are_both_lost_are_named_with_what_is_lost) {
    start();
    TCPStore store = client();
    store.set("a", "1");
    std::this_thread::sleep_for(300ms);
    standby_->kill();
    primary_->kill();
    const Instant start = Clock::now();
    const std::string text = message_of<DistStoreError>([&] { store.set("a", "2"); });
    EXPECT_LT(Clock::now() - start, test::patience(14s));
    expect_contains(text, fmt::format("neither the server at 127.0.0.1:{} nor its standby at 127.0.0.1:", port_));
    expect_contains(text, "keys and counters are lost");
}

TEST_F(Standby, is_not_there_and_the_error_says_what_is_lost) {
    const Pipe pipe;
    Child server([&] {
        const TCPStore store({.is_master = true, .timeout = 20s, .secret = test::store_secret});
        pipe.put(store.port());
        ::pause();
        return 0;
    });
    const auto port = pipe.take<std::uint16_t>();
    TCPStore plain(options_of(port));
    expect_contains(message_of<DistError>([&] { TCPStore(standby_options(port)); }), "made without with_standby");
    server.kill();
    expect_contains(message_of<DistStoreError>([&] { (void)plain.get("a"); }),
                    "the keys, counters and wills that it held are lost with it, as the store has no standby");
    start_primary();
    TCPStore store = client();
    primary_->kill();
    expect_contains(message_of<DistStoreError>([&] { (void)store.get("a"); }), "had no standby");
}

// As `tutti run --standby` tells the processes that it starts.
TEST_F(Standby, is_found_by_processes_that_come_after_the_loss_if_their_launcher_has_named_it) {
    start();
    const auto told = [this](const std::string& standby) {
        ::setenv("MASTER_ADDR", "127.0.0.1", 1);
        ::setenv("TUTTI_STORE_PORT", std::to_string(port_).c_str(), 1);
        ::setenv("TUTTI_STORE_STANDBY", standby.c_str(), 1);
        return client();
    };
    EXPECT_EQ(process([&](Store&) { return static_cast<int>(told("127.0.0.1:1").add("count", 1)); })->wait(), 1)
        << "the primary serves";
    const std::string here = fmt::format("127.0.0.1:{}", standby_port_);
    EXPECT_EQ(process([&](Store&) { return static_cast<int>(told(here).add("count", 1)); })->wait(), 2);
    const auto late = std::make_unique<Child>([&] {
        char go = pipe_.take<char>();
        return static_cast<int>(told(here).add("count", 1)) + go;
    });
    primary_.reset();
    pipe_.put(char{0});
    EXPECT_EQ(late->wait(), 3);
    const auto wrong = std::make_unique<Child>([&] {
        const std::string words = message_of<InvalidArgument>([&] { (void)told("nowhere"); });
        return words == "TUTTI_STORE_STANDBY=nowhere: expected HOST:PORT or [IPv6 address]:PORT" ? 0 : 1;
    });
    EXPECT_EQ(wrong->wait(), 0);
}

TEST_F(Standby, is_one_at_a_time_and_serves_nobody_before_it_has_taken_over) {
    start();
    expect_contains(message_of<DistError>([&] { TCPStore(standby_options(port_)); }),
                    "has a standby already, at 127.0.0.1:");
    expect_contains(message_of<DistError>([&] { TCPStore(options_of(standby_port_)); }),
                    "is the standby of the one at");
}

TEST(StandbyOptions, are_checked) {
    const auto refused = [](auto change) {
        TCPStoreOptions options{.port = 1, .secret = test::store_secret};
        change(options);
        return message_of<InvalidArgument>([&] { TCPStore store(options); });
    };
    expect_contains(refused([](auto& o) { o.is_standby = o.is_master = true; }), "is_standby with is_master");
    expect_contains(refused([](auto& o) { o.with_standby = true; }), "with_standby");
    expect_contains(refused([](auto& o) { o.with_standby = o.is_master = o.multi_tenant = true; }), "multi_tenant");
}

}  // namespace
}  // namespace tutti
