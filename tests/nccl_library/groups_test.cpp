// ncclGroupStart and ncclGroupEnd of libtutti-nccl: what a thread may collect, and what it is told.
#include "ranks.hpp"

#include <numeric>

namespace tutti::test {
namespace {

TEST(NcclGroups, let_one_thread_be_all_ranks) {
    Clique clique(4);
    std::vector<std::vector<float>> values;
    for (int rank = 0; rank < 4; ++rank) values.emplace_back(100, static_cast<float>(rank));
    good(ncclGroupStart());
    for (std::size_t i = 0; i < 4; ++i) {
        good(ncclAllReduce(values[i].data(), values[i].data(), 100, ncclFloat32, ncclSum, clique.comms[i], nullptr));
        EXPECT_EQ(values[i][0], static_cast<float>(i)) << "before the group's end";
    }
    good(ncclGroupEnd());
    for (const auto& one : values) EXPECT_EQ(one[99], 6);
}

TEST(NcclGroups, nest_and_do_their_work_at_the_outermost_end) {
    Clique clique(2);
    int values[2] = {1, 2};
    good(ncclGroupStart());
    good(ncclGroupStart());
    good(ncclAllReduce(&values[0], &values[0], 1, ncclInt32, ncclSum, clique.comms[0], nullptr));
    good(ncclGroupEnd());
    EXPECT_EQ(values[0], 1);
    good(ncclGroupStart());
    good(ncclAllReduce(&values[1], &values[1], 1, ncclInt32, ncclSum, clique.comms[1], nullptr));
    good(ncclGroupEnd());
    EXPECT_EQ(values[1], 2);
    good(ncclGroupEnd());
    EXPECT_EQ(values[0], 3);
    EXPECT_EQ(values[1], 3);
}

TEST(NcclGroups, mix_communicators_collectives_and_messages) {
    Clique all(3), pair(2);
    std::vector<int> gathered(9), sums{1, 2, 3}, firsts{10, 20, 30}, from_zero(3);
    int of_pair[2] = {5, 6};
    good(ncclGroupStart());
    for (int rank = 0; rank < 3; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        good(ncclAllGather(&firsts[i], &gathered[3 * i], 1, ncclInt32, all.comms[i], nullptr));
        good(ncclAllReduce(&sums[i], &sums[i], 1, ncclInt32, ncclSum, all.comms[i], nullptr));
        good(ncclRecv(&from_zero[i], 1, ncclInt32, 0, all.comms[i], nullptr));
        if (rank == 0) {
            for (int to = 0; to < 3; ++to)
                good(ncclSend(&firsts[static_cast<std::size_t>(to)], 1, ncclInt32, to, all.comms[0], nullptr));
        }
        if (rank < 2) good(ncclAllReduce(&of_pair[i], &of_pair[i], 1, ncclInt32, ncclMax, pair.comms[i], nullptr));
    }
    good(ncclGroupEnd());
    for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(gathered[i], firsts[i % 3]);
    for (const int one : sums) EXPECT_EQ(one, 6);
    EXPECT_EQ(from_zero, firsts);
    EXPECT_EQ(of_pair[0], 6);
    EXPECT_EQ(of_pair[1], 6);
}

TEST(NcclGroups, keep_the_order_of_messages_between_two_ranks) {
    on_ranks(2, [](const NcclRank& me) {
        std::vector<int> values(50);
        std::iota(values.begin(), values.end(), 0);
        std::vector<int> received(50, -1);
        good(ncclGroupStart());
        for (std::size_t i = 0; i < values.size(); ++i) {
            good(ncclSend(&values[i], 1, ncclInt32, 1 - me.rank, me.comm, nullptr));
            good(ncclRecv(&received[i], 1, ncclInt32, 1 - me.rank, me.comm, nullptr));
        }
        good(ncclGroupEnd());
        EXPECT_EQ(received, values);
    });
}

TEST(NcclGroups, make_all_ranks_of_one_process_from_one_id) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    std::vector<ncclComm_t> comms(3);
    good(ncclGroupStart());
    for (int rank = 0; rank < 3; ++rank) good(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 3, id, rank));
    good(ncclGroupEnd());
    for (int rank = 0; rank < 3; ++rank) {
        int count = 0, own = -1;
        good(ncclCommCount(comms[static_cast<std::size_t>(rank)], &count));
        good(ncclCommUserRank(comms[static_cast<std::size_t>(rank)], &own));
        EXPECT_EQ(count, 3);
        EXPECT_EQ(own, rank);
    }
    good(ncclGroupStart());
    for (ncclComm_t comm : comms) good(ncclCommDestroy(comm));
    good(ncclGroupEnd());
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommFinalize(comms[1])).find("destroyed (rank 1 of 3"),
              std::string::npos);
}

