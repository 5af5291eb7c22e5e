// The table of the ranks, and cards, as they may stand in a store.
#include "rendezvous/table.hpp"

#include "object/codec.hpp"
#include "rendezvous/place.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <random>

namespace tutti::rendezvous {
namespace {

using test::message_of;

Card a_card() {
    return {.listen_host = "127.0.0.1",
            .listen_port = 4711,
            .local_endpoint = "door",
            .host_key = "boot/1/2/0",
            .host_name = "host",
            .process = 12,
            .process_space = 5,
            .note = "note"};
}
Table a_table() {
    return {.cards = {a_card(), a_card(), a_card()}, .decision = "a decision", .world = 7, .secret = "secret"};
}
void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Table, comes_back_as_it_was) {
    const Table back = decode_table(encode(a_table()), 3);
    ASSERT_EQ(back.cards.size(), 3U);
    EXPECT_EQ(back.cards[2].listen_port, 4711);
    EXPECT_EQ(back.decision, "a decision");
    EXPECT_EQ(back.secret, "secret");
    EXPECT_EQ(back.world, 7U);
    EXPECT_EQ(decode_card(encode(a_card()), 1).local_endpoint, "door");
}

TEST(Table, says_once_what_the_cards_of_a_host_share) {
    const auto bytes_of = [](int ranks) {
        Table table = a_table();
        table.cards.clear();
        for (int rank = 0; rank < ranks; ++rank) {
            Card card = a_card();
            card.host_name = card.host_key = std::string(100, rank % 2 == 0 ? 'a' : 'b');
            card.process = 1000 + rank;
            table.cards.push_back(card);
        }
        const std::string bytes = encode(table);
        const Table back = decode_table(bytes, ranks);
        for (std::size_t rank = 0; rank < table.cards.size(); ++rank) {
            EXPECT_EQ(back.cards[rank].host_key, table.cards[rank].host_key);
            EXPECT_EQ(back.cards[rank].process, table.cards[rank].process);
        }
        return bytes.size();
    };
    EXPECT_LT(bytes_of(1000), bytes_of(500) + 500 * 40);
}

// Other processes of the job may be of another build of the same version.
TEST(Table, has_cards_with_the_field_names_of_their_first_version) {
    Card card = a_card();
    card.local_endpoint = "somewhere";
    EXPECT_NE(encode(card).find("\xa4"
                                "door"),
              std::string::npos);
    EXPECT_EQ(decode_card(encode(card), 1).local_endpoint, "somewhere");
}

TEST(Table, of_another_number_of_ranks_is_none) {
    for (const int size : {2, 4})
        expect_part(message_of<DistStoreError>([&] { (void)decode_table(encode(a_table()), size); }), "table");
    EXPECT_THROW((void)decode_card("?", 2), DistStoreError);
    EXPECT_THROW((void)decode_card(object::encode_string(Object(5)), 2), DistStoreError);
}

TEST(Table, of_any_bytes_is_an_error_of_ours_and_never_a_table_of_another_size) {
    std::mt19937 random(4711);
    const std::string good = encode(a_table());
#ifdef __SANITIZE_ADDRESS__  // five times as slow
    constexpr int rounds = 4'000;
#else
    constexpr int rounds = 20'000;
#endif
    int refused = 0;
    for (int round = 0; round < rounds; ++round) {
        std::string bytes = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
        for (auto hits = random() % 5; hits > 0 && !bytes.empty(); --hits)
            bytes[random() % bytes.size()] = static_cast<char>(random());
        try {
            EXPECT_EQ(decode_table(bytes, 3).cards.size(), 3U);
        } catch (const DistError&) {
            ++refused;
        }
        try {
            (void)decode_card(bytes, 1);
        } catch (const DistStoreError& error) {
            expect_part(error.what(), "the card of rank 1");
        }
    }
    EXPECT_GT(refused, rounds / 4);
}

TEST(Place, ranks_of_one_network_are_told_from_others) {
    EXPECT_EQ(network_of("boot/1/2/0"), network_of("boot/7/2/1000"));
    EXPECT_NE(network_of("boot/1/2/0"), network_of("boot/1/3/0"));
    EXPECT_NE(network_of("boot/1/2/0"), network_of("other/1/2/0"));
    for (const char* odd : {"", "/", "//", "///", "boot", "boot/1"}) EXPECT_NO_THROW((void)network_of(odd)) << odd;
    EXPECT_EQ(network_of(host_key()), network_of(host_key()));
}

}  // namespace
}  // namespace tutti::rendezvous
