#include "core/thread.hpp"
#include "core/env.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

namespace tutti::thread {
namespace {

std::string failure_of_start() {
    try {
        start({"tutti-test", "a test"}, [] {}).join();
        return {};
    } catch (const DistBackendError& error) {
        return error.what();
    }
}

void expect_help(const std::string& text) {
    EXPECT_NE(text.find("no thread to be had for a test"), std::string::npos) << text;
    EXPECT_NE(text.find("ulimit -u"), std::string::npos) << text;
}

TEST(Thread, has_its_name_and_leaves_signals_to_the_programs_threads) {
    std::array<char, 16> name{};
    sigset_t blocked{}, before{}, after{};
    ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
    start({"tutti-test", "a test"}, [&] {
        ::pthread_getname_np(::pthread_self(), name.data(), name.size());
        ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    }).join();
    ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
    EXPECT_STREQ(name.data(), "tutti-test");
    EXPECT_EQ(::sigismember(&blocked, SIGTERM), 1);
    EXPECT_EQ(::sigismember(&after, SIGTERM), ::sigismember(&before, SIGTERM));
}

TEST(Thread, that_cannot_be_had_is_an_error_that_says_what_for_and_which_limit) {
    {
        const Scarcity scarcity(1);
        EXPECT_EQ(failure_of_start(), "");
        expect_help(failure_of_start());
    }
    EXPECT_EQ(failure_of_start(), "");
}

TEST(Thread, that_the_system_refuses_is_that_error_too) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user who has no other processes";
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit one{1, 1};
        if (::setresuid(61234, 61234, 61234) != 0 || ::setrlimit(RLIMIT_NPROC, &one) != 0) ::_exit(3);
        const std::string text = failure_of_start();
        ::_exit(text.find("1 processes and threads (ulimit -u)") != std::string::npos ? 0 : 4);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Thread, tells_what_escapes_from_its_body_and_the_process_goes_on) {
    std::string told;
    const auto escaped = [&](const std::exception_ptr& error) {
        try {
            std::rethrow_exception(error);
        } catch (const std::bad_alloc&) {
            told = "bad_alloc";
        }
    };
    start({"tutti-test", "a test", escaped}, [] { throw std::bad_alloc(); }).join();
    EXPECT_EQ(told, "bad_alloc");
    start({"tutti-test", "a test"}, [] { throw 1; }).join();  // with nobody to tell
}

TEST(Thread, that_is_joined_is_over_before_what_it_uses_goes) {
    std::atomic<bool> over{false};
    {
        std::atomic<bool> used{true};
        const Joined thread(start({"tutti-test", "a test"}, [&] {
            ::usleep(20'000);
            over = used.load();
        }));
    }
    EXPECT_TRUE(over);
}

// The program may set variables at any time, which moves what getenv() reads.
TEST(Thread, reads_the_environment_as_it_was_when_it_started) {
    constexpr int names = 3000;
    const auto name = [](int i) { return fmt::format("SET_BY_A_PROGRAM_{}", i); };
    ::setenv("TUTTI_HOST", "before", 1);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread reader = start({"reader", "a test"}, [&] {
        const auto look = [&] { wrong += env::get("TUTTI_HOST") != "before" || env::get(name(0)); };
        while (!stop) look();
        start({"later", "a test"}, look).join();  // as the one that started it
    });
    for (int i = 0; i < names; ++i) ::setenv(name(i).c_str(), "x", 1);
    ::setenv("TUTTI_HOST", "after", 1);
    stop = true;
    reader.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(env::get("TUTTI_HOST"), "after");
    start({"afterwards", "a test"}, [] { EXPECT_EQ(env::get("TUTTI_HOST"), "after"); }).join();
    for (int i = 0; i < names; ++i) ::unsetenv(name(i).c_str());
    ::unsetenv("TUTTI_HOST");
}

}  // namespace
}  // namespace tutti::thread
