// Ranks of NCCL's interface as threads, for tests of libtutti-nccl.
#pragma once

#include "../../nccl/interface.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

struct NcclRank {
    ncclComm_t comm = nullptr;
    int rank = -1;
    int size = -1;
};

/// A call that must succeed; prints its sentence otherwise.
inline void good(ncclResult_t result) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
}

/// The sentence of a call that must fail with this code.
inline std::string sentence(ncclResult_t expected, ncclResult_t result, ncclComm_t comm = nullptr) {
    EXPECT_EQ(result, expected) << ncclGetLastError(comm);
    return ncclGetLastError(comm);
}

inline int sum_of_ones(ncclComm_t comm) {
    int value = 1;
    good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    return value;
}

inline ncclConfig_t initialised_config() {
    return {sizeof(ncclConfig_t),
            NCCL_API_MAGIC,
            NCCL_VERSION_CODE,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            nullptr,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            nullptr,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT,
            NCCL_CONFIG_UNDEF_INT};
}

inline void on_threads(int count, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
}

/// Each rank in a thread of its own, with a communicator of all.
inline void on_ranks(int size, const std::function<void(const NcclRank&)>& body) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(size, [&](int rank) {
        NcclRank mine{.rank = rank, .size = size};
        good(ncclCommInitRank(&mine.comm, size, id, rank));
        if (mine.comm == nullptr) return;
        body(mine);
        good(ncclCommDestroy(mine.comm));
    });
}

/// All ranks in this thread, as ncclCommInitAll makes them.
struct Clique {
    explicit Clique(int size) : comms(static_cast<std::size_t>(size)) {
        good(ncclCommInitAll(comms.data(), size, nullptr));
    }
    ~Clique() {
        for (ncclComm_t comm : comms) good(ncclCommDestroy(comm));
    }
    Clique(const Clique&) = delete;
    Clique& operator=(const Clique&) = delete;
    int size() const { return static_cast<int>(comms.size()); }
    std::vector<ncclComm_t> comms;
};

}  // namespace tutti::test
