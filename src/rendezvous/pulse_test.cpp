// A pulse tells how long a process lives, even if its children keep its descriptors.
#include "rendezvous/pulse.hpp"
#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;

bool ends_within(PulseWatch& watch, std::chrono::milliseconds limit) {
    for (const Instant end = Clock::now() + limit; Clock::now() < end;) {
        if (watch.look(Clock::now())) return true;
        std::this_thread::sleep_for(5ms);
    }
    return false;
}

#if defined(__SANITIZE_THREAD__)
constexpr bool has_pulse = false;
#else
constexpr bool has_pulse = true;
#endif
constexpr const char* for_sanitizer = "by design: ThreadSanitizer knows one table of descriptors a process";

TEST(Pulses, end_with_their_process_though_a_child_of_it_lives_and_not_while_it_is_stopped) {
    if (!has_pulse) GTEST_SKIP() << for_sanitizer;
    int ports[2];
    ASSERT_EQ(::pipe(ports), 0);
    const pid_t process = ::fork();
    if (process == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const Pulse pulse("127.0.0.1");
        if (::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
            const timespec length{10, 0};
            ::syscall(SYS_nanosleep, &length, nullptr);
            ::syscall(SYS_exit_group, 0);
        }
        const std::uint16_t port = pulse.port();
        (void)!::write(ports[1], &port, sizeof port);
        ::pause();
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(ports[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    ASSERT_NE(port, 0);
    PulseWatch watch({"127.0.0.1", port});
    EXPECT_FALSE(ends_within(watch, 1200ms));
    ::kill(process, SIGSTOP);
    EXPECT_FALSE(ends_within(watch, 2200ms));
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    EXPECT_TRUE(ends_within(watch, test::patience(3500ms)));
    ::close(ports[0]);
    ::close(ports[1]);
}

TEST(Pulses, that_never_answered_are_no_sign_of_death) {
    if (!has_pulse) GTEST_SKIP() << for_sanitizer;
    Pulse pulse("127.0.0.1");
    const std::uint16_t port = pulse.port();
    pulse.end();
    PulseWatch watch({"127.0.0.1", port});
    EXPECT_FALSE(ends_within(watch, 2500ms));
}

TEST(Pulses, keep_nothing_else_open) {
    if (!has_pulse) GTEST_SKIP() << for_sanitizer;
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const Pulse pulse("127.0.0.1");
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "the other end is closed";
    ::close(ends[0]);
}

}  // namespace
}  // namespace tutti::rendezvous
