// The backend "hccl": Huawei's library, made to look like NCCL, on AscendCL's streams.
//
// Signatures and numbers: hccl.h and hccl_types.h of CANN 8.1 to 9.1, which differ in fields that this file does not
// use.
// Missing features and their replacements: non-blocking communicators (adapted.hpp); averages, and factors before sums
// (composed by the plug-in); groups of calls: sends and receives of a group become one HcclBatchSendRecv, other calls
// are put into the stream at once; a broadcast from one buffer to another, which is a copy and a broadcast.
#include "nccl/adapted.hpp"
#include "nccl/plug_in.hpp"
#include "nccl/vendors.hpp"

#include <cstdint>
#include <vector>

namespace tutti::nccl {
namespace {

using StreamHandle = void*;
constexpr std::size_t root_info_bytes = 4108;  // HCCL_ROOT_INFO_BYTES

enum class Direction : int { send = 0, receive = 1 };

struct SendRecvItem {
    Direction direction;
    void* data;
    std::uint64_t count;
    int type;
    std::uint32_t peer;
};

struct HcclFunctions {
    int (*GetRootInfo)(void* root_info);
    int (*CommInitRootInfo)(std::uint32_t ranks, const void* root_info, std::uint32_t rank, void** comm);
    int (*CommDestroy)(void* comm);
    int (*GetCommAsyncError)(void* comm, int* error);
    const char* (*GetErrorString)(int code);
    int (*AllReduce)(void* in, void* out, std::uint64_t count, int type, int op, void* comm, StreamHandle);
    int (*Broadcast)(void* data, std::uint64_t count, int type, std::uint32_t root, void* comm, StreamHandle);
    int (*Reduce)(void* in, void* out, std::uint64_t count, int type, int op, std::uint32_t root, void* comm,
                  StreamHandle);
    int (*AllGather)(void* in, void* out, std::uint64_t block, int type, void* comm, StreamHandle);
    int (*ReduceScatter)(void* in, void* out, std::uint64_t block, int type, int op, void* comm, StreamHandle);
    int (*Scatter)(void* in, void* out, std::uint64_t block, int type, std::uint32_t root, void* comm, StreamHandle);
    int (*Send)(void* data, std::uint64_t count, int type, std::uint32_t peer, void* comm, StreamHandle);
    int (*Recv)(void* data, std::uint64_t count, int type, std::uint32_t peer, void* comm, StreamHandle);
    int (*BatchSendRecv)(SendRecvItem* items, std::uint32_t count, void* comm, StreamHandle);
};
HcclFunctions hccl{};

Result result_of(int code) {
    return code == 0 ? Result::success : foreign(code);
}

// NCCL's numbers in HCCL's; -1: it has no such type.
int type_of(Type type) {
    switch (type) {
        case int8: return 0;
        case int32: return 2;
        case float16: return 3;
        case float32: return 4;
        case int64: return 5;
        case uint64: return 6;
        case uint8: return 7;
        case uint32: return 9;
        case float64: return 10;
        case bfloat16: return 11;
        default: return -1;
    }
}

// sum, prod, max, min have NCCL's numbers.
bool is_known(ReduceOpHandle op) {
    return op >= sum && op <= min;
}

void* writable(const void* memory) {
    return const_cast<void*>(memory);
}

// The common part of every call.
template <class F>
Result call(Comm comm, std::size_t count, Type type, F f) {
    if (count == 0) return Result::success;  // on all ranks
    void* own = Adapted::own(comm);
    const int number = type_of(type);
    if (own == nullptr) return Result::invalid_usage;
    if (number < 0) return Result::invalid_argument;
    return result_of(f(own, number));
}

Result get_version(int* version) {
    *version = 1;  // HCCL does not report one
    return Result::success;
}
Result get_id(void* id) {
    return result_of(hccl.GetRootInfo(id));
}
Result init_rank(Comm* comm, int ranks, const void* id, int rank, const Store&) {
    const std::vector<char> root_info(static_cast<const char*>(id), static_cast<const char*>(id) + root_info_bytes);
    const int device = open_acl_driver()->current();
    return Adapted::start(
        comm,
        [=](void** own, const std::atomic<bool>&) {
            if (device >= 0) (void)open_acl_driver()->use(device);
            return hccl.CommInitRootInfo(static_cast<std::uint32_t>(ranks), root_info.data(),
                                         static_cast<std::uint32_t>(rank), own);
        },
        [](void* own) { return hccl.CommDestroy(own); });
}
Result get_async_error(Comm comm, Result* error) {
    *error = Adapted::state(comm);
    if (*error != Result::success) return Result::success;
    int code = 0;
    const int answer = hccl.GetCommAsyncError(Adapted::own(comm), &code);
    *error = result_of(code);
    return result_of(answer);
}
const char* error_string(Result result) {
    const char* own = Adapted::text(result);
    return own != nullptr ? own : hccl.GetErrorString(code_of(result));
}
const char* last_error(Comm) {
    return "";  // it has none
}

Result all_reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, Comm comm,
                  StreamHandle stream) {
    if (!is_known(op)) return Result::invalid_argument;
    return call(comm, count, type,
                [&](void* own, int t) { return hccl.AllReduce(writable(in), out, count, t, op, own, stream); });
}
Result broadcast(const void* in, void* out, std::size_t count, Type type, int root, Comm comm, StreamHandle stream) {
    return call(comm, count, type, [&](void* own, int t) {
        if (in != nullptr && in != out) open_acl_driver()->copy(out, in, count * size_of(type), stream);
        return hccl.Broadcast(out, count, t, static_cast<std::uint32_t>(root), own, stream);
    });
}
Result reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, int root, Comm comm,
              StreamHandle stream) {
    if (!is_known(op)) return Result::invalid_argument;
    return call(comm, count, type, [&](void* own, int t) {
        return hccl.Reduce(writable(in), out, count, t, op, static_cast<std::uint32_t>(root), own, stream);
    });
}
Result all_gather(const void* in, void* out, std::size_t block, Type type, Comm comm, StreamHandle stream) {
    return call(comm, block, type,
                [&](void* own, int t) { return hccl.AllGather(writable(in), out, block, t, own, stream); });
}
Result reduce_scatter(const void* in, void* out, std::size_t block, Type type, ReduceOpHandle op, Comm comm,
                      StreamHandle stream) {
    if (!is_known(op)) return Result::invalid_argument;
    return call(comm, block, type,
                [&](void* own, int t) { return hccl.ReduceScatter(writable(in), out, block, t, op, own, stream); });
}
Result scatter(const void* in, void* out, std::size_t block, Type type, int root, Comm comm, StreamHandle stream) {
    return call(comm, block, type, [&](void* own, int t) {
        return hccl.Scatter(writable(in), out, block, t, static_cast<std::uint32_t>(root), own, stream);
    });
}

