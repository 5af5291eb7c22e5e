// Communicators of libtutti-nccl: how they are made from others, that do not block, and their ends.
#include "ranks.hpp"

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

int rank_of(ncclComm_t comm) {
    int rank = -1;
    good(ncclCommUserRank(comm, &rank));
    return rank;
}

ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < until) {
        good(ncclCommGetAsyncError(comm, &state));
        std::this_thread::sleep_for(1ms);
    }
    return state;
}

void under_way(ncclResult_t result) {
    EXPECT_TRUE(result == ncclInProgress || result == ncclSuccess) << ncclGetLastError(nullptr);
}

TEST(NcclCommunicators, are_split_by_color_in_the_order_of_keys) {
    on_ranks(4, [](const NcclRank& me) {
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, me.rank % 2, -me.rank, &part, nullptr));
        EXPECT_EQ(sum_of_ones(part), 2);
        EXPECT_EQ(rank_of(part), me.rank < 2 ? 1 : 0);
        EXPECT_EQ(sum_of_ones(me.comm), 4) << "the first goes on";
        good(ncclCommDestroy(part));
        good(ncclCommSplit(me.comm, me.rank == 3 ? NCCL_SPLIT_NOCOLOR : 7, 0, &part, nullptr));
        EXPECT_EQ(part == nullptr, me.rank == 3);
        if (part == nullptr) return;
        EXPECT_EQ(rank_of(part), me.rank);
        EXPECT_EQ(sum_of_ones(part), 3);
        good(ncclCommDestroy(part));
    });
}

TEST(NcclCommunicators, are_split_twice_in_one_group_in_the_order_of_the_calls) {
    on_ranks(3, [](const NcclRank& me) {
        for (int round = 0; round < 5; ++round) {
            ncclComm_t all = nullptr, alone = nullptr;
            good(ncclGroupStart());
            good(ncclCommSplit(me.comm, 0, -me.rank, &all, nullptr));
            good(ncclCommSplit(me.comm, me.rank, 0, &alone, nullptr));
            good(ncclGroupEnd());
            EXPECT_EQ(sum_of_ones(all), 3);
            EXPECT_EQ(sum_of_ones(alone), 1);
            EXPECT_EQ(rank_of(all), 2 - me.rank);
            good(ncclCommDestroy(all));
            good(ncclCommDestroy(alone));
        }
    });
}

TEST(NcclCommunicators, that_were_split_fail_alone) {
    on_ranks(2, [](const NcclRank& me) {
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, 0, me.rank, &part, nullptr));
        EXPECT_EQ(sum_of_ones(part), 2);
        EXPECT_EQ(sum_of_ones(me.comm), 2);
        good(ncclCommAbort(part));
        EXPECT_EQ(sum_of_ones(me.comm), 2);
    });
}

TEST(NcclCommunicators, are_split_in_a_group_by_one_thread) {
    Clique clique(3);
    std::vector<ncclComm_t> parts(3);
    good(ncclGroupStart());
    for (int rank = 0; rank < 3; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        good(ncclCommSplit(clique.comms[i], rank == 1 ? 1 : 0, 0, &parts[i], nullptr));
    }
    good(ncclGroupEnd());
    EXPECT_EQ(rank_of(parts[2]), 1);
    EXPECT_EQ(rank_of(parts[1]), 0);
    for (ncclComm_t part : parts) good(ncclCommDestroy(part));
}

TEST(NcclCommunicators, are_shrunk_to_those_that_stay) {
    on_ranks(3, [](const NcclRank& me) {
        int excluded = 1;
        if (me.rank != 1) {
            for (int again = 0; again < 2; ++again) {
                ncclComm_t rest = nullptr;
                good(ncclCommShrink(me.comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
                EXPECT_EQ(rank_of(rest), me.rank / 2);
                EXPECT_EQ(sum_of_ones(rest), 2);
                good(ncclCommDestroy(rest));
            }
        }
        EXPECT_EQ(sum_of_ones(me.comm), 3) << "the first goes on";
    });
}

TEST(NcclCommunicators, are_shrunk_after_one_of_them_has_gone_silent) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(3, [&](int rank) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitRank(&comm, 3, id, rank));
        if (rank == 2) return good(ncclCommAbort(comm));
        int value = 1;
        sentence(ncclRemoteError, ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr), comm);
        int excluded = 2;
        ncclComm_t rest = nullptr;
        good(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
        ASSERT_NE(rest, nullptr);
        EXPECT_EQ(sum_of_ones(rest), 2);
        good(ncclCommDestroy(rest));
        good(ncclCommAbort(comm));
    });
}

TEST(NcclCommunicators, that_were_revoked_can_be_split_and_nothing_else) {
    std::barrier done(2);
    on_ranks(2, [&](const NcclRank& me) {
        EXPECT_EQ(sum_of_ones(me.comm), 2);
        done.arrive_and_wait();  // or it ends the other rank's call
        good(ncclCommRevoke(me.comm, 0));
        int value = 1;
        const std::string said =
            sentence(ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, me.comm, nullptr));
        EXPECT_NE(said.find("was revoked"), std::string::npos) << said;
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, 0, 0, &part, nullptr));
        EXPECT_EQ(sum_of_ones(part), 2);
        good(ncclCommDestroy(part));
        sentence(ncclInvalidUsage, ncclCommFinalize(me.comm));
    });
}

