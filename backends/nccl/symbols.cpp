// NCCL's functions by name, the versions that introduced them, and NCCL's version numbers.
#include "nccl/library.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace tutti::nccl {
namespace {

constexpr int scalable_since = 22300, shrink_since = 22700, gather_since = 22800, revoke_since = 22807;

}  // namespace

void* Symbols::find(const char* name) const {
    return ::dlsym(handle_, name);
}

void resolve_nccl(Symbols& symbols, Interface& calls) {
    symbols.need(calls.GetVersion, "ncclGetVersion");
    symbols.need(calls.GetUniqueId, "ncclGetUniqueId");
    symbols.need(calls.CommInitRankConfig, "ncclCommInitRankConfig");
    symbols.need(calls.CommSplit, "ncclCommSplit");
    symbols.need(calls.CommFinalize, "ncclCommFinalize");
    symbols.need(calls.CommDestroy, "ncclCommDestroy");
    symbols.need(calls.CommAbort, "ncclCommAbort");
    symbols.need(calls.CommGetAsyncError, "ncclCommGetAsyncError");
    symbols.need(calls.GetErrorString, "ncclGetErrorString");
    symbols.need(calls.GetLastError, "ncclGetLastError");
    symbols.need(calls.AllReduce, "ncclAllReduce");
    symbols.need(calls.Broadcast, "ncclBroadcast");
    symbols.need(calls.Reduce, "ncclReduce");
    symbols.need(calls.AllGather, "ncclAllGather");
    symbols.need(calls.ReduceScatter, "ncclReduceScatter");
    symbols.need(calls.Send, "ncclSend");
    symbols.need(calls.Recv, "ncclRecv");
    symbols.need(calls.GroupStart, "ncclGroupStart");
    symbols.need(calls.GroupEnd, "ncclGroupEnd");
    symbols.need(calls.RedOpCreatePreMulSum, "ncclRedOpCreatePreMulSum");
    symbols.need(calls.RedOpDestroy, "ncclRedOpDestroy");

    int version = 0;
    if (calls.GetVersion == nullptr || calls.GetVersion(&version) != Result::success) return;
    // A library may have a name before its version promises the function: tutti does not call such functions.
    const auto since = [&](int first, auto& to, const char* name) {
        if (version >= first) symbols.want(to, name);
    };
    since(scalable_since, calls.CommInitRankScalable, "ncclCommInitRankScalable");
    since(shrink_since, calls.CommShrink, "ncclCommShrink");
    since(revoke_since, calls.CommRevoke, "ncclCommRevoke");
    since(gather_since, calls.Gather, "ncclGather");
    since(gather_since, calls.Scatter, "ncclScatter");
}

Abilities nccl_abilities(int version) {
    Abilities abilities;
    if (version < float8_since)
        std::erase_if(abilities.reduced_types, [](Type type) { return type == float8e4m3 || type == float8e5m2; });
    return abilities;
}

// 2.9 and later: 21805 is 2.18.5; before: 2708 is 2.7.8.
std::string nccl_version_text(int version) {
    const int unit = version < 10000 ? 1000 : 10000;
    return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
           std::to_string(version % 100);
}

}  // namespace tutti::nccl
