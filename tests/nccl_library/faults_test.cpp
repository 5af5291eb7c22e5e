// TUTTI_NCCL_FAULTS: each fault in a process of its own, as the library reads them when it is loaded.
#include "children.hpp"

#include <chrono>
#include <thread>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// Two ranks of one process.
struct Pair {
    explicit Pair(const Library& of) : library(of) {
        EXPECT_EQ(NCCL_CALL(library, ncclCommInitAll)(comms, 2, nullptr), ncclSuccess);
    }
    std::vector<ncclResult_t> all_reduce(const std::function<void(int)>& before = {}) {
        std::vector<ncclResult_t> results(2);
        on_threads(2, [&](int rank) {
            if (before) before(rank);
            int& value = values[rank];
            value = 1;
            results[static_cast<std::size_t>(rank)] =
                NCCL_CALL(library, ncclAllReduce)(&value, &value, 1, ncclInt32, ncclSum, comms[rank], nullptr);
        });
        return results;
    }
    ncclResult_t state(int rank) const {
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(NCCL_CALL(library, ncclCommGetAsyncError)(comms[rank], &state), ncclSuccess);
        return state;
    }
    void abort() {
        for (ncclComm_t comm : comms) EXPECT_EQ(NCCL_CALL(library, ncclCommAbort)(comm), ncclSuccess);
    }
    const Library& library;
    ncclComm_t comms[2] = {};
    int values[2] = {};
};

std::string last(const Library& library, ncclComm_t comm = nullptr) {
    return NCCL_CALL(library, ncclGetLastError)(comm);
}

TEST(NcclFaults, are_none_without_the_variable) {
    in_child({}, [](const Library& library) {
        Pair pair(library);
        for (int i = 0; i < 10; ++i) {
            for (const ncclResult_t result : pair.all_reduce()) EXPECT_EQ(result, ncclSuccess);
            EXPECT_EQ(pair.values[0], 2);
        }
        for (ncclComm_t comm : pair.comms) EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
    });
}

TEST(NcclFaults, give_one_rank_an_asynchronous_error_after_some_operations) {
    in_child({{"TUTTI_NCCL_FAULTS", "error=system_error after=2 rank=1"}}, [](const Library& library) {
        Pair pair(library);
        for (int i = 0; i < 2; ++i) {
            for (const ncclResult_t result : pair.all_reduce()) EXPECT_EQ(result, ncclSuccess);
        }
        EXPECT_EQ(pair.state(1), ncclSuccess);
        std::thread watchdog([&] {
            while (pair.state(1) == ncclSuccess) std::this_thread::sleep_for(1ms);
            EXPECT_NE(last(library, pair.comms[1])
                          .find("TUTTI_NCCL_FAULTS gives rank 1 of 2 in \"nccl\" the asynchronous error"),
                      std::string::npos);
            std::this_thread::sleep_for(50ms);
            EXPECT_EQ(NCCL_CALL(library, ncclCommAbort)(pair.comms[0]), ncclSuccess);
        });
        const std::vector<ncclResult_t> results = pair.all_reduce();
        watchdog.join();
        EXPECT_NE(results[0], ncclSuccess) << "it waited for rank 1 until it was aborted";
        EXPECT_EQ(results[1], ncclSystemError);
        EXPECT_EQ(NCCL_CALL(library, ncclBcast)(pair.values, 1, ncclInt32, 0, pair.comms[1], nullptr), ncclSystemError);
        EXPECT_EQ(NCCL_CALL(library, ncclCommAbort)(pair.comms[1]), ncclSuccess);
    });
}

TEST(NcclFaults, hold_an_operation_until_the_communicator_is_aborted) {
    in_child({{"TUTTI_NCCL_FAULTS", "hang=operation after=1"}}, [](const Library& library) {
        Pair pair(library);
        for (const ncclResult_t result : pair.all_reduce()) EXPECT_EQ(result, ncclSuccess);
        std::atomic<bool> ended{false};
        std::thread ranks([&] {
            for (const ncclResult_t result : pair.all_reduce()) EXPECT_EQ(result, ncclInvalidUsage);
            ended = true;
        });
        std::this_thread::sleep_for(200ms);
        EXPECT_FALSE(ended);
        EXPECT_EQ(pair.state(0), ncclSuccess) << "nothing tells a hang";
        pair.abort();
        ranks.join();
    });
}

TEST(NcclFaults, hold_a_rank_that_joins) {
    in_child({{"TUTTI_NCCL_FAULTS", "hang=init rank=0"}}, [](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
        ncclConfig_t config = initialised_config();
        config.blocking = 0;
        ncclComm_t comm = nullptr;
        EXPECT_EQ(NCCL_CALL(library, ncclCommInitRankConfig)(&comm, 1, id, 0, &config), ncclInProgress);
        std::this_thread::sleep_for(100ms);
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(NCCL_CALL(library, ncclCommGetAsyncError)(comm, &state), ncclSuccess);
        EXPECT_EQ(state, ncclInProgress);
        EXPECT_EQ(NCCL_CALL(library, ncclCommAbort)(comm), ncclSuccess);
    });
}

TEST(NcclFaults, change_the_version) {
    for (const char* text : {"version=2.17.1", "version=21701"}) {
        in_child({{"TUTTI_NCCL_FAULTS", text}}, [](const Library& library) {
            int version = 0;
            EXPECT_EQ(NCCL_CALL(library, ncclGetVersion)(&version), ncclSuccess);
            EXPECT_EQ(version, 21701);
        });
    }
}

TEST(NcclFaults, hide_functions_from_dlsym) {
    in_child({{"TUTTI_NCCL_FAULTS", "missing=ncclCommSplit; missing=ncclAlltoAll; missing=ncclNoSuchThing"}},
             [](const Library& library) {
                 EXPECT_EQ(library.find("ncclCommSplit"), nullptr);
                 EXPECT_EQ(library.find("pncclCommSplit"), nullptr);
                 EXPECT_EQ(library.find("ncclAlltoAll"), nullptr);
                 EXPECT_NE(library.find("ncclCommShrink"), nullptr);
                 Pair pair(library);
                 for (const ncclResult_t result : pair.all_reduce()) EXPECT_EQ(result, ncclSuccess);
                 pair.abort();
             });
}

TEST(NcclFaults, that_are_misspelt_are_named_where_a_communicator_is_to_be_made) {
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"eror=1", "eror=1: expected error=, hang=, version= or missing="},
        {"error=12", "error=12: expected a number from 1 to 6"},
        {"error=1 after=x", "after=x: expected a number up to"},
        {"hang=forever", "hang=forever: expected operation or init"},
        {"hang=init after=3", "after=3: hang=init has no such word"},
        {"version=2.17", "version=2.17: expected X.Y.Z"},
        {"version=2.28.1; nonsense", "\"nonsense\": expected WORD=VALUE"},
        {"missing=", "\"missing=\": expected WORD=VALUE"},
    };
    for (const auto& [text, said] : wrong) {
        in_child({{"TUTTI_NCCL_FAULTS", text}}, [&](const Library& library) {
            int version = 0;
            EXPECT_EQ(NCCL_CALL(library, ncclGetVersion)(&version), ncclInvalidArgument);
            ncclComm_t comm = nullptr;
            EXPECT_EQ(NCCL_CALL(library, ncclCommInitAll)(&comm, 1, nullptr), ncclInvalidArgument);
            EXPECT_NE(last(library).find("ncclCommInitAll: TUTTI_NCCL_FAULTS: " + said), std::string::npos)
                << last(library);
        });
    }
}

}  // namespace
}  // namespace tutti::test