// Two ranks become three; `gives`: which of the two give the id. Then the id is used.
void grow_by_one(const std::function<bool(int rank)>& gives) {
    ncclUniqueId id{}, more{};
    good(ncclGetUniqueId(&id));
    std::atomic<bool> ready{false};
    on_threads(3, [&](int rank) {
        ncclComm_t comm = nullptr, grown = nullptr, again = nullptr;
        if (rank < 2) good(ncclCommInitRank(&comm, 2, id, rank));
        if (rank == 1) {
            good(ncclCommGetUniqueId(comm, &more));
            ready = true;
        }
        while (!ready) std::this_thread::sleep_for(1ms);
        const ncclUniqueId* given = rank == 2 || gives(rank) ? &more : nullptr;
        good(ncclCommGrow(comm, 3, given, rank < 2 ? -1 : 2, &grown, nullptr));
        EXPECT_EQ(rank_of(grown), rank);
        EXPECT_EQ(sum_of_ones(grown), 3);
        const std::string said =
            sentence(ncclInvalidUsage, ncclCommGrow(comm, 3, given, rank < 2 ? -1 : 2, &again, nullptr));
        EXPECT_NE(said.find("came twice with one unique id"), std::string::npos) << said;
        EXPECT_EQ(sum_of_ones(grown), 3);
        good(ncclCommDestroy(grown));
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclCommunicators, grow_by_ranks_that_get_an_id_which_is_good_once) {
    grow_by_one([](int rank) { return rank == 1; });
}

TEST(NcclCommunicators, grow_also_where_every_rank_gives_the_id) {
    grow_by_one([](int) { return true; });
}

TEST(NcclCommunicators, grow_only_by_one_id) {
    on_ranks(2, [](const NcclRank& me) {
        ncclComm_t grown = nullptr;
        std::string said = sentence(ncclInvalidUsage, ncclCommGrow(me.comm, 3, nullptr, -1, &grown, nullptr));
        EXPECT_NE(said.find("no rank of the communicator gave a unique id"), std::string::npos) << said;
        ncclUniqueId own{};
        good(ncclCommGetUniqueId(me.comm, &own));
        said = sentence(ncclInvalidUsage, ncclCommGrow(me.comm, 3, &own, -1, &grown, nullptr));
        EXPECT_NE(said.find("gave different unique ids"), std::string::npos) << said;
        EXPECT_EQ(grown, nullptr);
        sentence(ncclInvalidArgument, ncclCommGrow(me.comm, 2, nullptr, -1, &grown, nullptr));
    });
}

TEST(NcclCommunicators, that_do_not_block_tell_when_they_are_done) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(2, [&](int rank) {
        ncclConfig_t config = initialised_config();
        config.blocking = 0;
        config.commName = "quiet";
        ncclComm_t comm = nullptr, part = nullptr;
        if (rank == 1) std::this_thread::sleep_for(100ms);
        under_way(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
        ASSERT_NE(comm, nullptr);
        if (rank == 0) {
            ncclResult_t state = ncclSuccess;
            good(ncclCommGetAsyncError(comm, &state));
            EXPECT_EQ(state, ncclInProgress);
            int count = 0;
            const std::string said = sentence(ncclInvalidArgument, ncclCommCount(comm, &count));
            EXPECT_NE(said.find("rank 0 of 2 in \"quiet\": the call before is still under way"), std::string::npos)
                << said;
        }
        EXPECT_EQ(settled(comm), ncclSuccess);
        int value = rank + 1;
        if (rank == 1) std::this_thread::sleep_for(100ms);
        under_way(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
        if (rank == 0) sentence(ncclInvalidArgument, ncclBcast(&value, 1, ncclInt32, 0, comm, nullptr));
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(value, 3);
        under_way(ncclCommSplit(comm, 0, 0, &part, nullptr));
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(settled(part), ncclSuccess);
        EXPECT_EQ(rank_of(part), rank);
        under_way(ncclCommFinalize(part));
        EXPECT_EQ(settled(part), ncclSuccess);
        good(ncclCommDestroy(part));
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclCommunicators, that_do_not_block_are_not_mixed_with_those_that_do) {
    Clique one(1);
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    ncclConfig_t config = initialised_config();
    config.blocking = 0;
    ncclComm_t quiet = nullptr;
    under_way(ncclCommInitRankConfig(&quiet, 1, id, 0, &config));
    EXPECT_EQ(settled(quiet), ncclSuccess);
    int value = 1;
    good(ncclGroupStart());
    good(ncclBcast(&value, 1, ncclInt32, 0, one.comms[0], nullptr));
    good(ncclBcast(&value, 1, ncclInt32, 0, quiet, nullptr));
    EXPECT_NE(sentence(ncclInvalidArgument, ncclGroupEnd()).find("only one of them blocks"), std::string::npos);
    good(ncclCommDestroy(quiet));
}

TEST(NcclCommunicators, are_aborted_while_they_are_made) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    ncclConfig_t config = initialised_config();
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    under_way(ncclCommInitRankConfig(&comm, 2, id, 1, &config));  // rank 0 never comes
    std::this_thread::sleep_for(50ms);
    const auto begin = std::chrono::steady_clock::now();
    good(ncclCommAbort(comm));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    ncclResult_t state = ncclSuccess;
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommGetAsyncError(comm, &state)).find("comm was aborted"),
              std::string::npos);
}

TEST(NcclCommunicators, that_are_aborted_end_the_calls_that_wait) {
    on_ranks(2, [](const NcclRank& me) {
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, 0, me.rank, &part, nullptr));
        if (me.rank == 0) {
            std::thread watchdog([&] {
                std::this_thread::sleep_for(100ms);
                good(ncclCommAbort(part));
            });
            int value = 1;
            const ncclResult_t result = ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, part, nullptr);
            EXPECT_NE(result, ncclSuccess);
            watchdog.join();
        } else {
            std::this_thread::sleep_for(500ms);
            good(ncclCommAbort(part));
        }
        EXPECT_EQ(sum_of_ones(me.comm), 2);
    });
}

