// NCCL's functions as the plug-in calls them, for every vendor's library: NVIDIA's and AMD's have them by these names;
// adapters give those of other vendors this shape.
//
// Declared here, so that building needs no header of NCCL's. Source: NCCL's user guide, "NCCL API"; numbers and the
// layout of ncclConfig_t are those of its public header, stable since 2.18.
#pragma once

#include <tutti/store.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::nccl {

using Comm = struct CommTag*;
using ReduceOpHandle = int;

enum class Result : int {
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
    in_progress = 7,
};

/// Results of libraries with numbers of their own, positive or negative: foreign(4) is their 4, apart from NCCL's 4.
inline constexpr int foreign_base = 100'000;
constexpr Result foreign(int code) {
    return static_cast<Result>(foreign_base + code);
}
/// The number as the library counts.
constexpr int code_of(Result result) {
    const int number = static_cast<int>(result);
    return number > foreign_base / 2 ? number - foreign_base : number;
}

constexpr int float8_since = 22400;  // the version that has the types float8…

enum Type : int {
    int8 = 0,
    uint8 = 1,
    int32 = 2,
    uint32 = 3,
    int64 = 4,
    uint64 = 5,
    float16 = 6,
    float32 = 7,
    float64 = 8,
    bfloat16 = 9,
    float8e4m3 = 10,
    float8e5m2 = 11,
};

enum Op : int { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };  // then created ones

struct UniqueId {
    char bytes[128];
};

inline constexpr int undefined_int = INT32_MIN;  // the value of a field that NCCL decides

// The fields in their order; `size` says how many a library may read, `version` is the NCCL version that knows them.
struct Config {
    std::size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char* net_name;
    int split_share;        // up to here: 2.18
    int traffic_class;      // 2.26
    const char* comm_name;  // 2.27
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
    int n_channels_per_net_peer;  // 2.28
    int nvlink_centric_sched;
};

// Streams are the device's (driver.hpp); counts are elements.
struct Interface {
    using StreamHandle = void*;

    Result (*GetVersion)(int* version) = nullptr;
    Result (*GetUniqueId)(UniqueId* id) = nullptr;
    Result (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
    Result (*CommInitRankScalable)(Comm* comm, int ranks, int rank, int ids, UniqueId* id, Config* config) = nullptr;
    Result (*CommSplit)(Comm comm, int color, int key, Comm* part, Config* config) = nullptr;
    Result (*CommShrink)(Comm comm, int* excluded, int excluded_count, Comm* part, Config* config, int flags) = nullptr;
    Result (*CommRevoke)(Comm comm, int flags) = nullptr;
    Result (*CommFinalize)(Comm comm) = nullptr;
    Result (*CommDestroy)(Comm comm) = nullptr;
    Result (*CommAbort)(Comm comm) = nullptr;
    Result (*CommGetAsyncError)(Comm comm, Result* error) = nullptr;
    const char* (*GetErrorString)(Result result) = nullptr;
    const char* (*GetLastError)(Comm comm) = nullptr;

    Result (*AllReduce)(const void* in, void* out, std::size_t count, Type, ReduceOpHandle, Comm,
                        StreamHandle) = nullptr;
    Result (*Broadcast)(const void* in, void* out, std::size_t count, Type, int root, Comm, StreamHandle) = nullptr;
    Result (*Reduce)(const void* in, void* out, std::size_t count, Type, ReduceOpHandle, int root, Comm,
                     StreamHandle) = nullptr;
    Result (*AllGather)(const void* in, void* out, std::size_t block, Type, Comm, StreamHandle) = nullptr;
    Result (*ReduceScatter)(const void* in, void* out, std::size_t block, Type, ReduceOpHandle, Comm,
                            StreamHandle) = nullptr;
    Result (*Send)(const void* data, std::size_t count, Type, int peer, Comm, StreamHandle) = nullptr;
    Result (*Recv)(void* data, std::size_t count, Type, int peer, Comm, StreamHandle) = nullptr;
    Result (*GroupStart)() = nullptr;
    Result (*GroupEnd)() = nullptr;
    Result (*RedOpCreatePreMulSum)(ReduceOpHandle*, void* scalar, Type, int residence, Comm) = nullptr;
    Result (*RedOpDestroy)(ReduceOpHandle, Comm) = nullptr;

    // Instead of GetUniqueId and CommInitRankConfig, if ids are longer than NCCL's, or ranks meet in a store.
    std::size_t id_bytes = sizeof(UniqueId);
    Result (*GetLongId)(void* id) = nullptr;
    Result (*CommInitRankLongId)(Comm* comm, int ranks, const void* id, int rank, const Store& store) = nullptr;

    // From 2.28 on; null before.
    Result (*Gather)(const void* in, void* out, std::size_t block, Type, int root, Comm, StreamHandle) = nullptr;
    Result (*Scatter)(const void* in, void* out, std::size_t block, Type, int root, Comm, StreamHandle) = nullptr;
};

}  // namespace tutti::nccl
