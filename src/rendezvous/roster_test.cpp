// How two ranks of a world stand to each other.
#include "rendezvous/roster.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::rendezvous {
namespace {

// A rank's host key is boot/memory/network/user.
Roster of(int rank, const std::vector<std::string>& host_keys, bool tls = false) {
    std::vector<Card> cards;
    for (const std::string& key : host_keys) {
        Card& card = cards.emplace_back();
        card.host_key = key;
        card.process = 100 + static_cast<int>(cards.size());
        card.tls = tls;
    }
    return {rank,
            std::make_shared<const std::vector<Card>>(std::move(cards)),
            {},
            0xabc,
            security::Secret::from_text("secret")};
}

TEST(Rosters, know_which_processes_this_rank_can_watch) {
    Roster roster = of(0, {"a/1/1/0", "a/1/1/0", "b/1/1/0"});
    EXPECT_TRUE(roster.can_watch(1));
    EXPECT_FALSE(roster.can_watch(2));
    std::vector<Card> cards = *roster.cards;
    cards[1].process = roster.own().process;
    roster.cards = std::make_shared<const std::vector<Card>>(std::move(cards));
    EXPECT_TRUE(roster.is_near(1));
    EXPECT_FALSE(roster.can_watch(1)) << "it is this process";
    EXPECT_FALSE(roster.has(3) || roster.has(-1));
}

TEST(Rosters, name_the_two_ends_of_a_connection_and_believe_only_those_that_are_encrypted) {
    const Roster roster = of(2, {"a/1/1/0", "b/1/1/0", "b/1/1/0"}, true);
    EXPECT_TRUE(roster.encrypts(0));
    EXPECT_FALSE(roster.encrypts(1));
    EXPECT_FALSE(roster.is_of_one_network());
    EXPECT_EQ(roster.tls_identity(0, 2), "tutti 1 world 0000000000000abc rank 0 to rank 2");
    EXPECT_TRUE(roster.is_for_this_rank(roster.tls_identity(0, 2)));
    EXPECT_FALSE(roster.is_for_this_rank(roster.tls_identity(0, 1)));
    EXPECT_FALSE(roster.is_for_this_rank(roster.tls_identity(1, 2))) << "within a host nothing is encrypted";
    EXPECT_FALSE(roster.is_for_this_rank(roster.tls_identity(2, 2)));
    EXPECT_FALSE(roster.is_for_this_rank(roster.tls_identity(7, 2)));
    for (const char* nonsense : {"", " rank ", "tutti 1 world 0 rank x to rank 2"})
        EXPECT_FALSE(roster.is_for_this_rank(nonsense)) << nonsense;
}

TEST(Rosters, encrypt_nothing_unless_they_are_told_to) {
    EXPECT_FALSE(of(0, {"a/1/1/0", "b/1/1/0"}).encrypts(1));
    EXPECT_TRUE(of(0, {"a/1/1/0", "a/2/1/0"}).is_of_one_network());
}

}  // namespace
}  // namespace tutti::rendezvous