TEST(NcclCommunicators, say_what_ranks_disagree_about_instead_of_hanging) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(2, [&](int rank) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitRank(&comm, 2, id, rank));
        std::vector<float> values(8);
        const std::string said = sentence(
            ncclInvalidUsage,
            ncclAllReduce(values.data(), values.data(), rank == 0 ? 8 : 4, ncclFloat32, ncclSum, comm, nullptr), comm);
        EXPECT_NE(said.find("8"), std::string::npos) << said;
        EXPECT_NE(said.find("4"), std::string::npos) << said;
        ncclResult_t state = ncclSuccess;
        good(ncclCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ncclInvalidUsage);
        EXPECT_STREQ(ncclGetLastError(comm), said.c_str());
        sentence(ncclInvalidUsage, ncclBcast(values.data(), 1, ncclFloat32, 0, comm, nullptr), comm);
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclCommunicators, need_an_id_each_and_each_rank_once) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(2, [&](int rank) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitRank(&comm, 2, id, rank));
        ncclComm_t second = nullptr;
        const std::string said = sentence(ncclInvalidUsage, ncclCommInitRank(&second, 2, id, rank));
        EXPECT_NE(said.find("came twice with one unique id"), std::string::npos) << said;
        EXPECT_EQ(second, nullptr);
        const std::string other = sentence(ncclInvalidArgument, ncclCommInitRank(&second, 3, id, 2));
        EXPECT_NE(other.find("rank 2 wants 3 ranks, and another one of the same unique id 2"), std::string::npos)
            << other;
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclCommunicators, of_several_ids_meet_at_the_first) {
    ncclUniqueId ids[2] = {};
    for (ncclUniqueId& id : ids) good(ncclGetUniqueId(&id));
    on_threads(3, [&](int rank) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitRankScalable(&comm, 3, rank, 2, ids, nullptr));
        EXPECT_EQ(sum_of_ones(comm), 3);
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclCommunicators, know_their_device_of_a_clique) {
    const int devices[3] = {4, 2, 7};
    ncclComm_t comms[3] = {};
    good(ncclCommInitAll(comms, 3, devices));
    for (int i = 0; i < 3; ++i) {
        int device = -1;
        good(ncclCommCuDevice(comms[i], &device));
        EXPECT_EQ(device, devices[i]);
        EXPECT_EQ(rank_of(comms[i]), i);
    }
    for (ncclComm_t comm : comms) good(ncclCommDestroy(comm));
    const int twice[2] = {1, 1};
    EXPECT_NE(sentence(ncclInvalidUsage, ncclCommInitAll(comms, 2, twice)).find("device 1 twice"), std::string::npos);
}

TEST(NcclCommunicators, are_finalized_before_they_go) {
    on_ranks(2, [](const NcclRank& me) {
        ncclComm_t part = nullptr;
        good(ncclCommSplit(me.comm, 0, me.rank, &part, nullptr));
        EXPECT_EQ(sum_of_ones(part), 2);
        good(ncclCommFinalize(part));
        int value = 1;
        EXPECT_NE(
            sentence(ncclInvalidArgument, ncclBcast(&value, 1, ncclInt32, 0, part, nullptr)).find("was finalized"),
            std::string::npos);
        good(ncclCommDestroy(part));
    });
}

std::size_t entries(const char* folder) {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(NcclCommunicators, hundreds_come_and_go_and_leave_nothing) {
    const auto run = [](int rounds) {
        for (int round = 0; round < rounds; ++round) {
            on_ranks(2, [](const NcclRank& me) { EXPECT_EQ(sum_of_ones(me.comm), 2); });
        }
    };
    run(5);
    const std::size_t files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    run(100);
    EXPECT_LT(entries("/proc/self/fd"), files + 40) << "a store is served a moment longer than its ranks are there";
    EXPECT_LT(entries("/proc/self/task"), threads + 10);
}

}  // namespace
}  // namespace tutti::test
