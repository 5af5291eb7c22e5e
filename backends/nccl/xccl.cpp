// The backend "xccl": Intel's oneCCL by its C interface, which is NCCL's with names, results and ids of its own, on
// SYCL's queues; without a usable device of Intel's, on host memory.
//
// Signatures and numbers: ccl.h and ccl/v2/types.h of oneCCL 2022.2. Types and operators have NCCL's numbers. It lacks
// non-blocking communicators (adapted.hpp), aborts and asynchronous errors.
#include "nccl/adapted.hpp"
#include "nccl/plug_in.hpp"
#include "nccl/vendors.hpp"

#include <tutti/error.hpp>

#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>

namespace tutti::nccl {
namespace {

using StreamHandle = void*;

constexpr int code_in_progress = 6;            // onecclInProgress
constexpr unsigned any_plug_in = 0;            // onecclPluginAny: the existing devices decide
constexpr unsigned host_plug_in = 0xBAAAAAAE;  // onecclLegacyCPU
constexpr unsigned config_magic = 0xcafebeef;
constexpr unsigned config_version = 2022 * 10000 + 2 * 100;

struct OnecclId {
    char bytes[4096];
};

struct OnecclConfig {
    std::size_t size = sizeof(OnecclConfig);
    unsigned magic = config_magic;
    unsigned version = config_version;
    int blocking = INT_MIN;
    int cga_cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
    int multi_threaded = INT_MIN;
    unsigned plug_in = any_plug_in;
};

struct OnecclFunctions {
    int (*GetVersion)(int* version);
    int (*GetUniqueId)(OnecclId* id);
    int (*CommInitRankConfig)(void** comm, std::size_t ranks, OnecclId id, int rank, const OnecclConfig* config);
    int (*CommDestroy)(void* comm);
    const char* (*GetErrorString)(int code);
    const char* (*GetLastError)(void* comm);
    int (*SetDevice)(std::uint32_t index);
    int (*AllReduce)(void* in, void* out, std::size_t count, int type, int op, void* comm, StreamHandle);
    int (*Broadcast)(const void* in, void* out, std::size_t count, int type, int root, void* comm, StreamHandle);
    int (*Reduce)(const void* in, void* out, std::size_t count, int type, int op, int root, void* comm, StreamHandle);
    int (*AllGather)(const void* in, void* out, std::size_t block, int type, void* comm, StreamHandle);
    int (*ReduceScatter)(const void* in, void* out, std::size_t block, int type, int op, void* comm, StreamHandle);
    int (*Send)(const void* data, std::size_t count, int type, int peer, void* comm, StreamHandle);
    int (*Recv)(void* data, std::size_t count, int type, int peer, void* comm, StreamHandle);
    int (*GroupStart)();
    int (*GroupEnd)();
};
OnecclFunctions oneccl{};

Result result_of(int code) {
    if (code == 0) return Result::success;
    return code == code_in_progress ? Result::in_progress : foreign(code);
}

/// Whether the host has no device that oneCCL could use.
bool on_host() {
    static const bool none = [] {
        try {
            (void)open_sycl_driver();
            return false;
        } catch (const DistError&) {
            return true;
        }
    }();
    return none;
}

template <class F>
Result call(Comm comm, F f) {
    void* own = Adapted::own(comm);
    return own == nullptr ? Result::invalid_usage : result_of(f(own));
}

Result get_version(int* version) {
    return oneccl.GetVersion == nullptr ? Result::invalid_usage : result_of(oneccl.GetVersion(version));
}
Result get_id(void* id) {
    return result_of(oneccl.GetUniqueId(static_cast<OnecclId*>(id)));
}
Result init_rank(Comm* comm, int ranks, const void* id, int rank, const Store&) {
    const auto copy = std::make_shared<OnecclId>();
    std::memcpy(copy.get(), id, sizeof *copy);
    const int device = on_host() ? -1 : open_sycl_driver()->current();
    return Adapted::start(
        comm,
        [=](void** own, const std::atomic<bool>&) {
            OnecclConfig config;
            if (on_host()) config.plug_in = host_plug_in;
            const int code = device < 0 ? 0 : oneccl.SetDevice(static_cast<std::uint32_t>(device));
            if (code != 0) return code;
            return oneccl.CommInitRankConfig(own, static_cast<std::size_t>(ranks), *copy, rank, &config);
        },
        [](void* own) { return oneccl.CommDestroy(own); });
}
Result get_async_error(Comm comm, Result* error) {
    *error = Adapted::state(comm);
    return Result::success;
}
const char* error_string(Result result) {
    const char* own = Adapted::text(result);
    return own != nullptr ? own : oneccl.GetErrorString(code_of(result));
}
const char* last_error(Comm comm) {
    void* own = comm == nullptr ? nullptr : Adapted::own(comm);
    const char* words = own == nullptr ? nullptr : oneccl.GetLastError(own);
    return words == nullptr ? "" : words;
}

Result all_reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, Comm comm,
                  StreamHandle stream) {
    return call(comm,
                [&](void* own) { return oneccl.AllReduce(const_cast<void*>(in), out, count, type, op, own, stream); });
}
Result broadcast(const void* in, void* out, std::size_t count, Type type, int root, Comm comm, StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.Broadcast(in, out, count, type, root, own, stream); });
}
Result reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, int root, Comm comm,
              StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.Reduce(in, out, count, type, op, root, own, stream); });
}
Result all_gather(const void* in, void* out, std::size_t block, Type type, Comm comm, StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.AllGather(in, out, block, type, own, stream); });
}
Result reduce_scatter(const void* in, void* out, std::size_t block, Type type, ReduceOpHandle op, Comm comm,
                      StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.ReduceScatter(in, out, block, type, op, own, stream); });
}
Result send(const void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.Send(data, count, type, peer, own, stream); });
}
Result receive(void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return call(comm, [&](void* own) { return oneccl.Recv(data, count, type, peer, own, stream); });
}
Result group_start() {
    return result_of(oneccl.GroupStart());
}
Result group_end() {
    return result_of(oneccl.GroupEnd());
}

