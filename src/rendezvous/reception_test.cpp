// Connections that come to a rank's endpoint: which are let in, and as what.
#include "rendezvous/reception.hpp"

#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "rendezvous/dialer.hpp"

#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;

Roster of(int rank, const Card& card) {
    return {rank, std::make_shared<const std::vector<Card>>(2, card), {}, 7, security::Secret::from_text("secret")};
}

Card card_of(const Endpoint& endpoint) {
    Card card;
    endpoint.describe(card);
    card.host_key = "boot/1/2/0";
    card.process = ::getpid();
    return card;
}

// Rank 0 has an endpoint; rank 1, in the same process, connects to it.
class Receptions : public testing::Test {
 protected:
    Receptions() {
        endpoint_.open("127.0.0.1", Deadline::never());
        zero_.emplace(of(0, card_of(endpoint_)));
        one_.emplace(of(1, card_of(endpoint_)));
        reception_.emplace(endpoint_, *zero_);
    }

    // The next connection that is let in.
    std::optional<Arrival> next(std::chrono::milliseconds limit = test::patience(5s)) {
        for (const Deadline deadline = Deadline::after(limit); !deadline.expired();) {
            auto arrivals = reception_->accept();
            if (!arrivals.empty()) return std::move(arrivals.front());
            std::vector<pollfd> entries;
            reception_->pollables(entries);
            ::poll(entries.data(), entries.size(), deadline.poll_ms(20ms));
        }
        return std::nullopt;
    }
    static bool is_closed(const UniqueFd& fd) {
        char byte = 0;
        net::wait_for(fd.get(), POLLIN, Deadline::after(test::patience(5s)), nullptr, "test");
        return ::recv(fd.get(), &byte, 1, 0) <= 0;
    }

    Endpoint endpoint_;
    std::optional<Roster> zero_, one_;
    std::optional<Reception> reception_;
};

TEST_F(Receptions, let_a_lifeline_of_this_host_in_that_nobody_has_waited_for) {
    const UniqueFd fd = Dialer(*one_).attach_unseen(0);
    ASSERT_TRUE(fd);
    const auto arrival = next();
    ASSERT_TRUE(arrival);
    EXPECT_EQ(arrival->rank, 1);
    EXPECT_EQ(arrival->purpose, Hello::Purpose::lifeline);
    EXPECT_FALSE(reception_->has_newcomers());
}

TEST_F(Receptions, let_requests_for_memory_in_over_the_local_endpoint) {
    const UniqueFd fd = Dialer(*one_).request_memory(0, Deadline::after(test::patience(1s)), nullptr);
    const auto arrival = next();
    ASSERT_TRUE(arrival);
    EXPECT_EQ(arrival->purpose, Hello::Purpose::memory);
}

TEST_F(Receptions, let_a_data_connection_in_that_proves_the_secret) {
    auto made = std::async(std::launch::async,
                           [this] { return Dialer(*one_).connect(0, Deadline::after(test::patience(5s)), nullptr); });
    const auto arrival = next();
    ASSERT_TRUE(arrival);
    EXPECT_EQ(arrival->rank, 1);
    EXPECT_EQ(arrival->purpose, Hello::Purpose::data);
    EXPECT_TRUE(made.get().fd);
}

TEST_F(Receptions, let_nobody_in_with_another_secret) {
    Roster stranger = of(1, one_->own());
    stranger.secret = security::Secret::from_text("another");
    auto made = std::async(std::launch::async,
                           [&] { return Dialer(stranger).connect(0, Deadline::after(test::patience(5s)), nullptr); });
    EXPECT_FALSE(next(300ms));
    try {
        made.get();
        ADD_FAILURE() << "it is connected";
    } catch (const DistNetworkError& error) {
        EXPECT_EQ(error.code(), ErrorCode::security) << error.what();
    }
}

TEST_F(Receptions, close_connections_of_another_world_or_of_a_rank_that_is_none) {
    const auto says = [this](const Hello& hello) {
        UniqueFd fd = net::connect_unix(one_->card(0).local_endpoint, Deadline::after(test::patience(1s)), nullptr);
        net::send_all(fd.get(), hello.bytes(), Deadline::after(test::patience(1s)), nullptr, "test");
        return fd;
    };
    const UniqueFd of_another_world = says({8, Hello::Purpose::lifeline, 1});
    const UniqueFd of_no_rank = says({7, Hello::Purpose::lifeline, 2});
    EXPECT_FALSE(next(100ms));
    EXPECT_TRUE(is_closed(of_another_world));
    EXPECT_TRUE(is_closed(of_no_rank));
}

TEST_F(Receptions, close_a_connection_that_comes_to_the_wrong_endpoint) {
    const UniqueFd fd = net::connect_unix(one_->card(0).local_endpoint, Deadline::after(test::patience(1s)), nullptr);
    const Hello hello{7, Hello::Purpose::data, 1};
    net::send_all(fd.get(), hello.bytes(), Deadline::after(test::patience(1s)), nullptr, "test");
    EXPECT_FALSE(next(100ms));
    EXPECT_TRUE(is_closed(fd));
}

TEST_F(Receptions, believe_no_process_that_it_is_another) {
    std::vector<Card> cards = *zero_->cards;
    cards[1].process = ::getppid();
    zero_->cards = std::make_shared<const std::vector<Card>>(std::move(cards));
    const UniqueFd fd = Dialer(*one_).attach_unseen(0);
    ASSERT_TRUE(fd);
    EXPECT_FALSE(next(100ms));
    EXPECT_TRUE(is_closed(fd));
}

TEST_F(Receptions, close_what_is_no_connection_of_a_rank) {
    const UniqueFd fd =
        net::connect_tcp({"127.0.0.1", one_->card(0).listen_port}, Deadline::after(test::patience(1s)), nullptr);
    const std::string words = "GET / HTTP/1.1\r\nHost: this-is-no-web-server\r\nAccept: everything and more\r\n\r\n";
    net::send_all(fd.get(), std::as_bytes(std::span(words)), Deadline::after(test::patience(1s)), nullptr, "test");
    EXPECT_FALSE(next(100ms));
    EXPECT_TRUE(is_closed(fd));
}

}  // namespace
}  // namespace tutti::rendezvous
