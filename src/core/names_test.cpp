#include "core/names.hpp"

#include <tutti/error.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

// A resolver of this test for names that end with ".test". An answer of 0: the name has its address, else 127.0.0.1.
struct Resolver {
    std::mutex mutex;
    std::map<std::string, std::function<int()>> answers;
    std::map<std::string, std::string> addresses;
    std::map<std::string, std::vector<std::chrono::steady_clock::time_point>> questions;

    void answer(const std::string& host, std::function<int()> by) {
        const std::lock_guard lock(mutex);
        answers[host] = std::move(by);
    }
    std::size_t count(const std::string& host) {
        const std::lock_guard lock(mutex);
        return questions[host].size();
    }
};

Resolver& resolver() {
    static Resolver instance;
    return instance;
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** list) {
    static const auto systems = reinterpret_cast<int (*)(const char*, const char*, const addrinfo*, addrinfo**)>(
        ::dlsym(RTLD_NEXT, "getaddrinfo"));
    const std::string name = host == nullptr ? "" : host;
    if (!name.ends_with(".test") || (hints->ai_flags & AI_NUMERICHOST) != 0) return systems(host, service, hints, list);
    std::function<int()> by;
    std::string address = "127.0.0.1";
    {
        const std::lock_guard lock(resolver().mutex);
        resolver().questions[name].push_back(std::chrono::steady_clock::now());
        by = resolver().answers[name];
        if (resolver().addresses.contains(name)) address = resolver().addresses[name];
    }
    const int error = by();
    return error != 0 ? error : systems(address.c_str(), service, hints, list);
}

namespace tutti::net {
namespace {

std::string why_not(const std::string& host, Clock::duration limit) {
    try {
        (void)connect_tcp({host, 1}, Deadline::after(limit), nullptr);
    } catch (const DistNetworkError& error) {
        return error.what();
    }
    return "";
}

TEST(Names, that_are_not_known_yet_are_asked_for_again_whatever_the_resolver_says_first) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = local_address(listener.get()).port;
    for (const int error : {EAI_NONAME, EAI_NODATA, EAI_AGAIN, EAI_FAIL}) {
        const std::string host = fmt::format("late{}.test", -error);
        const Instant known = Clock::now() + 400ms;
        resolver().answer(host, [=] { return Clock::now() < known ? error : 0; });
        EXPECT_TRUE(connect_tcp({host, port}, Deadline::after(20s), nullptr)) << host;
        EXPECT_TRUE(is_of_this_host(host));
        EXPECT_TRUE(is_loopback(host));
        EXPECT_EQ(address_towards(host), "127.0.0.1");
        EXPECT_LE(resolver().count(host), 6U) << "one answer serves all";
    }
}

TEST(Names, that_stay_unknown_are_an_error_with_the_time_and_the_resolvers_words) {
    resolver().answer("never.test", [] { return EAI_NONAME; });
    const std::string text = why_not("never.test", 300ms);
    EXPECT_NE(text.find("cannot connect to never.test:1 (tried for 0."), std::string::npos) << text;
    EXPECT_NE(text.find(::gai_strerror(EAI_NONAME)), std::string::npos) << text;
    EXPECT_NE(why_unknown("never.test").find(::gai_strerror(EAI_NONAME)), std::string::npos);
}

TEST(Names, that_are_unknown_cost_one_question_in_two_seconds_however_many_threads_wait) {
    resolver().answer("unknown.test", [] { return EAI_NONAME; });
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([] {
            // Attempts of their own, as a launcher makes them.
            for (const Instant end = Clock::now() + 6s; Clock::now() < end;)
                (void)await_name("unknown.test", Deadline::after(100ms));
        });
    }
    for (std::thread& thread : threads) thread.join();
    const auto times = resolver().questions["unknown.test"];
    ASSERT_GE(times.size(), 6U) << "it is asked for more often at first";
    EXPECT_LE(times.size(), 9U);
    EXPECT_GE(times.back() - times[times.size() - 2], 1900ms);
}

TEST(Names, that_get_another_address_are_followed) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    resolver().answer("moves.test", [] { return 0; });
    resolver().addresses["moves.test"] = "127.0.0.2";
    std::thread mover([] {
        std::this_thread::sleep_for(500ms);
        const std::lock_guard lock(resolver().mutex);
        resolver().addresses["moves.test"] = "127.0.0.1";
    });
    EXPECT_TRUE(connect_tcp({"moves.test", local_address(listener.get()).port}, Deadline::after(20s), nullptr));
    EXPECT_LE(resolver().count("moves.test"), 3U);
    mover.join();
}

TEST(Names, whose_answer_takes_longer_than_the_time_limit_are_waited_for) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    resolver().answer("slow.test", [] {
        std::this_thread::sleep_for(1s);
        return 0;
    });
    const Deadline deadline = Deadline::after(300ms);
    EXPECT_TRUE(connect_tcp({"slow.test", local_address(listener.get()).port}, deadline, nullptr));
    EXPECT_EQ(resolver().count("slow.test"), 1U);
    resolver().answer("slower.test", [] {
        std::this_thread::sleep_for(500ms);
        return 0;
    });
    const Deadline moved = after_name("slower.test", deadline);
    EXPECT_GE(moved.when() - deadline.when(), 450ms);
    EXPECT_LE(moved.when() - deadline.when(), 5s);
}

TEST(Names, an_abort_ends_the_wait_for_a_name_server_that_does_not_answer) {
    std::atomic<bool> over{false};
    resolver().answer("silent.test", [&] {
        while (!over) std::this_thread::sleep_for(10ms);
        return EAI_AGAIN;
    });
    AbortFlag abort;
    std::thread other([&] {
        std::this_thread::sleep_for(200ms);
        abort.raise("enough");
    });
    const Instant start = Clock::now();
    EXPECT_THROW((void)await_name("silent.test", Deadline::after(60s), &abort), Aborted);
    EXPECT_LE(Clock::now() - start, 5s);
    EXPECT_EQ(why_unknown("silent.test"), "no name server has answered yet");
    other.join();
#ifndef __SANITIZE_THREAD__  // which forbids threads in a child of several
    // A child of this process has none of its threads, and asks for itself.
    const pid_t child = ::fork();
    if (child == 0) {
        resolver().answers["silent.test"] = [] { return 0; };
        ::_exit(await_name("silent.test", Deadline::after(5s)).is_known() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
#endif
    over = true;
    EXPECT_EQ(await_name("silent.test", Deadline::after(200ms)).cause, ::gai_strerror(EAI_AGAIN));
}

TEST(Names, texts_that_no_name_server_can_know_fail_at_once) {
    for (const std::string host :
         {"two words.test", "host:29500.test", "http://a.test", "a..test", "10.0.0.300", ".test"}) {
        resolver().answer(host, [] { return 0; });
        const Instant start = Clock::now();
        const std::string text = why_not(host, 60s);
        EXPECT_LE(Clock::now() - start, 5s);
        EXPECT_NE(text.find(fmt::format("\"{}\" is neither an address nor the name of a host", host)),
                  std::string::npos)
            << text;
        EXPECT_EQ(resolver().count(host), 0U);
    }
}

}  // namespace
}  // namespace tutti::net
