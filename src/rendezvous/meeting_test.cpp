// meet() over real stores; what happens in time and order, the simulation shows (tests/simulation).
#include "rendezvous/meeting.hpp"

#include "store/process_test_support.hpp"
#include "store/tcp_test_support.hpp"
#include "support/forwarding_store.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::message_of;

MeetingTerms terms_of(const Store& place, int rank, int size) {
    return {.place = place, .name = "here", .rank = rank, .size = size, .timeout = 20s};
}

void on_threads(int size, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back([&work, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Meet, gives_all_the_cards_of_all_and_again) {
    const HashStore store;
    for (std::uint64_t attempt = 1; attempt <= 3; ++attempt) {
        on_threads(3, [&](int rank) {
            const std::string bytes("\0\xff card", 7);
            const Met met = meet(terms_of(store, rank, 3), bytes + std::to_string(rank));
            EXPECT_EQ(met.attempt, attempt);
            ASSERT_EQ(met.cards.size(), 3U);
            for (int r = 0; r < 3; ++r) EXPECT_EQ(met.cards[static_cast<std::size_t>(r)], bytes + std::to_string(r));
        });
    }
}

TEST(Meet, of_one_rank_needs_nobody) {
    const Met met = meet(terms_of(HashStore(), 0, 1), "alone");
    EXPECT_EQ(met.cards, std::vector<std::string>{"alone"});
    EXPECT_EQ(met.attempt, 0U);
}

TEST(Meet, tells_a_late_rank_once_what_has_become_of_the_others) {
    const HashStore store;
    MeetingTerms terms = terms_of(store, 1, 2);
    terms.operation = "gather", terms.about = "the readers", terms.timeout = 100ms;
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = message_of<Timeout>([&] { meet(terms, ""); });
    EXPECT_EQ(text, "gather the readers: timed out on rank 1; not there: 0");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_EQ(message_of<Timeout>([&] { meet(terms_of(store, 0, 2), ""); }), text);
    on_threads(2, [&](int rank) { EXPECT_EQ(meet(terms_of(store, rank, 2), "").attempt, 2U); });
}

TEST(Meet, that_ranks_come_to_once_is_final) {
    const HashStore store;
    const auto once = [&](int rank) {
        MeetingTerms terms = terms_of(store, rank, 2);
        terms.once = true;
        return terms;
    };
    on_threads(2, [&](int rank) { EXPECT_EQ(meet(once(rank), "").attempt, 0U); });
    const std::string text = message_of<InvalidArgument>([&] { meet(once(1), ""); });
    EXPECT_TRUE(has(text, "rank 1 has been at the meeting \"here\" before: expected each rank once")) << text;
}

TEST(Meet, names_a_disagreement_on_all_ranks) {
    const HashStore store;
    on_threads(3, [&](int rank) {
        MeetingTerms terms = terms_of(store, rank, 3);
        terms.digest = rank == 2 ? "b" : "a";
        terms.words = rank == 2 ? "reads columns" : "reads rows";
        EXPECT_EQ(message_of<InvalidArgument>([&] { meet(terms, ""); }),
                  "meet: rank 2 reads columns, rank 0 reads rows: expected the same on all ranks");
    });
    on_threads(2, [&](int rank) {
        const std::string text =
            message_of<InvalidArgument>([&] { meet(terms_of(store, rank, rank == 0 ? 2 : 3), ""); });
        EXPECT_TRUE(has(text, "rank 1 says 3 ranks, rank 0 says 2 ranks")) << text;
    });
}

TEST(Meet, says_that_two_are_the_same_rank) {
    const HashStore store;
    const auto expect_two = [](const std::string& text) {
        EXPECT_TRUE(has(text, "two say that they are rank 1, process " + std::to_string(::getpid()))) << text;
    };
    std::thread first([&] { expect_two(message_of<InvalidArgument>([&] { meet(terms_of(store, 1, 2), ""); })); });
    while (!Store(store).check({"here/1/card/1"})) std::this_thread::sleep_for(1ms);
    expect_two(message_of<InvalidArgument>([&] { meet(terms_of(store, 1, 2), ""); }));
    first.join();
}

TEST(Meet, tells_of_a_rank_that_cannot_come) {
    const HashStore store;
    for (const bool comes_first : {true, false}) {
        on_threads(2, [&](int rank) {
            if (rank == 1) {
                std::this_thread::sleep_for(comes_first ? 0ms : 50ms);
                return say_cannot_meet(terms_of(store, 1, 2), std::runtime_error("it has no memory"));
            }
            std::this_thread::sleep_for(comes_first ? 50ms : 0ms);
            const std::string text = message_of<PeerLost>([&] { meet(terms_of(store, 0, 2), ""); });
            EXPECT_EQ(text, "meet: rank 1 cannot come: it has no memory");
        });
    }
}

TEST(Meet, does_not_wait_for_the_words_of_a_rank_that_has_ended_before_them) {
    HashStore store;
    store.set("here/newest", "1");
    store.set("here/1/card/1", "-5");
    on_threads(2, [&](int rank) {
        if (rank == 0) {
            const std::string text = message_of<PeerLost>([&] { meet(terms_of(store, 0, 2), ""); });
            EXPECT_EQ(text, "meet: rank 1 cannot come, and has not said why");
        }
        EXPECT_EQ(meet(terms_of(store, rank, 2), "").attempt, 2U);
    });
}

TEST(Meet, ends_for_all_when_a_caller_wants_no_more) {
    const HashStore store;
    on_threads(2, [&](int rank) {
        MeetingTerms terms = terms_of(store, rank, 3);
        if (rank == 0) return (void)message_of<PeerLost>([&] { meet(terms, ""); });
        terms.check = [] { throw Aborted("the group is over"); };
        EXPECT_EQ(message_of<Aborted>([&] { meet(terms, ""); }), "the group is over");
    });
}

TEST(Meet, finds_a_circle_of_ranks_that_wait_for_each_other) {
    const HashStore store;
    on_threads(2, [&](int rank) {
        MeetingTerms terms = terms_of(store, rank, 2);
        terms.name = rank == 0 ? "rows" : "columns";
        terms.words = "goes to the " + terms.name;
        terms.members = {0, 1};
        EXPECT_EQ(
            message_of<InvalidArgument>([&] { meet(terms, ""); }),
            "meet: ranks wait for each other: rank 0 goes to the rows; rank 1 goes to the columns; expected one order "
            "of meetings on all ranks");
    });
}

TEST(Meet, looks_ever_more_seldom_for_a_circle) {
    struct Counting : test::ForwardingStore {
        std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                Milliseconds timeout) override {
            if (key == "board/1") ++looks;
            return ForwardingStore::compare_set(key, expected, desired, timeout);
        }
        int looks = 0;
    };
    const auto counting = std::make_shared<Counting>();
    MeetingTerms terms = terms_of(Store(counting), 1, 3);
    terms.members = {0, 1, 2};
    terms.timeout = 1500ms;
    message_of<Timeout>([&] { meet(terms, ""); });
    EXPECT_GT(counting->looks, 0);
    EXPECT_LE(counting->looks, 6);  // after 0.1, 0.2, 0.4 and 0.8 seconds
}

TEST(Meet, tells_of_a_process_that_ended_while_it_waited) {
    const TCPStore master = test::a_master();
    test::Child child([port = master.port()] {
        meet(terms_of(test::a_client(port), 1, 3), "");
        return 0;
    });
    const TCPStore store = test::a_client(master.port());
    while (!Store(store).check({"here/1/card/1"})) std::this_thread::sleep_for(1ms);
    std::thread killer([&] {
        std::this_thread::sleep_for(100ms);
        child.kill();
    });
    const std::string text = message_of<PeerLost>([&] { meet(terms_of(store, 0, 3), ""); });
    killer.join();
    EXPECT_TRUE(has(text, "meet: rank 1 is gone: process ")) << text;
    EXPECT_TRUE(has(text, "ended before all had come")) << text;
}

TEST(Meet, refuses_terms_that_cannot_be) {
    const auto refused = [](const std::function<void(MeetingTerms&)>& change) {
        MeetingTerms terms = terms_of(HashStore(), 0, 2);
        change(terms);
        return message_of<InvalidArgument>([&] { meet(terms, ""); });
    };
    EXPECT_TRUE(has(refused([](auto& t) { t.place = {}; }), "place is no store"));
    EXPECT_TRUE(has(refused([](auto& t) { t.name.clear(); }), "name is empty"));
    EXPECT_TRUE(has(refused([](auto& t) { t.size = 0; }), "size is 0: expected 1 or more"));
    EXPECT_TRUE(has(refused([](auto& t) { t.rank = 2; }), "rank is 2: expected 0 to 1"));
    EXPECT_TRUE(has(refused([](auto& t) { t.timeout = 0ms; }), "timeout is 0 ms: expected more than 0"));
    EXPECT_TRUE(has(refused([](auto& t) { t.members = {4}; }), "members has 1 ranks, and size is 2: expected as many"));
}

}  // namespace
}  // namespace tutti
