// What libtutti-nccl refuses, and what it says then; the functions about the library itself.
#include "ranks.hpp"

#include <cstring>

namespace tutti::test {
namespace {

class NcclUsage : public testing::Test {
 protected:
    void SetUp() override { good(ncclCommInitAll(&comm, 1, nullptr)); }
    void TearDown() override { good(ncclCommDestroy(comm)); }
    ncclResult_t all_reduce(ncclDataType_t type, ncclRedOp_t op) {
        return ncclAllReduce(values, values, 4, type, op, comm, nullptr);
    }

    ncclComm_t comm = nullptr;
    float values[8] = {};
};

TEST_F(NcclUsage, names_a_wrong_argument_its_value_and_what_was_expected) {
    EXPECT_EQ(sentence(ncclInvalidArgument, all_reduce(static_cast<ncclDataType_t>(12), ncclSum)),
              "ncclAllReduce: datatype is 12: expected 0 (ncclInt8) to 11 (ncclFloat8e5m2)");
    EXPECT_NE(sentence(ncclInvalidArgument, all_reduce(ncclFloat32, static_cast<ncclRedOp_t>(9999)))
                  .find("op is 9999, which rank 0 of 1 in \"nccl\" does not know"),
              std::string::npos);
    EXPECT_NE(sentence(ncclInvalidArgument, all_reduce(ncclFloat32, static_cast<ncclRedOp_t>(-1))).find("op is -1"),
              std::string::npos);
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclBcast(values, 1, ncclFloat32, 1, comm, nullptr)),
              "ncclBroadcast: root is 1: expected 0 to 0");
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclSend(values, 1, ncclFloat32, -1, comm, nullptr)),
              "ncclSend: peer is -1: expected 0 to 0");
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclAllReduce(nullptr, values, 1, ncclFloat32, ncclSum, comm, nullptr)),
              "ncclAllReduce: sendbuff is NULL, and count 1");
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclRecv(nullptr, 1, ncclFloat32, 0, comm, nullptr)),
              "ncclRecv: recvbuff is NULL, and count 1");
    EXPECT_NE(sentence(ncclInvalidArgument, ncclAllGather(values, values, SIZE_MAX, ncclFloat32, comm, nullptr))
                  .find("count is 18446744073709551615: expected at most"),
              std::string::npos);
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclAllReduce(values, values + 1, 4, ncclFloat32, ncclSum, comm, nullptr)),
              "ncclAllReduce: sendbuff and recvbuff overlap: expected the same buffer, or buffers apart");
    good(all_reduce(ncclFloat32, ncclSum));
}

TEST_F(NcclUsage, refuses_buffers_that_overlap_otherwise_than_in_place) {
    Clique two(2);
    good(ncclGroupStart());
    EXPECT_NE(sentence(ncclInvalidArgument, ncclAllGather(values, values, 2, ncclFloat32, two.comms[1], nullptr))
                  .find("expected sendbuff at this rank's block of recvbuff"),
              std::string::npos);
    sentence(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_NE(sentence(ncclInvalidArgument, ncclAlltoAll(values, values, 2, ncclFloat32, two.comms[1], nullptr))
                  .find("expected buffers apart"),
              std::string::npos);
    EXPECT_NE(
        sentence(ncclInvalidArgument, ncclReduceScatter(values, values, 2, ncclFloat32, ncclSum, two.comms[1], nullptr))
            .find("expected recvbuff at this rank's block of sendbuff"),
        std::string::npos);
}

TEST_F(NcclUsage, tells_communicators_that_are_gone_or_never_were) {
    ncclComm_t gone = nullptr;
    good(ncclCommInitAll(&gone, 1, nullptr));
    good(ncclCommDestroy(gone));
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclBcast(values, 1, ncclFloat32, 0, gone, nullptr)),
              "ncclBroadcast: comm was destroyed (rank 0 of 1 in \"nccl\")");
    sentence(ncclInvalidArgument, ncclCommDestroy(gone));
    sentence(ncclInvalidArgument, ncclCommAbort(gone));
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclBcast(values, 1, ncclFloat32, 0, nullptr, nullptr)),
              "ncclBroadcast: comm is NULL");
    EXPECT_NE(sentence(ncclInvalidArgument,
                       ncclBcast(values, 1, ncclFloat32, 0, reinterpret_cast<ncclComm_t>(values), nullptr))
                  .find("which is no communicator"),
              std::string::npos);
    good(ncclCommDestroy(nullptr));
}

