#include "core/per_thread.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace tutti {
namespace {

struct Counted {
    int value = 0;
    int* destroyed = nullptr;
    ~Counted() {
        if (destroyed != nullptr) ++*destroyed;
    }
};

TEST(PerThread, has_a_value_for_each_thread) {
    struct Own : Counted {};
    int destroyed = 0;
    PerThread<Own>::get().value = 1;
    std::thread([&] {
        Own& own = PerThread<Own>::get();
        EXPECT_EQ(own.value, 0);
        own.value = 2;
        own.destroyed = &destroyed;
        EXPECT_EQ(PerThread<Own>::get().value, 2);
    }).join();
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(PerThread<Own>::get().value, 1);
}

/// What an object sees that is destroyed after the value of its thread.
struct Seen {
    int destroyed = 0, value = -1, again = -1;
};
struct Kept : Counted {};
struct Later {
    Seen* seen = nullptr;
    ~Later() {
        const int destroyed = seen->destroyed;
        Kept& kept = PerThread<Kept>::get();
        seen->value = kept.value;
        kept.value = 8;
        seen->again = PerThread<Kept>::get().value;
        EXPECT_EQ(destroyed, 1) << "the order that this test is about";
        std::unique_ptr<Kept>{&kept};  // it would stay
    }
};

TEST(PerThread, has_another_value_when_the_thread_s_objects_are_gone) {
    Seen seen;
    std::thread([&] {
        static thread_local Later later;  // made before the value, and so destroyed after it
        later.seen = &seen;
        Kept& kept = PerThread<Kept>::get();
        kept.value = 7;
        kept.destroyed = &seen.destroyed;
    }).join();
    EXPECT_EQ(seen.value, 0);
    EXPECT_EQ(seen.again, 8);
}

}  // namespace
}  // namespace tutti
