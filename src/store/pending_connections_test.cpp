// PendingConnections by themselves, on a loop without sockets.
#include "store/pending_connections.hpp"
#include "store/server_connection.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

struct LoopWithStrangers {
    LoopWithStrangers(std::size_t most, std::chrono::milliseconds time) : strangers(most, time) {
        uv_loop_init(&loop);
        strangers.open(loop, [this](ServerConnection& connection) {
            dropped.push_back(connection.id);
            strangers.remove(connection);
        });
    }
    ~LoopWithStrangers() {
        strangers.close();
        uv_run(&loop, UV_RUN_DEFAULT);
        uv_loop_close(&loop);
    }
    LoopWithStrangers(const LoopWithStrangers&) = delete;
    LoopWithStrangers& operator=(const LoopWithStrangers&) = delete;

    uv_loop_t loop{};
    PendingConnections strangers;
    std::vector<ConnectionId> dropped;
};

ServerConnection connection(ConnectionId id) {
    return {nullptr, nullptr, id};
}

TEST(PendingConnections, of_too_many_the_oldest_goes) {
    LoopWithStrangers with(2, 1h);
    ServerConnection first = connection(1), second = connection(2), third = connection(3), fourth = connection(4);
    with.strangers.add(first);
    with.strangers.add(second);
    with.strangers.remove(first);  // it has proved the secret
    with.strangers.add(third);
    EXPECT_TRUE(with.dropped.empty());
    with.strangers.add(fourth);
    EXPECT_EQ(with.dropped, std::vector<ConnectionId>{2});
    EXPECT_EQ(with.strangers.size(), 2U);
}

TEST(PendingConnections, the_silent_ones_go_in_their_order_and_nobody_else) {
    LoopWithStrangers with(8, 20ms);
    ServerConnection first = connection(1), second = connection(2), third = connection(3);
    with.strangers.add(first);
    with.strangers.add(second);
    with.strangers.add(third);
    with.strangers.remove(second);
    uv_run(&with.loop, UV_RUN_DEFAULT);  // until no sweep is to come
    EXPECT_EQ(with.dropped, (std::vector<ConnectionId>{1, 3}));
    EXPECT_EQ(with.strangers.size(), 0U);
}

TEST(PendingConnections, one_that_comes_after_a_sweep_is_swept_too) {
    LoopWithStrangers with(8, 20ms);
    ServerConnection first = connection(1), second = connection(2);
    with.strangers.add(first);
    uv_run(&with.loop, UV_RUN_DEFAULT);
    with.strangers.add(second);
    uv_run(&with.loop, UV_RUN_DEFAULT);
    EXPECT_EQ(with.dropped, (std::vector<ConnectionId>{1, 2}));
}

}  // namespace
}  // namespace tutti::store
