// The parts of a recorder by themselves.
#include "record/ring.hpp"
#include "record/splits.hpp"
#include "record/waits.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

Entry entry_of(const Ring& ring, Ticket ticket) {
    Entry entry;
    EXPECT_TRUE(ring.read(ticket, TickScale(), entry)) << ticket;
    return entry;
}

TEST(Ring, loses_a_record_when_4096_newer_ones_are_written) {
    Ring ring;
    EXPECT_EQ(ring.last(), 0U);
    for (std::uint64_t i = 1; i <= Ring::capacity; ++i)
        EXPECT_EQ(ring.write({.sequence = i, .peer = 3}, State::enqueued, ticks()), i);
    EXPECT_EQ(entry_of(ring, 1).sequence, 1U);
    EXPECT_EQ(entry_of(ring, 1).peer, 3);
    EXPECT_NE(ring.find(1), nullptr);
    ring.write({.sequence = 5000}, State::enqueued, ticks());
    EXPECT_EQ(ring.find(1), nullptr);
    Entry entry;
    EXPECT_FALSE(ring.read(1, TickScale(), entry));
    EXPECT_EQ(entry_of(ring, ring.last()).sequence, 5000U);
    EXPECT_EQ(ring.find(0), nullptr) << "it is the ticket of no record";
}

TEST(Ring, shows_a_brief_record_as_started_until_it_is_settled) {
    Ring ring;
    const Ticket ticket = ring.write_brief({.sequence = 1}, ticks());
    const Entry begun = entry_of(ring, ticket);
    EXPECT_EQ(begun.state, State::started);
    EXPECT_EQ(begun.started_ns, begun.enqueued_ns);
    ring.settle(ticket);
    EXPECT_EQ(entry_of(ring, ticket).state, State::completed);
    EXPECT_FALSE(ring.may_be_open(ticket));
}

TEST(Ring, keeps_a_prolonged_record_open_when_later_ones_are_settled) {
    Ring ring;
    const Ticket longer = ring.write_brief({.sequence = 1}, ticks());
    ring.prolong(longer);
    ring.settle(ring.write_brief({.sequence = 2}, ticks()));
    EXPECT_EQ(entry_of(ring, longer).state, State::started);
    EXPECT_TRUE(ring.may_be_open(longer));
}

TEST(Ring, keeps_the_tag_of_a_message_which_starts_at_once) {
    Ring ring;
    const Happening what{.peer = 1, .tag = 5, .kind = Kind::receive};
    const Entry brief = entry_of(ring, ring.write_brief(what, ticks()));
    ring.settle(ring.last());
    const Entry open = entry_of(ring, ring.write(what, State::started, ticks()));
    for (const Entry& entry : {brief, open}) {
        EXPECT_EQ(entry.tag, 5);
        EXPECT_EQ(entry.started_ns, entry.enqueued_ns);
        EXPECT_GT(entry.started_ns, 0);
    }
    EXPECT_EQ(entry_of(ring, ring.write({.kind = Kind::send}, State::started, ticks())).tag, -1);
    EXPECT_EQ(entry_of(ring, ring.write({.sequence = 1}, State::started, ticks())).tag, -1);
}

TEST(Splits, keep_the_latest_calls_that_fit_and_none_that_the_ring_has_lost) {
    Splits splits;
    const std::vector<std::uint64_t> many(std::size_t{1} << 17, 7), few{1, 2};
    for (const Ticket ticket : {1, 2, 3}) splits.note(ticket, many, many);
    const auto numbers = [&] {
        std::vector<Entry> entries(3 + Ring::capacity);
        for (std::size_t i = 0; i < entries.size(); ++i) entries[i].number = i + 1;
        splits.add_to(entries);
        std::vector<std::uint64_t> found;
        for (const Entry& entry : entries) {
            if (!entry.sent.empty()) found.push_back(entry.number);
        }
        return found;
    };
    EXPECT_EQ(numbers(), (std::vector<std::uint64_t>{2, 3}));
    splits.note(3 + Ring::capacity, few, few);
    EXPECT_EQ(numbers(), (std::vector<std::uint64_t>{3 + Ring::capacity}));
}

TEST(Waits, add_up_by_rank_and_remember_when_they_were_seen_last) {
    Waits waits(3);
    const std::uint64_t now = ticks();
    waits.note(2, 500ms, now + 1'000'000);
    waits.note(2, 250ms, now + 2'000'000);
    waits.note(1, 125ms, now + 500'000);
    const TickScale scale;
    const auto seen_since = [&](std::uint64_t after) { return waits.seen_since(scale.unix_ns(now + after), scale); };
    EXPECT_EQ(waits.seconds(), (std::vector<double>{0, 0.125, 0.75}));
    EXPECT_EQ(seen_since(499'000), (std::vector<int>{1, 2}));
    EXPECT_EQ(seen_since(1'999'000), std::vector<int>{2});
    EXPECT_TRUE(seen_since(2'000'000).empty());
}

}  // namespace
}  // namespace tutti::record
