// HCCL without a device of Huawei's: hccl.h's functions over tutti's library with NCCL's names. It refuses what HCCL
// refuses: types and operators that it does not reduce, a communicator that is made where no device is.
//   TUTTI_FAKE_HCCL_FAULT=init   communicators are refused with HCCL_E_NETWORK
//   TUTTI_FAKE_HCCL_FAULT=call   so are all_reduces, with HCCL_E_REMOTE
#include "cuda_calls.hpp"
#include "nccl_calls.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int e_para = 1, e_ptr = 2, e_internal = 4, e_not_support = 5, e_network = 19, e_remote = 21;
using RootInfo = fakes::LongId<4108>;

bool has_fault(std::string_view name) {
    const char* fault = std::getenv("TUTTI_FAKE_HCCL_FAULT");
    return fault != nullptr && fault == name;
}

int code(Result result) {
    switch (result) {
        case Result::success: return 0;
        case Result::invalid_argument: return e_para;
        case Result::remote_error: return e_remote;
        default: return e_internal;
    }
}

struct Known {
    int hccl;
    Type nccl;
    bool is_reduced;
};
constexpr Known types[] = {{0, tutti::nccl::int8, true},      {2, tutti::nccl::int32, true},
                           {3, tutti::nccl::float16, true},   {4, tutti::nccl::float32, true},
                           {5, tutti::nccl::int64, false},    {6, tutti::nccl::uint64, false},
                           {7, tutti::nccl::uint8, false},    {9, tutti::nccl::uint32, false},
                           {10, tutti::nccl::float64, false}, {11, tutti::nccl::bfloat16, true}};

template <class F>
int move(int type, F f) {
    for (const Known& known : types) {
        if (known.hccl == type) return code(f(known.nccl));
    }
    return e_para;
}
template <class F>
int reduce(int type, int op, F f) {
    if (op < 0 || op > 3) return e_not_support;
    for (const Known& known : types) {
        if (known.hccl == type) return known.is_reduced ? code(f(known.nccl)) : e_not_support;
    }
    return e_para;
}
Comm comm_of(void* comm) {
    return static_cast<Comm>(comm);
}

struct Item {
    int direction;
    void* data;
    std::uint64_t count;
    int type;
    std::uint32_t peer;
};

}  // namespace

FAKE_API int HcclGetRootInfo(void* info) {
    auto& root_info = *static_cast<RootInfo*>(info);
    const int result = code(ncclGetUniqueId(&root_info.id));
    root_info.fill();
    return result;
}
FAKE_API int HcclCommInitRootInfo(std::uint32_t ranks, const void* info, std::uint32_t rank, void** comm) {
    if (has_fault("init")) return e_network;
    if (fakes::current() < 0) return e_ptr;
    const auto& root_info = *static_cast<const RootInfo*>(info);
    if (!root_info.is_whole()) return e_para;
    return code(
        ncclCommInitRank(reinterpret_cast<Comm*>(comm), static_cast<int>(ranks), root_info.id, static_cast<int>(rank)));
}
FAKE_API int HcclCommDestroy(void* comm) {
    return code(ncclCommDestroy(comm_of(comm)));
}
FAKE_API int HcclGetCommAsyncError(void* comm, int* error) {
    Result now = Result::success;
    const Result result = ncclCommGetAsyncError(comm_of(comm), &now);
    *error = code(now);
    return code(result);
}
FAKE_API const char* HcclGetErrorString(int error) {
    switch (error) {
        case e_para: return "parameter error";
        case e_not_support: return "not support feature";
        case e_network: return "call network api fail";
        case e_remote: return "error cqe";
        default: return "internal error";
    }
}
FAKE_API int HcclAllReduce(void* in, void* out, std::uint64_t count, int type, int op, void* comm, void* stream) {
    if (has_fault("call")) return e_remote;
    return reduce(type, op, [&](Type t) { return ncclAllReduce(in, out, count, t, op, comm_of(comm), stream); });
}
FAKE_API int HcclBroadcast(void* data, std::uint64_t count, int type, std::uint32_t root, void* comm, void* stream) {
    return move(type, [&](Type t) {
        return ncclBroadcast(data, data, count, t, static_cast<int>(root), comm_of(comm), stream);
    });
}
FAKE_API int HcclReduce(void* in, void* out, std::uint64_t count, int type, int op, std::uint32_t root, void* comm,
                        void* stream) {
    return reduce(type, op, [&](Type t) {
        return ncclReduce(in, out, count, t, op, static_cast<int>(root), comm_of(comm), stream);
    });
}
FAKE_API int HcclAllGather(void* in, void* out, std::uint64_t block, int type, void* comm, void* stream) {
    return move(type, [&](Type t) { return ncclAllGather(in, out, block, t, comm_of(comm), stream); });
}
FAKE_API int HcclReduceScatter(void* in, void* out, std::uint64_t block, int type, int op, void* comm, void* stream) {
    return reduce(type, op, [&](Type t) { return ncclReduceScatter(in, out, block, t, op, comm_of(comm), stream); });
}
FAKE_API int HcclScatter(void* in, void* out, std::uint64_t block, int type, std::uint32_t root, void* comm,
                         void* stream) {
    return move(type,
                [&](Type t) { return ncclScatter(in, out, block, t, static_cast<int>(root), comm_of(comm), stream); });
}
FAKE_API int HcclSend(void* data, std::uint64_t count, int type, std::uint32_t peer, void* comm, void* stream) {
    return move(type, [&](Type t) { return ncclSend(data, count, t, static_cast<int>(peer), comm_of(comm), stream); });
}
FAKE_API int HcclRecv(void* data, std::uint64_t count, int type, std::uint32_t peer, void* comm, void* stream) {
    return move(type, [&](Type t) { return ncclRecv(data, count, t, static_cast<int>(peer), comm_of(comm), stream); });
}
FAKE_API int HcclBatchSendRecv(Item* items, std::uint32_t count, void* comm, void* stream) {
    int result = code(ncclGroupStart());
    for (std::uint32_t i = 0; i < count && result == 0; ++i) {
        const Item& item = items[i];
        const auto call = item.direction == 0 ? &HcclSend : &HcclRecv;
        result = call(item.data, item.count, item.type, item.peer, comm, stream);
    }
    const int ended = code(ncclGroupEnd());
    return result != 0 ? result : ended;
}
