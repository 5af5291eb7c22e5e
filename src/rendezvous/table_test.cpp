// The table of the ranks, as it may stand in a store.
#include "rendezvous/table.hpp"

#include "object/codec.hpp"
#include "rendezvous/attempt.hpp"
#include "rendezvous/place.hpp"
#include "support/forwarding_store.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>
#include <tutti/object.hpp>
#include <tutti/version.hpp>

#include <random>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using test::message_of;

Card a_card(int size = 3) {
    return {.listen_host = "127.0.0.1",
            .listen_port = 4711,
            .local_endpoint = "door",
            .host_key = "boot/1/2/0",
            .host_name = "host",
            .process = 12,
            .process_space = 5,
            .world_size = size,
            .note = "note"};
}
Table a_table() {
    return {.cards = {a_card(), a_card(), a_card()}, .decision = "a decision", .world = 7, .secret = "secret"};
}
void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Table, comes_back_as_it_was) {
    const Table back = read_table(encode(a_table()), 1, 3);
    ASSERT_EQ(back.cards.size(), 3U);
    EXPECT_EQ(back.cards[2].listen_port, 4711);
    EXPECT_EQ(back.cards[2].world_size, 3);
    EXPECT_EQ(back.world, 7U);
    EXPECT_EQ(decode_card(encode(a_card()), 1).local_endpoint, "door");
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

// Ranks of other versions write this list, with any second part.
TEST(Table, of_another_version_is_an_error_that_names_both) {
    const auto written_by = [](const char* version) {
        return object::encode_string(Object(Object::List{Object(version), Object("whatever it may be")}));
    };
    const std::string own = version();
    expect_part(message_of<InvalidArgument>([&] { (void)read_table(written_by("7.3.1"), 1, 3); }),
                "init of 3 ranks: rank 0 runs tutti 7.3.1, and this rank tutti " + own);
    const auto failure = other_version(written_by("7.3.1"), 2);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->rank, 2);
    expect_part(failure->text, "rank 2 runs tutti 7.3.1, and this rank tutti " + own + ": expected the same version");
    EXPECT_FALSE(other_version(encode(a_card()), 2));
    EXPECT_FALSE(other_version(written_by((own.substr(0, own.rfind('.')) + ".99").c_str()), 2)) << "another PATCH";
    EXPECT_FALSE(other_version("?", 2));
    EXPECT_THROW((void)decode_card("?", 2), DistStoreError);
    EXPECT_THROW((void)decode_card(object::encode_string(Object(5)), 2), DistStoreError);
}

TEST(Table, of_another_number_of_ranks_is_an_error_that_says_who_says_what) {
    expect_part(message_of<InvalidArgument>([] { (void)read_table(encode(a_table()), 1, 4); }),
                "rank 1 says 4 ranks, rank 0 says 3");
    expect_part(message_of<InvalidArgument>([] { (void)read_table(encode(a_table()), 1, 2); }),
                "rank 1 says 2 ranks, rank 0 says 3");
    expect_part(message_of<InvalidArgument>([] { (void)read_table(encode(Table{}), 1, 2); }), "rank 0 says 0");
}

TEST(Table, with_a_failure_raises_it_on_every_rank) {
    const Failure failed{Failure::failed, 2, "no memory"};
    expect_part(message_of<PeerLost>([&] { (void)read_table(encode(failed), 1, 3); }),
                "init of 3 ranks: rank 2 failed while joining: no memory");
    const Failure ended{Failure::ended, 2, "process 4711 on host ended"};
    expect_part(message_of<PeerLost>([&] { (void)read_table(encode(ended), 1, 3); }),
                "rank 2 is gone: process 4711 on host ended before it had joined");
    const Failure disagreement{Failure::disagreement, 2, "who says what"};
    expect_part(message_of<InvalidArgument>([&] { (void)read_table(encode(disagreement), 1, 3); }), "who says what");
    EXPECT_THROW((void)read_table(encode(Failure{77, 2, "?"}), 1, 3), DistStoreError);
}

TEST(Table, the_first_failure_stands) {
    HashStore store;
    say_failed(store, 1, 3, std::runtime_error("the first"));
    say_failed(store, 2, 3, std::runtime_error("the second"));
    expect_part(message_of<PeerLost>([&] { (void)read_table(store.get(table_key), 0, 3); }), "rank 1");
    store.set("table", encode(a_table()));
    say_failed(store, 2, 3, std::runtime_error("too late"));
    EXPECT_NO_THROW((void)read_table(store.get(table_key), 0, 3));
}

// An interrupted wait may keep a store busy, one of another library for instance.
TEST(Table, a_store_without_wills_is_not_asked_for_more_after_an_interrupt) {
    Store store(std::make_shared<test::ForwardingStore>());
    say_failed(store, 1, 3, Aborted("Ctrl-C", {}, ErrorCode::interrupted));
    EXPECT_FALSE(store.check({table_key}));
    Attempt({}, "world", Attempt::Worlds::many).say_failed(1, 3, std::runtime_error("no store"));
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
            EXPECT_EQ(read_table(bytes, 1, 3).cards.size(), 3U);
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