TEST(NcclGroups, without_a_beginning_or_with_a_wrong_call_say_so_at_their_end) {
    EXPECT_NE(sentence(ncclInvalidUsage, ncclGroupEnd()).find("ncclGroupStart"), std::string::npos);
    Clique clique(1);
    float value = 1;
    good(ncclGroupStart());
    good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
    sentence(ncclInvalidArgument, ncclBroadcast(&value, &value, 1, ncclFloat32, 7, clique.comms[0], nullptr));
    const std::string said = sentence(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_EQ(said, "ncclGroupEnd: ncclBroadcast: root is 7: expected 0 to 0");
    EXPECT_EQ(sentence(ncclInvalidUsage, ncclGroupEnd()).find("ncclGroupEnd: no group is open"), 0U) << "it is closed";
    good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
}

TEST(NcclGroups, that_fail_make_no_communicator) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    ncclComm_t first = nullptr, second = nullptr;
    good(ncclGroupStart());
    good(ncclCommInitRank(&first, 2, id, 0));
    sentence(ncclInvalidArgument, ncclCommInitRank(&second, 2, id, 2));
    EXPECT_NE(sentence(ncclInvalidArgument, ncclGroupEnd()).find("rank is 2: expected 0 to 1"), std::string::npos);
    EXPECT_EQ(first, nullptr);
    EXPECT_EQ(second, nullptr);
}

TEST(NcclGroups, need_a_receive_for_each_message_to_oneself) {
    Clique clique(1);
    int value = 4, got = 0;
    EXPECT_NE(sentence(ncclInvalidUsage, ncclSend(&value, 1, ncclInt32, 0, clique.comms[0], nullptr))
                  .find("sends 1 messages to itself in this group and receives 0"),
              std::string::npos);
    good(ncclGroupStart());
    good(ncclSend(&value, 1, ncclInt32, 0, clique.comms[0], nullptr));
    good(ncclRecv(&got, 1, ncclInt32, 0, clique.comms[0], nullptr));
    good(ncclGroupEnd());
    EXPECT_EQ(got, 4);
    good(ncclGroupStart());
    good(ncclSend(&value, 1, ncclInt32, 0, clique.comms[0], nullptr));
    good(ncclRecv(&got, 4, ncclInt8, 0, clique.comms[0], nullptr));
    EXPECT_NE(sentence(ncclInvalidUsage, ncclGroupEnd()).find("sends itself 1 elements of ncclInt32"),
              std::string::npos);
}

TEST(NcclGroups, belong_to_one_thread) {
    Clique clique(1);
    float value = 1;
    good(ncclGroupStart());
    good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
    std::thread([&] {
        const std::string said = sentence(
            ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
        EXPECT_NE(said.find("open group of another thread"), std::string::npos) << said;
        sentence(ncclInvalidUsage, ncclCommDestroy(clique.comms[0]));
        sentence(ncclInvalidUsage, ncclGroupEnd());
    }).join();
    good(ncclGroupEnd());
    std::thread([&] { good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr)); }).join();
}

TEST(NcclGroups, are_closed_when_their_thread_ends) {
    Clique clique(1);
    float value = 1;
    std::thread([&] {
        good(ncclGroupStart());
        good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
    }).join();
    good(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, clique.comms[0], nullptr));
}

TEST(NcclGroups, tell_what_they_would_take_without_doing_it) {
    Clique clique(2);
    std::vector<float> values(1 << 16, 1);
    ncclSimInfo_t info{sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, -1};
    good(ncclGroupStart());
    for (ncclComm_t comm : clique.comms)
        good(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm, nullptr));
    good(ncclGroupSimulateEnd(&info));
    EXPECT_GT(info.estimatedTime, 0);
    EXPECT_EQ(values[0], 1);
    info.magic = 0;
    good(ncclGroupStart());
    sentence(ncclInvalidArgument, ncclGroupSimulateEnd(&info));
    sentence(ncclInvalidUsage, ncclGroupSimulateEnd(nullptr));
}

}  // namespace
}  // namespace tutti::test