// A thread's group of calls.
struct Batch {
    void* comm;
    StreamHandle stream;
    std::vector<SendRecvItem> items;
};
thread_local int group_depth = 0;
thread_local std::vector<Batch> batches;

void put_into_group(void* comm, StreamHandle stream, const SendRecvItem& item) {
    for (Batch& batch : batches) {
        if (batch.comm == comm && batch.stream == stream) return batch.items.push_back(item);
    }
    batches.push_back({comm, stream, {item}});
}
template <class Function>
Result message(Function function, Direction direction, void* data, std::size_t count, Type type, int peer, Comm comm,
               StreamHandle stream) {
    return call(comm, count, type, [&](void* own, int t) {
        const auto other = static_cast<std::uint32_t>(peer);
        if (group_depth == 0) return function(data, count, t, other, own, stream);
        put_into_group(own, stream, {direction, data, count, t, other});
        return 0;
    });
}
Result send(const void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return message(hccl.Send, Direction::send, writable(data), count, type, peer, comm, stream);
}
Result receive(void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return message(hccl.Recv, Direction::receive, data, count, type, peer, comm, stream);
}
Result group_start() {
    ++group_depth;
    return Result::success;
}
Result group_end() {
    if (group_depth == 0) return Result::invalid_usage;
    if (--group_depth > 0) return Result::success;
    std::vector<Batch> whole;
    whole.swap(batches);
    for (Batch& batch : whole) {
        const int code = hccl.BatchSendRecv(batch.items.data(), static_cast<std::uint32_t>(batch.items.size()),
                                            batch.comm, batch.stream);
        if (code != 0) return foreign(code);
    }
    return Result::success;
}