void resolve(Symbols& symbols, Interface& calls) {
    symbols.need(oneccl.GetVersion, "onecclGetVersion");
    symbols.need(oneccl.GetUniqueId, "onecclGetUniqueId");
    symbols.need(oneccl.CommInitRankConfig, "onecclCommInitRankConfig");
    symbols.need(oneccl.CommDestroy, "onecclCommDestroy");
    symbols.need(oneccl.GetErrorString, "onecclGetErrorString");
    symbols.need(oneccl.GetLastError, "onecclGetLastError");
    symbols.need(oneccl.SetDevice, "onecclSetDevice");
    symbols.need(oneccl.AllReduce, "onecclAllReduce");
    symbols.need(oneccl.Broadcast, "onecclBroadcast");
    symbols.need(oneccl.Reduce, "onecclReduce");
    symbols.need(oneccl.AllGather, "onecclAllGather");
    symbols.need(oneccl.ReduceScatter, "onecclReduceScatter");
    symbols.need(oneccl.Send, "onecclSend");
    symbols.need(oneccl.Recv, "onecclRecv");
    symbols.need(oneccl.GroupStart, "onecclGroupStart");
    symbols.need(oneccl.GroupEnd, "onecclGroupEnd");
    calls.GetVersion = get_version;
    calls.id_bytes = sizeof(OnecclId);
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
    calls.Send = send;
    calls.Recv = receive;
    calls.GroupStart = group_start;
    calls.GroupEnd = group_end;
}

Abilities abilities(int) {
    Abilities known;
    known.reduced_types = {int8, uint8, int32, uint32, int64, uint64, float32, float64};
    // On host memory tutti's own reduction rounds short floats once, and copies nothing.
    if (!on_host()) known.reduced_types.insert(known.reduced_types.end(), {float16, bfloat16});
    known.avg = known.premul_sum = known.split = known.carries_nan = false;
    return known;
}

}  // namespace

Vendor xccl_vendor() {
    Vendor vendor;
    vendor.backend = "xccl";
    vendor.title = "oneCCL";
    vendor.prefix = "oneccl";
    vendor.files = {"libccl.so.2"};
    vendor.variable = "TUTTI_XCCL_LIB";
    vendor.devices = {Device::Type::xpu};
    vendor.oldest = static_cast<int>(config_version);
    vendor.oldest_text = "2022.2";
    vendor.how_to_get = "pip install oneccl brings it, and Intel's oneAPI";
    vendor.resolve = resolve;
    vendor.abilities = abilities;
    vendor.version_text = nccl_version_text;
    vendor.anchor = "onecclGetVersion";
    vendor.on_host = on_host;
    return vendor;
}

namespace {

Vendor with_driver() {
    provide_driver(Device::Type::xpu, open_sycl_driver);
    return xccl_vendor();
}

}  // namespace
}  // namespace tutti::nccl

TUTTI_NCCL_PLUG_IN(tutti::nccl::with_driver())
