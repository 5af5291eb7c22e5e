// Windows and signals of libtutti-nccl, and communicators that give their memory back for a while.
#include "ranks.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

ncclResult_t wait_signal(ncclComm_t comm, int peer, int count, ncclStream_t stream = nullptr) {
    ncclWaitSignalDesc_t signal{.opCnt = count, .peer = peer, .sigIdx = 0, .ctx = 0};
    return ncclWaitSignal(1, &signal, comm, stream);
}

ncclResult_t put(const std::vector<int>& values, int peer, ncclWindow_t window, std::size_t offset, ncclComm_t comm) {
    return ncclPutSignal(values.data(), values.size(), ncclInt32, peer, window, offset, 0, 0, 0, comm, nullptr);
}

// Two windows of a rank: where it puts from, and what others put into.
struct Windows {
    Windows(const NcclRank& rank, std::size_t out, std::size_t in) : me(rank), source(out), target(in) {
        good(ncclCommWindowRegister(me.comm, source.data(), out * sizeof(int), &from, NCCL_WIN_COLL_SYMMETRIC));
        good(ncclCommWindowRegister(me.comm, target.data(), in * sizeof(int), &to, NCCL_WIN_COLL_SYMMETRIC));
    }
    ~Windows() {
        good(ncclCommWindowDeregister(me.comm, from));
        good(ncclCommWindowDeregister(me.comm, to));
    }
    Windows(const Windows&) = delete;
    Windows& operator=(const Windows&) = delete;
    const NcclRank me;
    std::vector<int> source, target;
    ncclWindow_t from = nullptr, to = nullptr;
};

std::uint64_t statistic(ncclComm_t comm, ncclCommMemStat_t which) {
    std::uint64_t value = 0;
    good(ncclCommMemStats(comm, which, &value));
    return value;
}

TEST(NcclOneSided, puts_arrive_before_their_signals_in_every_size) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{1} << 20}) {
        on_ranks(3, [&](const NcclRank& me) {
            Windows mine(me, count, count * 3);
            std::iota(mine.source.begin(), mine.source.end(), me.rank * 1000);
            for (int peer = 0; peer < 3; ++peer) {  // also to itself
                const std::size_t offset = static_cast<std::size_t>(me.rank) * count * sizeof(int);
                good(put(mine.source, peer, mine.to, offset, me.comm));
            }
            ncclWaitSignalDesc_t all[3] = {{1, 2, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}};
            good(ncclWaitSignal(3, all, me.comm, nullptr));
            for (int rank = 0; rank < 3; ++rank) {
                const std::size_t at = static_cast<std::size_t>(rank) * count;
                EXPECT_EQ(mine.target[at], rank * 1000);
                EXPECT_EQ(mine.target[at + count - 1], rank * 1000 + static_cast<int>(count) - 1);
            }
            EXPECT_EQ(sum_of_ones(me.comm), 3);
        });
    }
}

