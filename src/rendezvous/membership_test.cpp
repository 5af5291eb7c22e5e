// Lifelines between real processes: ranks that leave take nobody's lifeline with them, and news reach everyone.
#include "rendezvous/membership.hpp"

#include "core/unix_socket.hpp"

#include "support/forwarding_store.hpp"
#include "support/no_descriptors.hpp"
#include "support/patience.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;

/// An event that a rank heard, or caused.
struct Line {
    int rank = -1;
    VerdictKind kind = VerdictKind::left;
    int about = -1;
    char text[200] = {};
};

/// Ranks as processes. Each joins, and leaves when it is told to; the news that they hear come through a pipe.
class Ranks {
 public:
    using Act = std::function<void(Membership&, int rank)>;
    using Through = std::function<Store(Store, int rank)>;
    /// `then`: each rank's act once it has said that it has joined; `through`: the store by which it joins.
    explicit Ranks(
        int count, Act then = {}, Through through = [](Store store, int) { return store; })
        : count_(count), then_(std::move(then)), through_(std::move(through)) {
        int reports[2], ports[2];
        if (::pipe2(reports, O_CLOEXEC) != 0 || ::pipe2(ports, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
        for (int rank = 0; rank < count; ++rank) {
            int orders[2];
            if (::pipe2(orders, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
            const pid_t child = ::fork();
            if (child == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                ::close(orders[1]);
                live(rank, ports[0], orders[0], reports[1]);
                ::_exit(0);
            }
            ::close(orders[0]);
            pids_.push_back(child);
            orders_.push_back(orders[1]);
        }
        ::close(reports[1]);
        reports_ = reports[0];
        store_.emplace(TCPStoreOptions{.is_master = true});
        const std::uint16_t port = store_->port();
        for (int rank = 0; rank < count; ++rank) (void)!::write(ports[1], &port, sizeof port);
        ::close(ports[0]);
        ::close(ports[1]);
    }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;
    ~Ranks() {
        for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
        for (const int fd : orders_) ::close(fd);
        ::close(reports_);
    }

    void leave(int rank) { (void)!::write(orders_[static_cast<std::size_t>(rank)], "l", 1); }
    void kill(int rank) { ::kill(pids_[static_cast<std::size_t>(rank)], SIGKILL); }
    std::optional<Line> next(std::chrono::milliseconds limit = test::patience(10s)) {
        pollfd entry{reports_, POLLIN, 0};
        Line line;
        if (::poll(&entry, 1, static_cast<int>(limit.count())) != 1) return std::nullopt;
        if (::read(reports_, &line, sizeof line) != static_cast<ssize_t>(sizeof line)) return std::nullopt;
        return line;
    }
    /// Waits until `ranks` of them have said `text`.
    void expect_said(int ranks, const char* text) {
        for (int said = 0; said < ranks;) {
            const auto line = next();
            ASSERT_TRUE(line) << said << " of " << ranks << " said " << text;
            if (std::strcmp(line->text, text) == 0) ++said;
        }
    }
    /// Every rank of `who` is told that `victim` is lost, within two seconds, and of no other loss.
    void expect_lost(std::vector<int> who, int victim) {
        const Instant end = Clock::now() + test::patience(2s);
        while (!who.empty()) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
            const auto line = left > 0ms ? next(left) : std::nullopt;
            ASSERT_TRUE(line) << "not told: rank " << who.front();
            if (line->kind != VerdictKind::peer_lost) continue;
            EXPECT_EQ(line->about, victim) << line->text;
            EXPECT_NE(std::string(line->text).find("killed by SIGKILL"), std::string::npos) << line->text;
            std::erase(who, line->rank);
        }
    }

 private:
    void live(int rank, int ports, int orders, int reports) const {
        try {
            std::uint16_t port = 0;
            if (::read(ports, &port, sizeof port) != sizeof port) return;
            const auto say = [&](VerdictKind kind, int about, std::string_view text) {
                Line line{rank, kind, about, {}};
                text.copy(line.text, sizeof line.text - 1);
                (void)!::write(reports, &line, sizeof line);
            };
            std::optional<Membership> membership;
            membership.emplace(MembershipOptions{through_(TCPStore({.port = port}), rank),
                                                 rank,
                                                 count_,
                                                 Deadline::after(20s),
                                                 {},
                                                 [&](const Verdict& v) { say(v.kind, v.rank, v.text); }});
            say(VerdictKind::left, rank, "joined");
            if (then_) then_(*membership, rank);
            char order = 0;
            while (::read(orders, &order, 1) == 1) {
                const Instant start = Clock::now();
                membership.reset();
                say(VerdictKind::left, rank, "gone");
                if (Clock::now() - start > test::patience(900ms)) say(VerdictKind::aborted, rank, "leaving took long");
            }
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
            ::_exit(7);
        }
    }

    int count_;
    Act then_;
    Through through_;
    std::vector<pid_t> pids_;
    std::vector<int> orders_;
    int reports_ = -1;
    std::optional<TCPStore> store_;
};

// 0 ─ 1, 2, 4;  2 ─ 3;  4 ─ 5, 6;  6 ─ 7
TEST(Lifelines, move_when_an_interior_rank_leaves_and_later_deaths_below_it_are_known_to_all) {
    Ranks ranks(8);
    ranks.expect_said(8, "joined");
    ranks.leave(4);
    ranks.expect_said(1, "gone");
    ranks.kill(7);
    ranks.expect_lost({0, 1, 2, 3, 5, 6}, 7);
}

TEST(Lifelines, move_when_an_interior_rank_leaves_and_later_deaths_above_it_are_known_below) {
    Ranks ranks(8);
    ranks.expect_said(8, "joined");
    ranks.leave(6);
    ranks.leave(4);
    ranks.expect_said(2, "gone");
    ranks.kill(1);
    ranks.expect_lost({0, 2, 3, 5, 7}, 1);
}

TEST(Lifelines, move_when_the_first_rank_leaves) {
    Ranks ranks(8);
    ranks.expect_said(8, "joined");
    ranks.leave(0);
    ranks.expect_said(1, "gone");
    ranks.kill(5);
    ranks.expect_lost({1, 2, 3, 4, 6, 7}, 5);
}

TEST(Lifelines, hold_when_ranks_leave_one_after_the_other_from_the_lowest) {
    Ranks ranks(9);
    ranks.expect_said(9, "joined");
    for (int rank = 0; rank < 6; ++rank) {
        ranks.leave(rank);
        ranks.expect_said(1, "gone");
    }
    ranks.kill(6);
    ranks.expect_lost({7, 8}, 6);
}

TEST(Lifelines, hold_when_many_ranks_leave_at_once) {
    for (int round = 0; round < 5; ++round) {
        Ranks ranks(12);
        ranks.expect_said(12, "joined");
        for (const int rank : {0, 2, 4, 6, 8, 10}) ranks.leave(rank);
        ranks.expect_said(6, "gone");
        ranks.kill(9);
        ranks.expect_lost({1, 3, 5, 7, 11}, 9);
    }
}

TEST(Lifelines, a_death_while_an_ancestor_leaves_is_known_to_all) {
    for (int round = 0; round < 5; ++round) {
        Ranks ranks(8);
        ranks.expect_said(8, "joined");
        ranks.leave(4);
        std::this_thread::sleep_for(std::chrono::milliseconds(6 * round));  // around the moment when lifelines move
        ranks.kill(6);
        ranks.expect_lost({0, 1, 2, 3, 5, 7}, 6);
    }
}

TEST(Lifelines, let_all_ranks_leave_together_quickly_and_nobody_is_called_lost) {
    Ranks ranks(12);
    ranks.expect_said(12, "joined");
    for (int rank = 0; rank < 12; ++rank) ranks.leave(rank);
    for (int gone = 0; gone < 12;) {
        const auto line = ranks.next();
        ASSERT_TRUE(line);
        EXPECT_EQ(line->kind, VerdictKind::left) << line->rank << " about " << line->about << ": " << line->text;
        if (std::strcmp(line->text, "gone") == 0) ++gone;
    }
}

TEST(Lifelines, a_death_right_after_joining_is_known_to_all) {
    for (const int victim : {4, 7}) {  // in the middle, perhaps without its children yet, and a leaf
        Ranks ranks(8, [victim](Membership&, int rank) {
            if (rank == victim) ::raise(SIGKILL);
        });
        std::vector<int> others;
        for (int rank = 0; rank < 8; ++rank) {
            if (rank != victim) others.push_back(rank);
        }
        ranks.expect_lost(others, victim);
    }
}

// Dies when all the others have gone on, and before it has looked at one of their lifelines.
class LastDeed : public test::ForwardingStore {
 public:
    using ForwardingStore::ForwardingStore;
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        std::string stands = ForwardingStore::compare_set(key, expected, desired, timeout);
        std::this_thread::sleep_for(300ms);
        if (key == "group/world/outcome" && expected.empty()) ::raise(SIGKILL);
        return stands;
    }
};

TEST(Lifelines, the_death_of_a_rank_that_has_not_looked_at_any_is_known_to_all) {
    Ranks ranks(8, {}, [](const Store& store, int rank) {
        return rank == 0 ? Store(std::make_shared<LastDeed>(store.backend())) : store;
    });
    ranks.expect_said(7, "joined");
    ranks.expect_lost({1, 2, 3, 4, 5, 6, 7}, 0);
}

// Says at rank 0's local endpoint that it is `rank`, whose lifeline ends at once. Whether rank 0 believes it.
bool believed_at_the_endpoint_of_0(const Membership& membership, int rank) {
    const UniqueFd fd =
        net::connect_unix(membership.cards().front().local_endpoint, Deadline::after(test::patience(1s)), nullptr);
    const struct {
        std::uint64_t world;
        std::uint32_t lifeline = 1;
        std::int32_t rank;
        std::uint32_t attached = 64;
        std::int32_t from;
        std::uint32_t none[6] = {};
    } words{.world = membership.world_id(), .rank = rank, .from = rank};
    net::send_all(fd.get(), std::as_bytes(std::span(&words, 1)), Deadline::after(test::patience(1s)), nullptr, "test");
    net::wait_for(fd.get(), POLLIN, Deadline::after(test::patience(5s)), nullptr, "test");
    char answer[32];
    return ::recv(fd.get(), answer, sizeof answer, 0) == sizeof answer;
}

TEST(Lifelines, nobody_can_attach_one_for_another_process) {
    Ranks ranks(3, [](const Membership& membership, int rank) {
        if (rank == 2 &&
            (believed_at_the_endpoint_of_0(membership, 1) || !believed_at_the_endpoint_of_0(membership, 2)))
            throw std::runtime_error("rank 0 takes another's word");
    });
    for (int told = 0; told < 2;) {  // rank 2 closes the one that is its own
        const auto line = ranks.next();
        ASSERT_TRUE(line) << told << " of 2 ranks were told";
        if (line->kind != VerdictKind::peer_lost) continue;
        EXPECT_EQ(line->about, 2);
        EXPECT_NE(std::string(line->text).find("though its process lives"), std::string::npos) << line->text;
        ++told;
    }
}

TEST(Lifelines, carry_the_last_words_of_a_rank_that_dies_right_after_joining) {
    Ranks ranks(4, [](Membership& membership, int rank) {
        if (rank != 3) return;
        membership.flood({VerdictKind::aborted, 3, "enough"});
        ::raise(SIGKILL);  // flood has returned: the news are on their way
    });
    for (int told = 0; told < 3;) {
        const auto line = ranks.next(test::patience(2s));
        ASSERT_TRUE(line) << told << " of 3 ranks were told";
        if (line->kind == VerdictKind::aborted && std::strcmp(line->text, "enough") == 0) ++told;
    }
}

TEST(Lifelines, a_rank_that_leaves_at_once_does_not_keep_others_from_joining) {
    for (int round = 0; round < 10; ++round) {
        Ranks ranks(6);
        for (int rank = 0; rank < 6; rank += 2) ranks.leave(rank);  // as soon as they have joined
        ranks.expect_said(6, "joined");
    }
}

// Its parent has the news that lets it go without waiting for its children.
TEST(Lifelines, a_rank_that_comes_after_its_parent_left_is_told_by_another) {
    const HashStore store, own;  // of the late rank: the test carries over the keys that it is to see
    const auto join = [](const Store& where, int rank, std::function<void(const Verdict&)> hear) {
        return std::make_unique<Membership>(
            MembershipOptions{where, rank, 4, Deadline::after(test::patience(5s)), {}, std::move(hear)});
    };
    std::atomic<int> told{0};
    std::vector<std::unique_ptr<Membership>> ranks(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] {
            ranks[static_cast<std::size_t>(rank)] = join(rank < 3 ? store : own, rank, [&, rank](const Verdict& v) {
                if (rank == 3 && v.kind == VerdictKind::aborted && v.text == "enough") ++told;
            });
        });
    }
    const auto card = Store(own).get("group/world/card/3");
    Store(store).set("group/world/card/3", card);
    for (std::size_t rank = 0; rank < 3; ++rank) threads[rank].join();
    ranks[1]->flood({VerdictKind::aborted, 1, "enough"});
    ranks[2].reset();  // 3's parent
    Store(own).set("group/world/outcome", Store(store).get("group/world/outcome"));
    threads[3].join();
    ASSERT_TRUE(ranks[3]);
    for (const Instant end = Clock::now() + test::patience(5s); told == 0 && Clock::now() < end;)
        std::this_thread::sleep_for(5ms);
    EXPECT_EQ(told, 1);
}

