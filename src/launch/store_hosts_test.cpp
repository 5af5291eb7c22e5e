#include "launch/store_hosts.hpp"

#include "security/secret.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<std::string>;

// The launchers of three nodes, in one process: zero serves the store, one and two may keep the standby.
class StoreOfThree : public testing::Test {
 protected:
    struct Node {
        Store store;
        StoreHosts hosts;
    };
    StoreOfThree() {
        server_.emplace(net::listen_tcp("127.0.0.1", 0), security::Secret::from_text(secret), false,
                        store::ServerKind::with_standby);
        port_ = server_->port();
        make(zero_, "zero", secret, &*server_);
        make(one_, "one");
        make(two_, "two");
        zero_->hosts.publish(zero_->store);
    }
    void make(std::optional<Node>& node, const std::string& id, const std::string& known = secret,
              store::TcpServer* own = nullptr) {
        node.emplace(Node{TCPStore({.port = port_, .timeout = 20s, .secret = secret}),
                          StoreHosts({.id = id, .host = "127.0.0.1", .server = {"127.0.0.1", port_}, .secret = known},
                                     own, leaving_)});
    }
    static void look(Node& node) { node.hosts.look(node.store); }
    static bool keep(Node& node, const Ids& others) {
        node.hosts.keep_standby(node.store, others);
        return node.hosts.has_standby() && !node.hosts.servers().standby.empty();
    }
    template <class Condition>
    static bool soon(Condition condition) {
        for (const Deadline end = Deadline::after(test::patience(5s)); !end.expired();
             std::this_thread::sleep_for(5ms)) {
            if (condition()) return true;
        }
        return false;
    }
    void lose_zero() {
        zero_.reset();
        server_.reset();
    }

    static constexpr const char* secret = "a secret of the tests";
    AbortFlag leaving_;
    std::optional<store::TcpServer> server_;
    std::uint16_t port_ = 0;
    std::optional<Node> zero_, one_, two_;
};

TEST_F(StoreOfThree, is_kept_by_the_first_other_which_takes_over_and_asks_the_next) {
    EXPECT_FALSE(zero_->hosts.waits_for_standby());
    EXPECT_FALSE(keep(*zero_, {"one", "two"}));
    EXPECT_TRUE(zero_->hosts.waits_for_standby());
    look(*two_);
    look(*one_);
    ASSERT_TRUE(soon([&] { return keep(*zero_, {"one", "two"}); }));
    EXPECT_FALSE(zero_->hosts.waits_for_standby());
    look(*two_);
    EXPECT_EQ(two_->hosts.servers().id, "zero");
    EXPECT_EQ(two_->hosts.servers().primary.port, port_);
    EXPECT_EQ(two_->hosts.servers().standby, zero_->hosts.servers().standby);
    EXPECT_FALSE(one_->hosts.serves());
    two_->store.set("what", "was there");

    lose_zero();
    ASSERT_TRUE(soon([&] { return one_->hosts.serves(); }));
    EXPECT_EQ(one_->store.get("what"), "was there");
    one_->hosts.publish(one_->store);
    EXPECT_FALSE(keep(*one_, {"two"}));
    look(*two_);
    ASSERT_TRUE(soon([&] { return keep(*one_, {"two"}); }));
    EXPECT_EQ(two_->hosts.servers().id, "one");
    EXPECT_EQ(net::to_string(two_->hosts.servers().primary), net::to_string(one_->hosts.servers().primary));

    one_.reset();
    ASSERT_TRUE(soon([&] { return two_->hosts.serves(); }));
    EXPECT_EQ(two_->store.get("what"), "was there");
}

TEST_F(StoreOfThree, is_kept_by_another_when_the_first_is_lost) {
    EXPECT_FALSE(keep(*zero_, {"one", "two"}));
    look(*one_);
    ASSERT_TRUE(soon([&] { return keep(*zero_, {"one", "two"}); }));
    one_.reset();
    ASSERT_TRUE(soon([&] { return !zero_->hosts.has_standby(); }));
    EXPECT_TRUE(zero_->hosts.serves());
    EXPECT_FALSE(keep(*zero_, {"one", "two"})) << "it may be cut off, and count as living still";
    EXPECT_EQ(zero_->hosts.servers().standby, "");
    look(*two_);
    EXPECT_TRUE(soon([&] { return keep(*zero_, {"one", "two"}); }));
}

TEST_F(StoreOfThree, is_not_waited_for_where_those_that_were_asked_vanish_or_cannot) {
    EXPECT_FALSE(keep(*zero_, {"nobody", "one"}));
    EXPECT_TRUE(zero_->hosts.waits_for_standby());
    make(one_, "one", "another secret of the tests");
    EXPECT_FALSE(keep(*zero_, {"one"}));
    EXPECT_FALSE(zero_->hosts.waits_for_standby());
    look(*one_);
    EXPECT_FALSE(keep(*zero_, {"one", "two"}));
    look(*two_);
    EXPECT_FALSE(keep(*zero_, {"one", "two"})) << "it is asked after a pause";
}

}  // namespace
}  // namespace tutti::launch
