// Joining: the outcome of the cards of ranks in one process, and the ranks that are refused.
#include "object/codec.hpp"
#include "rendezvous/meeting_records.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/table.hpp"
#include "store/process_test_support.hpp"

#include "support/forwarding_store.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>
#include <tutti/object.hpp>
#include <tutti/version.hpp>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using test::message_of;

constexpr const char *card_of_1 = "group/world/card/1", *outcome_key = "group/world/outcome";

// Joins and leaves.
void join(const Store& store, int rank, int size, std::chrono::milliseconds timeout = 20s) {
    const Membership membership(MembershipOptions{.store = store,
                                                  .rank = rank,
                                                  .world_size = size,
                                                  .deadline = Deadline::after(timeout),
                                                  .on_verdict = [](const Verdict&) {}});
}

Attempt the_only_world(const Store& store) {
    return {store, "world", Attempt::Worlds::one};
}

// Rank 0's decision from the notes of three ranks, on each of them.
std::vector<std::string> decisions_of(const Store& store, const std::string& listen_host) {
    std::vector<std::string> decisions(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            const Membership membership(MembershipOptions{.store = store,
                                                          .rank = rank,
                                                          .world_size = 3,
                                                          .deadline = Deadline::after(20s),
                                                          .listen_host = listen_host,
                                                          .on_verdict = [](const Verdict&) {},
                                                          .note = [rank] { return "note " + std::to_string(rank); },
                                                          .decide =
                                                              [rank](const std::vector<Card>& cards) {
                                                                  std::string all =
                                                                      "decided by " + std::to_string(rank) + ":";
                                                                  for (const Card& card : cards) all += " " + card.note;
                                                                  return all;
                                                              }});
            decisions[static_cast<std::size_t>(rank)] = membership.decision();
        });
    }
    for (auto& thread : threads) thread.join();
    return decisions;
}

TEST(Joining, every_rank_gets_what_rank_0_makes_of_all_notes) {
    for (const auto& decision : decisions_of(HashStore(), "0.0.0.0"))
        EXPECT_EQ(decision, "decided by 0: note 0 note 1 note 2");
}

TEST(Joining, ranks_of_one_host_leave_the_notes_to_rank_0) {
    for (const auto& decision : decisions_of(HashStore(), "127.0.0.1")) EXPECT_EQ(decision, "decided by 0: note 0  ");
}

// A store on this host that serves other hosts, too.
class OpenStore : public test::ForwardingStore {
 public:
    std::string local_host() const override { return "0.0.0.0"; }
};

TEST(Joining, ranks_that_do_not_know_their_address_listen_everywhere_and_meet_by_loopback_if_all_are_on_one_host) {
    const Store store(std::make_shared<OpenStore>());
    std::barrier all_have_connected(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            Membership membership(MembershipOptions{.store = store,
                                                    .rank = rank,
                                                    .world_size = 3,
                                                    .deadline = Deadline::after(20s),
                                                    .on_verdict = [](const Verdict&) {}});
            for (const Card& card : membership.cards()) EXPECT_EQ(card.listen_host, "127.0.0.1");
            for (int peer = 0; peer < rank; ++peer)
                EXPECT_TRUE(membership.connect(peer, Deadline::after(10s), nullptr).fd);
            all_have_connected.arrive_and_wait();
        });
    }
    for (auto& thread : threads) thread.join();
}

// Rank 1 says something else on its card, as a rank of another host or of another build would.
class OtherCard : public test::ForwardingStore {
 public:
    OtherCard(std::shared_ptr<StoreBackend> store, std::function<std::string(std::string_view card)> other)
        : ForwardingStore(std::move(store)), other_(std::move(other)) {}
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        const std::string value = key == card_of_1 ? other_(desired) : std::string(desired);
        const std::string stands = ForwardingStore::compare_set(key, expected, value, timeout);
        return stands == value ? std::string(desired) : stands;
    }

 private:
    std::function<std::string(std::string_view)> other_;
};

