// Joining: the outcome of the cards of ranks in one process, and the ranks that are refused.
#include "object/codec.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/table.hpp"

#include "support/forwarding_store.hpp"

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
        const std::string value = key == card_key(1) ? other_(desired) : std::string(desired);
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
                const Membership membership(MembershipOptions{.store = store,
                                                              .rank = rank,
                                                              .world_size = 3,
                                                              .deadline = Deadline::after(20s),
                                                              .on_verdict = [](const Verdict&) {}});
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
            Card card = decode_card(bytes, 1);
            card.host_key = "another boot/1/2/0";
            return encode(card);
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
