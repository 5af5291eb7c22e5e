// The short form excludes other threads, under any owner, and however the threads take turns.
#include "core/biased_mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(BiasedMutex, excludes_other_threads_in_all_forms) {
    BiasedMutex mutex;
    std::uint64_t value = 0;  // guarded
    std::atomic<std::uint64_t> added{0};
    const auto add = [&] {
        const std::uint64_t before = value;
        std::atomic_signal_fence(std::memory_order_seq_cst);  // read and written apart
        value = before + 1;
        added.fetch_add(1, std::memory_order_relaxed);
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200'000; ++i) {
                // One thread enters all the time, and so becomes the owner; the others come now and then.
                if (t == 0) {
                    if (const BiasedMutex::Entry entry(mutex); entry) add();
                } else if (i % 1000 == 0) {
                    const std::lock_guard lock(mutex);
                    add();
                } else if (i % 1777 == 0) {
                    if (const BiasedMutex::Entry entry(mutex); entry) add();
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(value, added.load());
    EXPECT_GT(value, 400U) << "the others had their turns";
}

TEST(BiasedMutex, is_refused_while_another_thread_is_inside_and_free_when_it_has_left) {
    BiasedMutex mutex;
    const auto another_enters = [&mutex] {
        bool entered = false;
        std::thread([&] { entered = static_cast<bool>(BiasedMutex::Entry(mutex)); }).join();
        return entered;
    };
    for (int i = 0; i < 500 && !mutex.can_be_owned(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(BiasedMutex::Entry(mutex));
    EXPECT_EQ(mutex.is_owner(), mutex.can_be_owned());
    EXPECT_TRUE(another_enters());
    EXPECT_FALSE(mutex.is_owner());
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(BiasedMutex::Entry(mutex));
    EXPECT_EQ(mutex.is_owner(), mutex.can_be_owned()) << "again, once it has been alone";
    {
        const std::lock_guard lock(mutex);
        EXPECT_FALSE(another_enters());
        EXPECT_FALSE(BiasedMutex::Entry(mutex)) << "not recursive";
    }
    EXPECT_TRUE(another_enters());
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(BiasedMutex::Entry(mutex));
    BiasedMutex::Entry entry(mutex);
    ASSERT_TRUE(entry);
    std::atomic<bool> got{false};
    std::thread waits([&] {
        const std::lock_guard lock(mutex);
        got = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(got.load());
    entry.leave();
    waits.join();
    EXPECT_TRUE(got.load());
}

}  // namespace
}  // namespace tutti
