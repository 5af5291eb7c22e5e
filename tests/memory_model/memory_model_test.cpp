// The protocols of the memory that ranks share, on every execution that a weak memory model allows.
#include "litmus.hpp"
#include "scenarios.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace tutti::memory_model {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

TEST(Explorer, FindsThatStoresPassLoadsWhereNotBothSidesFence) {
    EXPECT_TRUE(store_buffering(false, false).contains({0, 0, -1, -1}));
    EXPECT_TRUE(store_buffering(true, false).contains({0, 0, -1, -1}));
    EXPECT_EQ(store_buffering(true, true), (Outcomes{{0, 1, -1, -1}, {1, 0, -1, -1}, {1, 1, -1, -1}}));
}

TEST(Explorer, FindsThatAMessageNeedsAReleaseAndAnAcquire) {
    const std::vector<int> overtaken{1, 0, -1, -1};
    EXPECT_TRUE(message_passing(memory_order_relaxed, memory_order_acquire).contains(overtaken));
    EXPECT_TRUE(message_passing(memory_order_release, memory_order_relaxed).contains(overtaken));
    const Outcomes in_order{{0, 0, -1, -1}, {0, 1, -1, -1}, {1, 1, -1, -1}};
    EXPECT_EQ(message_passing(memory_order_release, memory_order_acquire), in_order);
    EXPECT_EQ(message_passing_by_fences(), in_order);
}

TEST(Explorer, LetsTwoReadersSeeTwoStoresInDifferentOrderUnlessTheyFence) {
    EXPECT_TRUE(independent_reads(false).contains({1, 0, 1, 0}));
    EXPECT_FALSE(independent_reads(true).contains({1, 0, 1, 0}));
    EXPECT_EQ(independent_reads(true).size(), 15U);
}

TEST(Explorer, KeepsOnePlaceInOrder) {
    EXPECT_EQ(
        coherence(),
        (Outcomes{{0, 0, -1, -1}, {0, 1, -1, -1}, {0, 2, -1, -1}, {1, 1, -1, -1}, {1, 2, -1, -1}, {2, 2, -1, -1}}));
}

TEST(Explorer, LetsAChangeGoOnWithTheReleaseBeforeIt) {
    const Outcomes all = release_sequence();
    EXPECT_FALSE(all.contains({2, 0, -1, -1}));
    EXPECT_TRUE(all.contains({1, 0, -1, -1}));  // the other change came first
}

// A protocol, and which of the orders that it asks for this scenario could do without, with the reason.
struct Protocol {
    std::string name;
    std::function<Scenario()> make;
    std::map<Site, std::string> spare;
};

void PrintTo(const Protocol& protocol, std::ostream* out) {
    *out << protocol.name;
}

class Protocols : public ::testing::TestWithParam<Protocol> {};

TEST_P(Protocols, HasNoFaultInAnyExecution) {
    const Outcome outcome = explore(GetParam().make);
    EXPECT_EQ(outcome.fault, "");
    EXPECT_GT(outcome.executions, 10U);
    RecordProperty("executions", std::to_string(outcome.executions));
}

TEST_P(Protocols, FailsWhereAnyOrderIsWeakenedButForThoseThatItCanSpare) {
    const Outcome outcome = explore(GetParam().make);
    ASSERT_GE(outcome.sites.size(), 2U);
    for (const Site& site : outcome.sites) {
        const bool needed = !explore(GetParam().make, site).fault.empty();
        EXPECT_EQ(needed, !GetParam().spare.contains(site)) << "thread " << site.thread << ": " << site.what;
    }
    for (const auto& [site, reason] : GetParam().spare)
        EXPECT_TRUE(outcome.sites.contains(site)) << "thread " << site.thread << ": " << site.what << ": " << reason;
}

const std::string fenced = "a seq_cst fence of this thread is between what it orders";
const std::string not_written = "nobody writes the record meanwhile";
const std::string by_kernel = "the kernel's copies are relaxed loads, which later stores do not pass in this model";
const std::string by_stamp = "this rank's next stamp says the same";
const std::string nobody_gives_up = "no rank gives the operation up here";
// Each slot is read before its next contribution but one comes.
std::map<Site, std::string> nobody_runs_ahead(int ranks) {
    std::map<Site, std::string> spare;
    for (int rank = 0; rank < ranks; ++rank)
        spare[{rank, "small_begun store"}] = "all wait for all, so nobody looks at it";
    return spare;
}
const std::string counts_only = "what it would bring is not read here";