void resolve(Symbols& symbols, Interface& calls) {
    symbols.need(hccl.GetRootInfo, "HcclGetRootInfo");
    symbols.need(hccl.CommInitRootInfo, "HcclCommInitRootInfo");
    symbols.need(hccl.CommDestroy, "HcclCommDestroy");
    symbols.need(hccl.GetCommAsyncError, "HcclGetCommAsyncError");
    symbols.need(hccl.GetErrorString, "HcclGetErrorString");
    symbols.need(hccl.AllReduce, "HcclAllReduce");
    symbols.need(hccl.Broadcast, "HcclBroadcast");
    symbols.need(hccl.Reduce, "HcclReduce");
    symbols.need(hccl.AllGather, "HcclAllGather");
    symbols.need(hccl.ReduceScatter, "HcclReduceScatter");
    symbols.need(hccl.Scatter, "HcclScatter");
    symbols.need(hccl.Send, "HcclSend");
    symbols.need(hccl.Recv, "HcclRecv");
    symbols.need(hccl.BatchSendRecv, "HcclBatchSendRecv");
    calls.GetVersion = get_version;
    calls.id_bytes = root_info_bytes;
    calls.GetLongId = get_id;
    calls.CommInitRankLongId = init_rank;
    calls.CommFinalize = Adapted::finalize;
    calls.CommDestroy = Adapted::destroy;
    calls.CommAbort = Adapted::destroy;
    calls.CommGetAsyncError = get_async_error;
    calls.GetErrorString = error_string;
    calls.GetLastError = last_error;
    calls.AllReduce = all_reduce;
    calls.Broadcast = broadcast;
    calls.Reduce = reduce;
    calls.AllGather = all_gather;
    calls.ReduceScatter = reduce_scatter;
    calls.Scatter = scatter;
    calls.Send = send;
    calls.Recv = receive;
    calls.GroupStart = group_start;
    calls.GroupEnd = group_end;
}

// The types that all its devices of the last years reduce. Some have products of some of these types, and nothing
// documents NaN: the host reduces those instead.
Abilities abilities(int) {
    Abilities known;
    known.reduced_types = {int8, int32, float16, float32, bfloat16};
    known.product = known.avg = known.premul_sum = known.split = known.carries_nan = false;
    return known;
}

bool never() {
    return false;
}

std::string version_text(int) {
    return "of unknown version";
}

}  // namespace

Vendor hccl_vendor() {
    Vendor vendor;
    vendor.backend = "hccl";
    vendor.title = "HCCL";
    vendor.prefix = "Hccl";
    vendor.files = {"libhccl.so"};
    vendor.variable = "TUTTI_HCCL_LIB";
    vendor.devices = {Device::Type::npu};
    vendor.oldest = 1;
    vendor.oldest_text = "of CANN 8.1";
    vendor.how_to_get = "Huawei's CANN brings it";
    vendor.resolve = resolve;
    vendor.abilities = abilities;
    vendor.version_text = version_text;
    vendor.anchor = "HcclGetRootInfo";
    vendor.on_host = never;
    return vendor;
}

namespace {

Vendor with_driver() {
    provide_driver(Device::Type::npu, open_acl_driver);
    return hccl_vendor();
}

}  // namespace
}  // namespace tutti::nccl

TUTTI_NCCL_PLUG_IN(tutti::nccl::with_driver())
