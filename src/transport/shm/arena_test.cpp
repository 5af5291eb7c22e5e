// Sleeping and waking over the shared memory of a host.
#include "transport/shm/arena.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tutti::transport {
namespace {

std::shared_ptr<Arena> arena_with_bells(bool sleeps_often) {
    ArenaLayout layout;
    layout.ranks = 2;
    auto arena = Arena::create_private(layout);
    for (int rank = 0; rank < layout.ranks; ++rank) Arena::choose_fences(arena, sleeps_often);
    std::vector<UniqueFd> bells;
    for (int rank = 0; rank < layout.ranks; ++rank) bells.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    arena->hang_bells(std::move(bells));
    return arena;
}

// Two ranks take turns; each sleeps in poll(2) until it is its turn. A ring that is lost leaves a poll without an
// event.
void take_turns(bool sleeps_often) {
    const auto arena = arena_with_bells(sleeps_often);
    constexpr int turns = 2000;
    std::atomic<int> turn{0};
    std::atomic<bool> lost{false};
    const auto play = [&](int rank) {
        while (turn.load() < turns && !lost) {
            const auto ready = [&] { return turn.load() % 2 == rank || turn.load() >= turns; };
            arena->sleep_by_bell(rank, ready, [&](int bell) {
                pollfd entry{bell, POLLIN, 0};
                if (::poll(&entry, 1, 20'000) != 1) lost = true;
            });
            if (!ready()) continue;  // a ring for the turn before
            if (turn.load() >= turns) break;
            ++turn;
            arena->ring_doorbell(1 - rank);
        }
        arena->ring_doorbell(1 - rank);
    };
    std::thread other([&] { play(1); });
    play(0);
    other.join();
    EXPECT_FALSE(lost);
    EXPECT_EQ(turn.load(), turns);
}

TEST(Bell, wakes_a_rank_that_sleeps_in_poll) {
    take_turns(true);
}

TEST(Bell, wakes_it_also_where_the_sleeper_makes_the_fence) {
    take_turns(false);
}

TEST(Bell, does_not_go_on_ringing) {
    const auto arena = arena_with_bells(true);
    arena->sleep_by_bell(
        0, [] { return false; }, [&](int) { arena->ring_doorbell(0); });
    int events = -1;
    arena->sleep_by_bell(
        0, [] { return false; },
        [&](int bell) {
            pollfd entry{bell, POLLIN, 0};
            events = ::poll(&entry, 1, 0);
        });
    EXPECT_EQ(events, 0);
}

// Of four publications of one of two ranks the last two lie where the other's first two lay; of more ranks, each keeps
// its own. No two of the publications that may be wanted at the same time share a slot.
TEST(Arena, gives_the_slots_of_two_ranks_in_turn) {
    for (const int ranks : {1, 2, 3}) {
        ArenaLayout layout;
        layout.ranks = ranks;
        const auto arena = Arena::create_private(layout);
        for (std::uint64_t publication = 0; publication < 3 * layout.slots; ++publication) {
            for (int rank = 0; rank < ranks; ++rank) {
                const std::byte* const slot = arena->slot(rank, publication);
                const bool asks = publication % 4 < 2;
                if (ranks == 2) {
                    EXPECT_EQ(arena->slot(1 - rank, asks ? publication + 2 : publication - 2), slot);
                }
                for (std::uint64_t later = publication + 1; later < publication + layout.slots; ++later)
                    EXPECT_NE(arena->slot(rank, later), slot) << ranks << " " << publication << " " << later;
                EXPECT_EQ(arena->slot(rank, publication + (ranks == 2 ? 4 : 1) * layout.slots), slot);
                for (int other = 0; other < ranks; ++other) {
                    if (other != rank) {
                        EXPECT_NE(arena->slot(other, publication), slot);
                    }
                }
            }
        }
    }
}

// An arena that one process creates, another finds by all of its description, and by nothing less.
TEST(Arena, is_found_in_another_process_by_its_descriptor_and_identity) {
    ArenaLayout layout;
    layout.ranks = 3;
    const auto arena = Arena::create_shared(layout);
    arena->control(0).identity = 4711;
    const pid_t creator = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        const auto found = Arena::find(creator, arena->descriptor(), 4711, layout);
        ArenaLayout other = layout;
        other.ranks = 2;
        const bool only_it = !Arena::find(creator, arena->descriptor(), 4712, layout) &&
                             !Arena::find(creator, arena->descriptor(), 4711, other) &&
                             !Arena::find(creator, 0, 4711, layout) && !Arena::find(creator, -1, 4711, layout);
        if (!found || !only_it) ::_exit(1);
        found->slot(1, 0)[5] = std::byte{42};
        found->say_attached(1, RankControl::Attached::only);
        ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(arena->slot(1, 0)[5], std::byte{42});
    arena->say_attached(0, RankControl::Attached::and_reads);
    EXPECT_FALSE(arena->wait_until_attached(std::chrono::milliseconds(10)));  // another is expected
    EXPECT_EQ(arena->control(1).attached.load(), RankControl::Attached::only);
    std::thread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        arena->say_attached(2, RankControl::Attached::and_reads);
    });
    EXPECT_TRUE(arena->wait_until_attached(std::chrono::seconds(20)));
    late.join();
}

}  // namespace
}  // namespace tutti::transport