INSTANTIATE_TEST_SUITE_P(
    OfTheArena, Protocols,
    ::testing::Values(
        Protocol{"SleepingWithFences",
                 [] { return sleeping(false); },
                 {{{0, "sleeping store"}, fenced}, {{1, "rings change"}, fenced}}},
        Protocol{"SleepingWithMembarrier",
                 [] { return sleeping(true); },
                 {{{0, "fence 1"}, "membarrier(2) is one for its caller, too"},
                  {{0, "sleeping store"}, fenced},
                  {{1, "rings change"}, "the sleeper's membarrier is a fence of the other thread"}}},
        Protocol{"GivingUpFencesWhileOthersSleep",
                 sleeping_while_fences_are_given_up,
                 {{{0, "fence 1"}, "membarrier(2) is one for its caller, too"},
                  {{0, "sleeping store"}, fenced},
                  {{1, "fence 1"}, "this sleeper makes them for all from the start; others may not"},
                  {{1, "rings change"}, "the sleeper's membarrier is a fence of the other thread"},
                  {{2, "nobody_fences store"}, "a number by itself"},
                  {{2, "relying change"}, "a number by itself"}}},
        Protocol{"BytesInARing", bytes_in_ring, {{{1, "stamp of a message load"}, counts_only}}},
        Protocol{"TheEndOfAStream", end_of_stream, {{{1, "taken store"}, "the ring is not written again"}}},
        Protocol{"MessagesInARing", messages_in_ring, {{{1, "slots_taken store"}, "no slot is used again"}}},
        Protocol{"MoreMessagesThanSlots",
                 messages_all_round,
                 {{{1, "taken store"}, "no bytes in the ring"}, {{1, "written load"}, "no bytes in the ring"}}},
        Protocol{"WithdrawingAMessageAndWaiting",
                 [] { return withdrawing(true); },
                 {{{0, "withdrawn store"}, fenced},
                  {{1, "fence 2"}, "the owner waits"},
                  {{1, "reading_from store"}, fenced},
                  {{1, "withdrawn load"}, fenced}}},
        Protocol{"WithdrawingAMessageWithoutWaiting",
                 [] { return withdrawing(false); },
                 {{{0, "reading_from load"}, "the owner does not wait"},
                  {{0, "withdrawn store"}, fenced},
                  {{1, "fence 1"}, "the owner does not wait"},
                  {{1, "reading_from store"}, "the owner does not wait"},
                  {{1, "withdrawn load"}, fenced}}},
        Protocol{"StagingOfTwo",
                 [] { return staging(2); },
                 {{{0, "fingerprint of a record load"}, not_written},
                  {{0, "sequence of a record load"}, not_written},
                  {{0, "released load"}, by_stamp},
                  {{0, "released store"}, by_stamp},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "sequence of a record load"}, not_written},
                  {{1, "released load"}, by_stamp},
                  {{1, "released store"}, by_stamp}}},
        Protocol{"StagingOfThree",
                 [] { return staging(3); },
                 {{{0, "released store"}, "nothing is read from the others"},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "sequence of a record load"}, not_written},
                  {{2, "fingerprint of a record load"}, not_written},
                  {{2, "sequence of a record load"}, not_written}}},
        Protocol{"InPlaceOfTwo",
                 in_place,
                 {{{0, "fence 1"}, nobody_gives_up},
                  {{0, "fingerprint of a record load"}, not_written},
                  {{0, "released load"}, by_kernel},
                  {{0, "sequence of a record load"}, not_written},
                  {{0, "writing_to store"}, nobody_gives_up},
                  {{1, "fence 1"}, nobody_gives_up},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "released store"}, by_kernel},
                  {{1, "sequence of a record load"}, not_written}}},
        Protocol{"SignalsOfTwo",
                 signals,
                 {{{0, "fence 1"}, nobody_gives_up},
                  {{0, "fence 2"}, nobody_gives_up},
                  {{0, "fingerprint of a record load"}, not_written},
                  {{0, "sequence of a record load"}, not_written},
                  {{0, "writing_to store"}, nobody_gives_up},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "sequence of a record load"}, not_written}}},
        Protocol{"RevokingWhatIsRead",
                 [] { return revoking(false); },
                 {{{0, "fingerprint of a record load"}, not_written},
                  {{0, "released load"}, by_kernel},
                  {{0, "released store"}, "nothing is read from the other"},
                  {{0, "writing_to load"}, "nobody writes"},
                  {{0, "sequence of a record load"}, not_written},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "released load"}, "nothing is written into this rank's buffer"},
                  {{1, "released store"}, by_kernel},
                  {{1, "sequence of a record load"}, not_written}}},
        Protocol{"RevokingWhatIsWritten",
                 [] { return revoking(true); },
                 {{{0, "fingerprint of a record load"}, not_written},
                  {{0, "released store"}, "nothing is read from the other"},
                  {{0, "sequence of a record load"}, not_written},
                  {{1, "released load"}, "nothing is written into this rank's buffer"},
                  {{1, "fingerprint of a record load"}, not_written},
                  {{1, "sequence of a record load"}, not_written}}},
        Protocol{"SlotsInTurnOfTwo", [] { return in_slots(Collective::all_gather, 2, 4, 1); }, nobody_runs_ahead(2)},
        Protocol{"SlotsInTurnOfThree", [] { return in_slots(Collective::all_gather, 3, 3, 1); }, nobody_runs_ahead(3)},
        Protocol{"SlotsInTurnOfTwoWithMoreThanAHeadHolds", [] { return in_slots(Collective::all_gather, 2, 4, 16); },
                 nobody_runs_ahead(2)},
        Protocol{"SlotsWithBlocksOfTwo", [] { return in_slots(Collective::all_to_all, 2, 3, 0); },
                 nobody_runs_ahead(2)},
        Protocol{"SlotsAheadOfTwo",
                 [] { return in_slots(Collective::broadcast, 2, 4, 1); },
                 {{{0, "small_begun store"}, "nobody waits for the root's places"}}},
        Protocol{"SlotsAheadOfThree",
                 [] { return in_slots(Collective::broadcast, 3, 3, 1); },
                 {{{0, "small_begun store"}, "nobody waits for the root's places"}}},
        Protocol{"SlotsAheadOfARoot",
                 [] { return in_slots(Collective::gather, 2, 4, 16); },
                 {{{1, "small_begun store"}, "nobody waits for the places of one that reads nothing"}}},
        Protocol{"SlotsWithBlocksForARoot",
                 [] { return in_slots(Collective::gather_v, 2, 4, 0); },
                 {{{1, "small_begun store"}, "nobody waits for the places of one that reads nothing"}}},
        Protocol{"SlotsWithBlocksOfARoot",
                 [] { return in_slots(Collective::scatter_v, 2, 4, 0); },
                 {{{0, "small_begun store"}, "nobody waits for the root's places"}}},
        Protocol{"RecordsOfCollectives", records, {}}),
    [](const auto& protocol) { return protocol.param.name; });

}  // namespace
}  // namespace tutti::memory_model
