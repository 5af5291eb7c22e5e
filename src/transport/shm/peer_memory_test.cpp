// Another process's memory, while it is there and when it ends.
#include "transport/shm/peer_memory.hpp"

#include "support/copies_by_address.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

namespace tutti::transport {
namespace {

using std::chrono::milliseconds;

TEST(PeerMemory, of_a_process_that_ends) {
    if (!PeerMemory::allowed()) GTEST_SKIP() << "this kernel does not let processes read each other";
    std::uint64_t value = 42, read = 0;
    const auto address = reinterpret_cast<std::uint64_t>(&value);
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    ASSERT_GT(child, 0);
    const PeerMemory memory(child);
    value = 7;  // the child has a copy of the value from before
    EXPECT_TRUE(memory.read(reinterpret_cast<std::byte*>(&read), address, sizeof read));
    EXPECT_EQ(read, 42U);
    EXPECT_TRUE(memory.same());
    EXPECT_TRUE(memory.alive());
    EXPECT_TRUE(memory.alive(milliseconds(1)));

    // A rank that waits for it learns when it is gone, and not only after its patience.
    std::thread killer([child] {
        std::this_thread::sleep_for(milliseconds(20));
        ::kill(child, SIGKILL);
    });
    EXPECT_FALSE(memory.alive(std::chrono::seconds(20)));
    killer.join();
    std::this_thread::sleep_for(PeerMemory::trusted);
    EXPECT_FALSE(memory.same());
    EXPECT_FALSE(memory.read(reinterpret_cast<std::byte*>(&read), address, sizeof read));
    ::waitpid(child, nullptr, 0);
}

TEST(PeerMemory, is_out_of_reach_where_nothing_of_the_kind_lies) {
    if (!test::copies_by_address()) GTEST_SKIP() << test::no_copies;
    EXPECT_TRUE(PeerMemory::reaches(::getpid(), PeerMemory::place_to_try()));
    const std::uint64_t other = 5;
    EXPECT_FALSE(PeerMemory::reaches(::getpid(), reinterpret_cast<std::uint64_t>(&other)));
    EXPECT_FALSE(PeerMemory::reaches(::getpid(), 4096));
}

}  // namespace
}  // namespace tutti::transport