TEST_F(NcclUsage, checks_what_communicators_are_made_from) {
    ncclUniqueId id{}, wrong{};
    good(ncclGetUniqueId(&id));
    ncclComm_t made = nullptr;
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclCommInitRank(nullptr, 1, id, 0)), "ncclCommInitRank: comm is NULL");
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommInitRank(&made, 0, id, 0)).find("nranks is 0"), std::string::npos);
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommInitRank(&made, 2, id, 2)).find("rank is 2: expected 0 to 1"),
              std::string::npos);
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommInitRank(&made, 1, wrong, 0)).find("ncclGetUniqueId"),
              std::string::npos);
    ncclConfig_t config = initialised_config();
    config.blocking = 2;
    EXPECT_EQ(sentence(ncclInvalidArgument, ncclCommInitRankConfig(&made, 1, id, 0, &config)),
              "ncclCommInitRankConfig: config.blocking is 2: expected 0 to 1, or NCCL_CONFIG_UNDEF_INT");
    config = initialised_config();
    config.minCTAs = 8;
    config.maxCTAs = 4;
    sentence(ncclInvalidArgument, ncclCommInitRankConfig(&made, 1, id, 0, &config));
    config = {};
    EXPECT_NE(
        sentence(ncclInvalidArgument, ncclCommInitRankConfig(&made, 1, id, 0, &config)).find("NCCL_CONFIG_INITIALIZER"),
        std::string::npos);
    sentence(ncclInvalidArgument, ncclCommSplit(comm, -5, 0, &made, nullptr));
    int everyone = 0;
    sentence(ncclInvalidArgument, ncclCommShrink(comm, &everyone, 1, &made, nullptr, NCCL_SHRINK_DEFAULT));
    sentence(ncclInvalidArgument, ncclCommShrink(comm, &everyone, 1, &made, nullptr, 5));
    sentence(ncclInvalidArgument, ncclCommInitAll(&made, 0, nullptr));
    sentence(ncclInvalidArgument, ncclCommInitRankScalable(&made, 1, 0, 2, &id, nullptr));
}

// A program that was compiled with the header of 2.18 has a shorter structure.
TEST_F(NcclUsage, reads_a_shorter_configuration_only_as_far_as_it_goes) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    ncclConfig_t config = initialised_config();
    config.size = offsetof(ncclConfig_t, trafficClass);
    config.collnetEnable = 77;
    config.commName = reinterpret_cast<const char*>(1);
    ncclComm_t made = nullptr;
    good(ncclCommInitRankConfig(&made, 1, id, 0, &config));
    good(ncclCommDestroy(made));
    good(ncclGetUniqueId(&id));
    config = initialised_config();
    config.size = 24;  // NCCL 2.14's ends with `blocking`
    config.minCTAs = 5;
    config.maxCTAs = -1;
    good(ncclCommInitRankConfig(&made, 1, id, 0, &config));
    good(ncclCommDestroy(made));
}

TEST_F(NcclUsage, keeps_operators_to_their_communicator_and_type) {
    ncclComm_t other = nullptr;
    good(ncclCommInitAll(&other, 1, nullptr));
    ncclRedOp_t op = ncclSum;
    float factor = 3;
    good(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    EXPECT_NE(sentence(ncclInvalidArgument, all_reduce(ncclInt32, op)).find("op was made for ncclFloat32"),
              std::string::npos);
    sentence(ncclInvalidArgument, ncclAllReduce(values, values, 1, ncclFloat32, op, other, nullptr));
    sentence(ncclInvalidArgument, ncclRedOpDestroy(op, other));
    sentence(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, comm));
    good(ncclRedOpDestroy(op, comm));
    sentence(ncclInvalidArgument, ncclRedOpDestroy(op, comm));
    sentence(ncclInvalidArgument, all_reduce(ncclFloat32, op));
    sentence(ncclInvalidArgument, ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarDevice, comm));
    sentence(ncclInvalidArgument,
             ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, static_cast<ncclScalarResidence_t>(2), comm));
    good(ncclCommDestroy(other));
}

TEST_F(NcclUsage, gives_and_registers_memory) {
    void* memory = nullptr;
    good(ncclMemAlloc(&memory, 10000));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0U);
    std::memset(memory, 1, 10000);
    void* handle = nullptr;
    good(ncclCommRegister(comm, memory, 10000, &handle));
    good(ncclCommDeregister(comm, handle));
    EXPECT_NE(sentence(ncclInvalidArgument, ncclCommDeregister(comm, handle)).find("handle is none"),
              std::string::npos);
    ncclWindow_t window = nullptr;
    good(ncclCommWindowRegister(comm, memory, 10000, &window, 1));
    good(ncclCommWindowDeregister(comm, window));
    sentence(ncclInvalidArgument, ncclCommWindowDeregister(comm, window));
    sentence(ncclInvalidArgument, ncclCommRegister(comm, nullptr, 1, &handle));
    good(ncclMemFree(memory));
    sentence(ncclInvalidArgument, ncclMemFree(memory));
    sentence(ncclSystemError, ncclMemAlloc(&memory, SIZE_MAX / 2));
    sentence(ncclSystemError, ncclMemAlloc(&memory, SIZE_MAX));
    sentence(ncclInvalidArgument, ncclMemAlloc(nullptr, 1));
}

TEST(NcclLibrary, knows_its_version_and_its_errors) {
    int version = 0;
    good(ncclGetVersion(&version));
    EXPECT_EQ(version, NCCL_VERSION_CODE);
    sentence(ncclInvalidArgument, ncclGetVersion(nullptr));
    EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
    EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(99)), "unknown result code");
    EXPECT_EQ(tuttiNcclHostMemory(), 1);
    ncclResetDebugInit();
}

TEST(NcclLibrary, has_the_sentence_of_the_thread_that_failed_and_else_of_the_last_one) {
    sentence(ncclInvalidArgument, ncclGetVersion(nullptr));
    std::thread([] {
        EXPECT_STREQ(ncclGetLastError(nullptr), "ncclGetVersion: version is NULL");
        sentence(ncclInvalidArgument, ncclMemAlloc(nullptr, 1));
        EXPECT_STREQ(ncclGetLastError(nullptr), "ncclMemAlloc: ptr is NULL");
    }).join();
    EXPECT_STREQ(ncclGetLastError(nullptr), "ncclGetVersion: version is NULL");
}

}  // namespace
}  // namespace tutti::test