// The target waits in no call of the library meanwhile.
TEST(NcclOneSided, puts_need_nothing_of_their_target) {
    std::atomic<bool> done{false};
    on_ranks(2, [&](const NcclRank& me) {
        Windows mine(me, 1 << 18, 1 << 18);
        if (me.rank == 0) {
            mine.source.back() = 7;
            for (int i = 0; i < 3; ++i) good(put(mine.source, 1, mine.to, 0, me.comm));
            done = true;
        } else {
            const auto until = std::chrono::steady_clock::now() + 60s;
            while (!done && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
            EXPECT_TRUE(done) << "a put waits for its target";
            good(wait_signal(me.comm, 0, 3));
            EXPECT_EQ(mine.target.back(), 7);
        }
        sum_of_ones(me.comm);
    });
}

TEST(NcclOneSided, signals_are_counted_by_rank_and_each_is_waited_for_once) {
    on_ranks(2, [](const NcclRank& me) {
        const int peer = 1 - me.rank;
        for (int round = 0; round < 20; ++round) {
            good(ncclSignal(peer, 0, 0, 0, me.comm, nullptr));
            good(ncclSignal(peer, 0, 0, 0, me.comm, nullptr));
            good(wait_signal(me.comm, peer, 1));
            good(wait_signal(me.comm, peer, 1));
        }
        good(ncclSignal(me.rank, 0, 0, 0, me.comm, nullptr));
        good(wait_signal(me.comm, me.rank, 1));
    });
}

TEST(NcclOneSided, operations_of_a_group_run_together) {
    Clique clique(2);
    std::vector<std::vector<int>> source(2, std::vector<int>(1000)), target(2, std::vector<int>(1000));
    std::vector<ncclWindow_t> from(2), to(2);
    good(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i) {
        source[i].assign(1000, static_cast<int>(i) + 1);
        good(ncclCommWindowRegister(clique.comms[i], source[i].data(), 4000, &from[i], 1));
        good(ncclCommWindowRegister(clique.comms[i], target[i].data(), 4000, &to[i], 1));
    }
    good(ncclGroupEnd());
    good(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i) {
        const int peer = 1 - static_cast<int>(i);
        good(put(source[i], peer, to[i], 0, clique.comms[i]));
        good(wait_signal(clique.comms[i], peer, 1));
    }
    good(ncclGroupEnd());
    EXPECT_EQ(target[0], std::vector<int>(1000, 2));
    EXPECT_EQ(target[1], std::vector<int>(1000, 1));
    void* memory = nullptr;
    good(ncclWinGetUserPtr(clique.comms[1], to[1], &memory));
    EXPECT_EQ(memory, target[1].data());
}

TEST(NcclOneSided, windows_may_differ_in_size_and_puts_beyond_their_end_are_refused) {
    on_ranks(2, [](const NcclRank& me) {
        const std::size_t own = me.rank == 0 ? 4 : 8;
        Windows mine(me, 8, own);
        if (me.rank == 1) {
            const std::string why = sentence(ncclInvalidArgument, put(mine.source, 0, mine.to, 0, me.comm));
            EXPECT_NE(why.find("peerWinOffset is 0 and 32 bytes are to be put: rank 0's window has 16 bytes"),
                      std::string::npos)
                << why;
        } else {
            good(put(mine.source, 1, mine.to, 0, me.comm));
            sentence(ncclInvalidArgument, put(mine.source, 1, mine.to, 4, me.comm));
            sentence(ncclInvalidArgument, put(mine.source, 1, mine.to, SIZE_MAX - 3, me.comm));
        }
        if (me.rank == 1) good(wait_signal(me.comm, 0, 1));
        sum_of_ones(me.comm);
    });
}

TEST(NcclOneSided, wrong_arguments_are_named) {
    on_ranks(1, [](const NcclRank& me) {
        Windows mine(me, 4, 4);
        int outside[4] = {};
        ncclWindow_t local = nullptr;
        const auto refused = [&](ncclResult_t result, const char* part) {
            const std::string why = sentence(ncclInvalidArgument, result);
            EXPECT_NE(why.find(part), std::string::npos) << why;
        };
        const auto from = [&](const void* data, ncclWindow_t window, int peer, int signal, int context,
                              unsigned flags) {
            return ncclPutSignal(data, 4, ncclInt32, peer, window, 0, signal, context, flags, me.comm, nullptr);
        };
        good(ncclCommWindowRegister(me.comm, outside, sizeof outside, &local, NCCL_WIN_DEFAULT));
        refused(from(outside, mine.to, 0, 0, 0, 0), "ncclPutSignal: localbuff, 16 bytes at ");
        refused(from(mine.source.data() + 1, mine.to, 0, 0, 0, 0), "localbuff, 16 bytes at ");
        refused(from(mine.source.data(), local, 0, 0, 0, 0), "without NCCL_WIN_COLL_SYMMETRIC");
        refused(from(mine.source.data(), nullptr, 0, 0, 0, 0), "peerWin is none that rank 0 of 1");
        refused(from(mine.source.data(), mine.to, 1, 0, 0, 0), "peer is 1: expected 0 to 0");
        refused(from(mine.source.data(), mine.to, 0, 1, 0, 0), "sigIdx is 1: expected 0");
        refused(from(mine.source.data(), mine.to, 0, 0, 2, 0), "ctx is 2: expected 0");
        refused(from(mine.source.data(), mine.to, 0, 0, 0, 3), "flags is 3: expected 0");
        refused(ncclSignal(-1, 0, 0, 0, me.comm, nullptr), "ncclSignal: peer is -1: expected 0 to 0");
        refused(ncclWaitSignal(0, nullptr, me.comm, nullptr), "signalDescs is NULL");
        ncclWaitSignalDesc_t signals[2] = {{1, 0, 0, 0}, {0, 0, 0, 0}};
        refused(ncclWaitSignal(0, signals, me.comm, nullptr), "nDesc is 0: expected at least 1");
        refused(ncclWaitSignal(2, signals, me.comm, nullptr), "signalDescs[1].opCnt is 0: expected at least 1");
        signals[1] = {1, 1, 0, 0};
        refused(ncclWaitSignal(2, signals, me.comm, nullptr), "signalDescs[1].peer is 1: expected 0 to 0");
        void* memory = nullptr;
        refused(ncclWinGetUserPtr(me.comm, nullptr, &memory), "ncclWinGetUserPtr: win is NULL");
        good(ncclCommWindowDeregister(me.comm, local));
        refused(ncclWinGetUserPtr(me.comm, local, &memory), "win is none that rank 0 of 1");
    });
}

TEST(NcclOneSided, a_put_into_a_window_that_is_gone_fails_on_both_sides) {
    on_ranks(2, [](const NcclRank& me) {
        std::vector<int> values(100000);
        ncclWindow_t window = nullptr;
        good(ncclCommWindowRegister(me.comm, values.data(), 400000, &window, NCCL_WIN_COLL_SYMMETRIC));
        if (me.rank == 1) good(ncclCommWindowDeregister(me.comm, window));
        EXPECT_EQ(sum_of_ones(me.comm), 2);  // the put comes behind that
        if (me.rank == 1) {
            const std::string why = sentence(ncclInvalidUsage, wait_signal(me.comm, 0, 1), me.comm);
            EXPECT_NE(why.find("rank 0 has put 400000 bytes to offset 0 of window #0"), std::string::npos) << why;
        } else {
            EXPECT_NE(put(values, 1, window, 0, me.comm), ncclSuccess);
        }
    });
}

TEST(NcclOneSided, an_abort_ends_a_wait) {
    on_ranks(2, [](const NcclRank& me) {
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, 0, me.rank, &part, nullptr));
        std::atomic<bool> begun{false};
        std::thread waiting([&] {
            begun = true;
            EXPECT_NE(wait_signal(part, 1 - me.rank, 1), ncclSuccess);
        });
        while (!begun) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(20ms);
        good(ncclCommAbort(part));
        waiting.join();
    });
}

