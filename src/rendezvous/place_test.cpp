// How processes ended, as others see it.
#include "rendezvous/place.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tutti::rendezvous {
namespace {

template <class F>
pid_t start(F body) {
    const pid_t child = ::fork();
    if (child == 0) {
        body();
        ::_exit(0);
    }
    return child;
}

void collect(pid_t child) {
    ::waitpid(child, nullptr, 0);
}

TEST(EndOfProcess, tells_the_signal_of_a_process_that_nobody_has_collected) {
    const pid_t child = start([] { ::pause(); });
    ::kill(child, SIGKILL);
    EXPECT_EQ(end_of(child, std::chrono::seconds(5)), "killed by SIGKILL");
    collect(child);
}

TEST(EndOfProcess, tells_the_status_of_a_process_that_exited) {
    const pid_t child = start([] { ::_exit(3); });
    EXPECT_EQ(end_of(child, std::chrono::seconds(5)), "exited with status 3");
    collect(child);
    EXPECT_EQ(end_of(child), "its process has ended");
}

TEST(EndOfProcess, is_nothing_while_it_lives) {
    const pid_t child = start([] { ::pause(); });
    EXPECT_EQ(end_of(child), std::nullopt);
    ::kill(child, SIGKILL);
    collect(child);
}

TEST(StartOfProcess, tells_processes_apart_and_is_nothing_once_it_has_gone) {
    const pid_t child = start([] { ::pause(); });
    EXPECT_NE(start_of(::getpid()), 0U);
    EXPECT_EQ(start_of(::getpid()), start_of(::getpid()));
    EXPECT_GE(start_of(child), start_of(::getpid()));
    ::kill(child, SIGKILL);
    collect(child);
    EXPECT_EQ(start_of(child), 0U);
}

TEST(Place, is_equal_for_processes_that_share_memory_and_ids) {
    int channel[2];
    ASSERT_EQ(::pipe(channel), 0);
    const pid_t child = start([&] {
        const char equal = process_space() != 0 ? 'y' : 'n';
        const std::string key = host_key() + equal;
        (void)!::write(channel[1], key.data(), key.size());
    });
    collect(child);
    std::string text(4096, '\0');
    const ssize_t size = ::read(channel[0], text.data(), text.size());
    ASSERT_GT(size, 0);
    text.resize(static_cast<std::size_t>(size));
    EXPECT_EQ(text, host_key() + 'y');
    ::close(channel[0]);
    ::close(channel[1]);
}

// Ranks of two containers of one machine compete for its cores, which their keys tell.
TEST(Place, of_another_network_name_space_is_on_the_same_machine) {
    if (::geteuid() != 0) GTEST_SKIP() << "a network name space needs root";
    int channel[2];
    ASSERT_EQ(::pipe(channel), 0);
    const pid_t child = start([&] {
        if (::unshare(CLONE_NEWNET) != 0) return;
        const std::string key = host_key();
        (void)!::write(channel[1], key.data(), key.size());
    });
    collect(child);
    ::close(channel[1]);
    std::string text(4096, '\0');
    const ssize_t size = ::read(channel[0], text.data(), text.size());
    ::close(channel[0]);
    if (size <= 0) GTEST_SKIP() << "no network name space can be made here";
    text.resize(static_cast<std::size_t>(size));
    EXPECT_NE(text, host_key());
    EXPECT_EQ(machine_of(text), machine_of(host_key()));
    EXPECT_FALSE(machine_of(text).empty());
}

TEST(Place, tells_networks_from_hosts) {
    EXPECT_EQ(network_of("boot/1/2/0"), "boot/2");
    EXPECT_EQ(network_of("boot/7/2/1000"), "boot/2");
    EXPECT_NE(network_of("boot/1/3/0"), network_of("boot/1/2/0"));
    EXPECT_NE(network_of("other/1/2/0"), network_of("boot/1/2/0"));
    EXPECT_EQ(network_of(host_key()).find(machine_of(host_key())), 0U);
}

}  // namespace
}  // namespace tutti::rendezvous
