// What a client posts, by itself.
#include "store/posts.hpp"
#include "core/unix_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <string>
#include <string_view>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

TEST(Posts, go_while_the_server_was_heard_a_moment_and_few_posts_ago) {
    Posts posts;
    posts.heard(10s);
    EXPECT_TRUE(posts.may_go(10s + 49ms));
    EXPECT_FALSE(posts.may_go(10s + 50ms));
    for (int i = 0; i < 255; ++i) posts.count();
    EXPECT_TRUE(posts.may_go(10s));
    posts.count();
    EXPECT_FALSE(posts.may_go(10s));
    posts.heard(10s);
    EXPECT_TRUE(posts.may_go(10s));
}

TEST(Posts, do_not_go_past_a_request_that_was_given_up) {
    Posts posts;
    EXPECT_TRUE(posts.pipe_takes(PIPE_BUF));
    EXPECT_FALSE(posts.pipe_takes(PIPE_BUF + 1)) << "it might go in two pieces";
    posts.note_answered(3);
    posts.note_given_up(5);
    posts.note_answered(4);
    EXPECT_FALSE(posts.pipe_takes(1));
    posts.note_answered(6);
    EXPECT_TRUE(posts.pipe_takes(1)) << "the server takes requests in their order";
}

TEST(Posts, take_the_pipe_whose_end_comes_from_the_door_until_it_is_full) {
    std::array<int, 2> door{}, pipe{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, door.data()), 0);
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd mine(door[0]), servers(door[1]), reading(pipe[0]), writing(pipe[1]);
    net::send_fd(servers.get(), writing.get(), Deadline::after(5s), nullptr);
    Posts posts;
    EXPECT_FALSE(posts.has_pipe());
    posts.open_pipe(mine.get(), Deadline::after(5s));
    ASSERT_TRUE(posts.has_pipe());
    ASSERT_TRUE(posts.write("a post"));
    std::array<char, 16> bytes{};
    ASSERT_EQ(::read(reading.get(), bytes.data(), bytes.size()), 6);
    EXPECT_EQ(std::string_view(bytes.data(), 6), "a post");
    const std::string page(PIPE_BUF, 'x');
    std::uint32_t written = 1;
    while (posts.write(page) && written < 100'000) ++written;
    EXPECT_EQ(posts.written(), written) << "the one without room does not count";
    EXPECT_GT(written, 1U);
    EXPECT_LT(written, 100'000U);
}

}  // namespace
}  // namespace tutti::store