TEST(Lifelines, a_rank_that_comes_after_its_only_parent_aborted_says_which_that_is) {
    const HashStore store, own;  // of the late rank: the test carries over the keys that it is to see
    const auto join = [](const Store& where, int rank) {
        return std::make_unique<Membership>(
            MembershipOptions{where, rank, 2, Deadline::after(test::patience(5s)), {}, [](const Verdict&) {}});
    };
    std::unique_ptr<Membership> first;
    std::thread joins_first([&] { first = join(store, 0); });
    std::string error;
    int peer = -1;
    std::thread joins_late([&] {
        try {
            join(own, 1);
        } catch (const DistNetworkError& e) {
            error = e.what();
            peer = e.context().peer;
        }
    });
    Store(store).set("group/world/card/1", Store(own).get("group/world/card/1"));
    joins_first.join();
    first->flood({VerdictKind::aborted, 0, "enough"});
    first.reset();
    Store(own).set("group/world/outcome", Store(store).get("group/world/outcome"));
    joins_late.join();
    EXPECT_NE(error.find("rank 1 cannot reach rank 0 (host "), std::string::npos) << error;
    EXPECT_NE(error.find("refused"), std::string::npos) << error;
    EXPECT_EQ(peer, 0);
}

TEST(Lifelines, hold_while_a_rank_has_no_descriptors_left) {
    Ranks ranks(3, [](const Membership& membership, int rank) {
        if (rank != 0) return;
        const UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(membership.cards().front().listen_port)};
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const test::NoDescriptorsLeft none(stranger.get());
        const int connected = ::connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        std::this_thread::sleep_for(100ms);
        if (connected != 0) throw std::runtime_error("connect");
    });
    ranks.expect_said(3, "joined");
    std::this_thread::sleep_for(300ms);
    ranks.kill(2);
    ranks.expect_lost({0, 1}, 2);
}

TEST(Lifelines, carry_news_that_nobody_is_the_cause_of) {
    const HashStore store;
    std::atomic<int> told{0};
    std::vector<std::unique_ptr<Membership>> ranks(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            ranks[static_cast<std::size_t>(rank)] = std::make_unique<Membership>(
                MembershipOptions{store, rank, 3, Deadline::after(test::patience(5s)), {}, [&](const Verdict& v) {
                                      if (v.kind == VerdictKind::left) return;  // in the end
                                      EXPECT_TRUE(v.kind == VerdictKind::timed_out && v.rank == -1) << v.text;
                                      ++told;
                                  }});
        });
    }
    for (auto& thread : threads) thread.join();
    ranks[1]->flood({VerdictKind::timed_out, -1, "too long"});
    for (const Instant end = Clock::now() + test::patience(5s); told < 2 && Clock::now() < end;)
        std::this_thread::sleep_for(1ms);
    EXPECT_EQ(told, 2);
    ranks.clear();
}

}  // namespace
}  // namespace tutti::rendezvous
