// The part of UCC that the plug-in uses: its types, as in ucc.h and ucc_def.h of 1.8. They are the same from 1.2 on,
// but for fields at the end of CollArgs; the library copies as many bytes as its own version has, so ours have room to
// spare.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::nccl::ucc {

using Status = int;  // 0: done; positive: not yet; negative: an error
inline constexpr Status ok = 0, in_progress = 1, not_supported = -1, timed_out = -8, io_error = -9;

using Lib = struct LibTag*;
using LibConfig = struct LibConfigTag*;
using Context = struct ContextTag*;
using ContextConfig = struct ContextConfigTag*;
using Team = struct TeamTag*;
using ExecutionEngine = struct ExecutionEngineTag*;

struct Request {
    volatile Status status;
};

struct LibParams {
    std::uint64_t mask = 0;
    int thread_mode = 0;
    std::uint64_t coll_types = 0;
    std::uint64_t reduction_types = 0;
    int sync_type = 0;
    char later[64] = {};
};
inline constexpr std::uint64_t lib_has_thread_mode = 1;
inline constexpr int thread_multiple = 2;

/// The exchange of addresses: each rank gives `bytes` of `send`; `receive` gets those of all, by rank.
struct Oob {
    Status (*allgather)(void* send, void* receive, std::size_t bytes, void* info, void** request) = nullptr;
    Status (*req_test)(void* request) = nullptr;
    Status (*req_free)(void* request) = nullptr;
    void* info = nullptr;
    std::uint32_t ranks = 0;
    std::uint32_t rank = 0;
};

struct MemoryParams {
    void* segments = nullptr;
    std::uint64_t count = 0;
};

struct ContextParams {
    std::uint64_t mask = 0;
    int type = 0;
    int sync_type = 0;
    Oob oob;
    std::uint64_t id = 0;
    MemoryParams memory;
    char later[64] = {};
};
inline constexpr std::uint64_t context_has_oob = 1U << 2U;

struct TeamParams {
    std::uint64_t mask = 0;
    std::uint64_t flags = 0;
    int ordering = 0;
    std::uint64_t outstanding = 0;
    std::uint64_t rank = 0;
    std::uint64_t* ranks = nullptr;
    int rank_range = 0;
    std::uint64_t size = 0;
    int sync_type = 0;
    Oob oob;
    void* connections[5] = {};
    MemoryParams memory;
    struct {
        int type;
        std::uint64_t count;
        std::uint64_t map[2];
    } map = {};
    std::uint64_t id = 0;
    char later[64] = {};
};
inline constexpr std::uint64_t team_has_rank = 1U << 2U, team_has_rank_range = 1U << 4U, team_has_size = 1U << 5U,
                               team_has_oob = 1U << 7U;

enum class Collective : int {
    all_gather = 1 << 0,
    all_reduce = 1 << 2,
    broadcast = 1 << 6,
    reduce = 1 << 11,
    reduce_scatter = 1 << 12,
};

inline constexpr int host_memory = 0, cuda_memory = 1;

struct Buffer {
    void* data = nullptr;
    std::uint64_t count = 0;
    std::uint64_t type = 0;
    int memory = host_memory;
    std::uint64_t of_v_forms = 0;  // these have one field more
};

struct CollArgs {
    std::uint64_t mask = 0;
    Collective collective{};
    Buffer src, dst;
    int op = 0;
    std::uint64_t flags = 0;
    std::uint64_t root = 0;
    int error_type = 0;
    std::uint16_t tag = 0;
    void* work_buffer = nullptr;
    void (*callback)(void* data, Status status) = nullptr;
    void* callback_data = nullptr;
    double timeout = 0;
    struct {
        std::uint64_t start;
        std::int64_t stride;
        std::uint64_t size;
    } active_set = {};
    void* source_handle = nullptr;  // from 1.4 on
    void* destination_handle = nullptr;
    char later[256] = {};
};
inline constexpr std::uint64_t args_have_flags = 1, args_have_tag = 1U << 1U, args_have_active_set = 1U << 4U;
inline constexpr std::uint64_t flag_in_place = 1;

struct Event {
    int type = 0;
    void* context = nullptr;
    std::size_t context_bytes = 0;
    Request* request = nullptr;
};
inline constexpr int event_compute_complete = 1 << 2;

struct EngineParams {
    int type = 0;  // UCC_EE_CUDA_STREAM
    void* stream = nullptr;
    std::size_t bytes = sizeof(void*);
};

// Offsets of ucc.h on 64-bit machines.
static_assert(sizeof(Oob) == 40 && offsetof(ContextParams, id) == 56 && offsetof(TeamParams, oob) == 72);
static_assert(offsetof(TeamParams, memory) == 152 && offsetof(TeamParams, map) == 168 &&
              offsetof(TeamParams, id) == 200);
static_assert(sizeof(Buffer) == 40 && offsetof(CollArgs, dst) == 56 && offsetof(CollArgs, flags) == 104);
static_assert(offsetof(CollArgs, tag) == 124 && offsetof(CollArgs, work_buffer) == 128);
static_assert(offsetof(CollArgs, active_set) == 160 && offsetof(CollArgs, source_handle) == 184);

}  // namespace tutti::nccl::ucc
