// The server's parts without sockets: ServerData, Spin, Crowd.
#include "store/server_data.hpp"
#include "store/spin.hpp"
#include "store/wire.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tutti {
namespace {

TEST(ServerData, answers_those_who_wait_before_the_one_who_wakes_them) {
    std::vector<store::ConnectionId> answered;
    store::ServerData data([&](auto to, auto, auto, auto) { answered.push_back(to); });
    const auto size = store::encode_number(1);
    const std::string key = std::string(size.begin(), size.end()) + 'k';
    data.handle(1, {store::Op::wait, 1, key.size()}, key);
    data.handle(2, {store::Op::get, 1, key.size()}, key);
    data.handle(3, {store::Op::set, 1, 2 * key.size()}, key + key);
    data.handle(4, {store::Op::post, 1, 2 * key.size()}, key + key);  // has no answer
    ASSERT_EQ(answered.size(), 3U);
    EXPECT_EQ(answered.back(), 3U);
}

TEST(Spin, rests_where_looking_does_not_pay_and_tries_again) {
    store::Spin spin;
    int looked = 0;
    for (int i = 0; i < 1000; ++i) {
        if (!spin.worth_it()) continue;
        ++looked;
        spin.note(false);
    }
    EXPECT_LT(looked, 50);
    EXPECT_GT(looked, 5);
    while (!spin.worth_it()) {
    }
    spin.note(true);
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(spin.worth_it());
        spin.note(true);
    }
}

TEST(Crowd, counts_the_clients_of_about_a_millisecond) {
    store::Crowd crowd;
    std::array<std::uint64_t, 3> marks{};
    std::uint64_t now = 1'000'000'000;
    for (int i = 0; i < 30; ++i) crowd.heard(now += 10'000, marks[static_cast<std::size_t>(i % 3)]);
    EXPECT_EQ(crowd.size(), 3);
    for (int i = 0; i < 300; ++i) crowd.heard(now += 10'000, marks[0]);
    EXPECT_EQ(crowd.size(), 1);
}

TEST(ServerData, random_requests_neither_crash_it_nor_reach_beyond_their_body) {
    std::mt19937 random(4711);
    std::size_t answers = 0;
    store::ServerData data([&](auto, auto, auto, auto) { ++answers; });
    for (int i = 0; i < 20000; ++i) {
        std::string body(random() % 64, '\0');
        for (char& c : body) c = static_cast<char>(random() % 3 == 0 ? random() : 0);
        const store::FrameHeader header{static_cast<store::Op>(random() % 20), random() % 4, body.size()};
        if (!data.handle(random() % 4, header, body)) data.forget(random() % 4);
    }
    EXPECT_GT(answers, 100U);
}

TEST(ServerData, forgets_waiters_whose_connection_is_gone_or_who_cancelled) {
    int answers = 0;
    store::ServerData data([&](auto, auto, auto, auto) { ++answers; });
    const auto size = store::encode_number(1);
    std::string key(size.begin(), size.end());
    key.push_back('k');
    std::string key_and_value = key;
    key_and_value.append(key);
    data.handle(1, {store::Op::wait, 1, key.size()}, key);
    data.handle(2, {store::Op::wait, 1, key.size()}, key);
    data.handle(2, {store::Op::wait, 2, key.size()}, key);
    EXPECT_EQ(data.waiting(), 3U);
    data.forget(1);
    data.handle(2, {store::Op::cancel, 2, 0}, "");
    EXPECT_EQ(data.waiting(), 1U);
    data.handle(3, {store::Op::set, 1, key_and_value.size()}, key_and_value);
    EXPECT_EQ(answers, 2);  // the set and the one that still waits
    EXPECT_EQ(data.waiting(), 0U);
}

std::string body_of(const std::vector<std::string>& fields) {
    std::string body;
    for (const std::string& field : fields) {
        const auto size = store::encode_number(field.size());
        body.append(size.data(), size.size()).append(field);
    }
    return body;
}

TEST(ServerData, answers_who_waits_for_several_keys_once_all_are_there_at_one_time) {
    std::vector<store::ConnectionId> answered;
    store::ServerData data([&](auto to, auto, auto, auto) { answered.push_back(to); });
    std::uint64_t request = 0;
    const auto ask = [&](store::ConnectionId from, store::Op op, const std::vector<std::string>& fields) {
        const std::string body = body_of(fields);
        EXPECT_TRUE(data.handle(from, {op, ++request, body.size()}, body));
    };
    const auto set = [&](const std::string& key) { ask(9, store::Op::post, {key, "value"}); };
    ask(1, store::Op::get, {"a", "b", "c", "a"});
    set("a");
    set("c");
    ask(8, store::Op::delete_key, {"a"});
    set("b");
    EXPECT_EQ(answered, (std::vector<store::ConnectionId>{8})) << "a has gone again";
    set("a");
    EXPECT_EQ(answered, (std::vector<store::ConnectionId>{8, 1}));
    EXPECT_EQ(data.waiting(), 0U);
}

TEST(ServerData, forgets_one_of_many_who_wait_for_one_key) {
    std::vector<store::ConnectionId> answered;
    store::ServerData data([&](auto to, auto, auto, auto) { answered.push_back(to); });
    const std::string key = body_of({"k"}), other = body_of({"other"}), set = body_of({"k", "value"});
    for (store::ConnectionId client = 0; client < 5; ++client) {
        data.handle(client, {store::Op::wait, 1, key.size()}, key);
        data.handle(client, {store::Op::wait, 2, other.size()}, other);
    }
    data.handle(1, {store::Op::cancel, 1, 0}, "");
    data.drop_waits(3);
    EXPECT_EQ(data.waiting(), 7U);
    data.handle(9, {store::Op::post, 1, set.size()}, set);
    EXPECT_EQ(answered, (std::vector<store::ConnectionId>{0, 2, 4}));
    EXPECT_EQ(data.waiting(), 4U);
}

}  // namespace
}  // namespace tutti