TEST(NcclMemory, a_suspended_communicator_gives_its_memory_back_and_goes_on_when_it_is_resumed) {
    on_ranks(3, [](const NcclRank& me) {
        Windows mine(me, 10, 10);
        const std::uint64_t held = statistic(me.comm, ncclStatGpuMemSuspend);
        EXPECT_GT(held, 100000U) << "staging alone is more";
        EXPECT_EQ(statistic(me.comm, ncclStatGpuMemSuspended), 0U);
        EXPECT_EQ(statistic(me.comm, ncclStatGpuMemTotal), held + statistic(me.comm, ncclStatGpuMemPersist));
        for (int round = 0; round < 2; ++round) {
            const int peer = (me.rank + 1) % 3;
            mine.source.assign(10, round + 1);
            good(put(mine.source, peer, mine.to, 0, me.comm));  // waited for after the pause
            good(ncclCommSuspend(me.comm, NCCL_SUSPEND_MEM));
            EXPECT_EQ(statistic(me.comm, ncclStatGpuMemSuspended), 1U);
            EXPECT_EQ(statistic(me.comm, ncclStatGpuMemSuspend), held);
            int value = 1;
            const std::string why =
                sentence(ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, me.comm, nullptr));
            EXPECT_NE(why.find("is suspended: expected ncclCommResume first"), std::string::npos) << why;
            sentence(ncclInvalidUsage, ncclCommSuspend(me.comm, NCCL_SUSPEND_MEM));
            good(ncclCommResume(me.comm));
            EXPECT_EQ(statistic(me.comm, ncclStatGpuMemSuspended), 0U);
            EXPECT_EQ(sum_of_ones(me.comm), 3);
            good(wait_signal(me.comm, (me.rank + 2) % 3, 1));
            EXPECT_EQ(mine.target, std::vector<int>(10, round + 1));
            EXPECT_EQ(sum_of_ones(me.comm), 3);  // the next round's put comes behind that
        }
        sentence(ncclInvalidUsage, ncclCommResume(me.comm));
    });
}

TEST(NcclMemory, ranks_of_one_thread_are_suspended_in_a_group_and_may_be_destroyed_so) {
    Clique clique(2);
    good(ncclGroupStart());
    for (ncclComm_t comm : clique.comms) good(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    good(ncclGroupEnd());
    good(ncclGroupStart());
    for (ncclComm_t comm : clique.comms) good(ncclCommResume(comm));
    good(ncclGroupEnd());
    std::vector<int> values{1, 2};
    good(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i)
        good(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, clique.comms[i], nullptr));
    good(ncclGroupEnd());
    EXPECT_EQ(values, (std::vector<int>{3, 3}));
    good(ncclGroupStart());
    for (ncclComm_t comm : clique.comms) good(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    good(ncclGroupEnd());
}

TEST(NcclMemory, wrong_arguments_are_named) {
    on_ranks(1, [](const NcclRank& me) {
        EXPECT_NE(sentence(ncclInvalidArgument, ncclCommSuspend(me.comm, 6)).find("flags is 6"), std::string::npos);
        good(ncclCommSuspend(me.comm, 0));
        EXPECT_EQ(statistic(me.comm, ncclStatGpuMemSuspended), 0U) << "nothing was asked for";
        std::uint64_t value = 0;
        sentence(ncclInvalidArgument, ncclCommMemStats(me.comm, static_cast<ncclCommMemStat_t>(4), &value));
        sentence(ncclInvalidArgument, ncclCommMemStats(me.comm, ncclStatGpuMemTotal, nullptr));
        sentence(ncclInvalidArgument, ncclCommMemStats(nullptr, ncclStatGpuMemTotal, &value));
    });
}

}  // namespace
}  // namespace tutti::test