// All of three ranks get an error with `part` when they join.
void expect_nobody_joins(const std::function<std::string(std::string_view card)>& other, const std::string& part) {
    const Store inner = HashStore();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            const Store store(std::make_shared<OtherCard>(inner.backend(), other));
            try {
                join(store, rank, 3);
                ADD_FAILURE() << "rank " << rank << " joined";
            } catch (const InvalidArgument& error) {
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

TEST(Joining, a_rank_that_others_cannot_reach_is_an_error_of_all_that_says_what_to_set) {
    expect_nobody_joins(
        [](std::string_view bytes) {
            auto whole = decode_record<MeetingCard>(bytes, "test", "a card");
            Card card = decode_card(whole.payload, 1);
            card.host_key = "another boot/1/2/0";
            whole.payload = encode(card);
            return encode_record(Object(whole));
        },
        "set TUTTI_HOST");
}

TEST(Joining, a_rank_of_another_version_is_an_error_of_all_that_names_both) {
    expect_nobody_joins(
        [](std::string_view) {
            return object::encode_string(Object(Object::List{Object("7.3.1"), Object("a card of another form")}));
        },
        std::string("rank 1 runs tutti 7.3.1, and this rank tutti ") + version());
}

// Ranks of other versions write this list, with any second part.
TEST(Joining, rank_0_of_another_version_is_an_error_that_names_both) {
    HashStore store;
    store.set(outcome_key, object::encode_string(Object(Object::List{Object("7.3.1"), Object("whatever it may be")})));
    EXPECT_TRUE(
        message_of<InvalidArgument>([&] {
            join(store, 1, 3);
        }).starts_with("init of 3 ranks: rank 0 runs tutti 7.3.1, and this rank tutti " + std::string(version())));
}

TEST(Joining, ranks_with_different_sizes_all_hear_who_says_what) {
    for (const int other : {2, 4}) {
        const HashStore store;
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                const std::string text = message_of<InvalidArgument>([&] { join(store, rank, rank == 1 ? other : 3); });
                EXPECT_NE(text.find("rank 1 says " + std::to_string(other) + " ranks, rank 0 says 3"),
                          std::string::npos)
                    << text;
                EXPECT_NE(text.find("expected one size (WORLD_SIZE, world_size) on all ranks"), std::string::npos)
                    << text;
            });
        }
        for (auto& thread : threads) thread.join();
    }
}

TEST(Joining, the_first_failure_is_that_of_every_rank) {
    const HashStore store;
    the_only_world(store).say_failed(2, 3, std::runtime_error("no memory"));
    the_only_world(store).say_failed(1, 3, std::runtime_error("the second"));
    EXPECT_EQ(message_of<PeerLost>([&] { join(store, 0, 3); }),
              "init of 3 ranks: rank 2 failed while joining: no memory");
}

TEST(Joining, says_which_ranks_are_late) {
    EXPECT_EQ(message_of<DistStoreError>([] { join(HashStore(), 0, 3, 200ms); }),
              "init of 3 ranks: 1 of them arrived in time; missing: ranks 1, 2");
    const std::string text = message_of<DistStoreError>([] { join(HashStore(), 1, 3, 200ms); });
    EXPECT_EQ(text,
              "init of 3 ranks: rank 0 did not answer; is it missing? 1 of them arrived in time; missing: ranks 0, 2");
}

// An interrupted wait may keep a store busy, one of another library for instance.
TEST(Joining, a_store_without_wills_is_not_asked_for_more_after_an_interrupt) {
    Store store(std::make_shared<test::ForwardingStore>());
    the_only_world(store).say_failed(1, 3, Aborted("Ctrl-C", {}, ErrorCode::interrupted));
    EXPECT_FALSE(store.check({outcome_key}));
    Attempt({}, "world", Attempt::Worlds::many).say_failed(1, 3, std::runtime_error("no store"));
}

// A file says nothing of a process that has ended.
TEST(Joining, rank_0_does_not_take_the_card_of_a_process_that_has_ended) {
    const test::TempPath file("_joining");
    FileStore store(file.path);
    {
        test::Child child([&] {
            join(FileStore(file.path), 1, 2);
            return 0;
        });
        while (!store.check({card_of_1})) std::this_thread::sleep_for(1ms);
        child.kill();
    }
    const std::string text = message_of<PeerLost>([&] { join(store, 0, 2); });
    EXPECT_NE(text.find("init of 2 ranks: rank 1 is gone: process "), std::string::npos) << text;
    EXPECT_NE(text.find("ended before it had joined"), std::string::npos) << text;
}

// A store that has to be asked again and again, and is asked once the bell has rung.
class SilentStore : public test::ForwardingStore {
 public:
    bool asks_again() const override { return true; }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        if (!net::sleep_unless_readable(bell, 10s)) throw DistStoreError("the bell has not rung");
        return get(key, timeout);
    }
};

TEST(Joining, rank_0_rings_for_those_who_would_have_to_ask_the_store_again_and_again) {
    std::vector<std::string> hosts{"127.0.0.1", "0.0.0.0"};
    try {
        net::listen_tcp("::1", 0);
        hosts.emplace_back("::1");
    } catch (const DistNetworkError&) {
        std::printf("this machine has no IPv6: without ::1\n");
    }
    for (const std::string& host : hosts) {
        const Store store(std::make_shared<SilentStore>());
        for (const auto& decision : decisions_of(store, host))
            EXPECT_TRUE(decision.starts_with("decided by 0:")) << host;
    }
}

}  // namespace
}  // namespace tutti::rendezvous
