// oneCCL without a device of Intel's: ccl.h's functions over tutti's library with NCCL's names. It refuses what oneCCL
// refuses: averages, types of eight-bit floats, a configuration of another layout, a device that was not set.
//   TUTTI_FAKE_ONECCL_FAULT=init      communicators are refused with onecclSystemError
//   TUTTI_FAKE_ONECCL_FAULT=call      so are all_reduces, with onecclFailureGPU
//   TUTTI_FAKE_ONECCL_FAULT=version   it says 2021.17
#include "nccl_calls.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int system_error = 2, internal_error = 3, invalid_argument = 4, invalid_usage = 5, failure_gpu = 7,
              plugin_exception = 11;
constexpr unsigned host_plug_in = 0xBAAAAAAE;
using Id = fakes::LongId<4096>;

bool has_fault(std::string_view name) {
    const char* fault = std::getenv("TUTTI_FAKE_ONECCL_FAULT");
    return fault != nullptr && fault == name;
}
int code(Result result) {
    switch (result) {
        case Result::success: return 0;
        case Result::system_error: return system_error;
        case Result::invalid_argument: return invalid_argument;
        case Result::invalid_usage: return invalid_usage;
        default: return internal_error;
    }
}
bool known(int type, int op = 0) {
    return type >= 0 && type <= 9 && op >= 0 && op <= 3;
}
Type type_of(int type) {
    return static_cast<Type>(type);
}
Comm comm_of(void* comm) {
    return static_cast<Comm>(comm);
}

struct Config {
    std::size_t size;
    unsigned magic;
    unsigned version;
    int numbers[4];
    const char* net_name;
    int more_numbers[2];
    unsigned plug_in;
};
thread_local int device = -1;

}  // namespace

FAKE_API int onecclGetVersion(int* version) {
    *version = has_fault("version") ? 20211700 : 20220200;
    return 0;
}
FAKE_API int onecclGetUniqueId(Id* id) {
    const int result = code(ncclGetUniqueId(&id->id));
    id->fill();
    return result;
}
FAKE_API int onecclCommInitRankConfig(void** comm, std::size_t ranks, Id id, int rank, const Config* config) {
    if (has_fault("init")) return system_error;
    if (config == nullptr || config->size != sizeof(Config) || config->magic != 0xcafebeef) return invalid_argument;
    if (!id.is_whole()) return invalid_argument;
    if (device < 0 && config->plug_in != host_plug_in) return invalid_usage;
    return code(ncclCommInitRank(reinterpret_cast<Comm*>(comm), static_cast<int>(ranks), id.id, rank));
}
FAKE_API int onecclCommDestroy(void* comm) {
    return code(ncclCommDestroy(comm_of(comm)));
}
FAKE_API int onecclSetDevice(std::uint32_t index) {
    device = static_cast<int>(index);
    return 0;
}
FAKE_API const char* onecclGetErrorString(int error) {
    switch (error) {
        case system_error: return "System error";
        case invalid_argument: return "Invalid argument";
        case failure_gpu: return "GPU failure";
        case plugin_exception: return "Unknown error code";
        default: return "Error";
    }
}
FAKE_API const char* onecclGetLastError(void* comm) {
    return ncclGetLastError(comm_of(comm));
}
FAKE_API int onecclAllReduce(void* in, void* out, std::size_t count, int type, int op, void* comm, void* stream) {
    if (has_fault("call")) return failure_gpu;
    if (!known(type, op)) return plugin_exception;
    return code(ncclAllReduce(in, out, count, type_of(type), op, comm_of(comm), stream));
}
FAKE_API int onecclBroadcast(const void* in, void* out, std::size_t count, int type, int root, void* comm,
                             void* stream) {
    if (!known(type)) return plugin_exception;
    return code(ncclBroadcast(in, out, count, type_of(type), root, comm_of(comm), stream));
}
FAKE_API int onecclReduce(const void* in, void* out, std::size_t count, int type, int op, int root, void* comm,
                          void* stream) {
    if (!known(type, op)) return plugin_exception;
    return code(ncclReduce(in, out, count, type_of(type), op, root, comm_of(comm), stream));
}
FAKE_API int onecclAllGather(const void* in, void* out, std::size_t block, int type, void* comm, void* stream) {
    if (!known(type)) return plugin_exception;
    return code(ncclAllGather(in, out, block, type_of(type), comm_of(comm), stream));
}
FAKE_API int onecclReduceScatter(const void* in, void* out, std::size_t block, int type, int op, void* comm,
                                 void* stream) {
    if (!known(type, op)) return plugin_exception;
    return code(ncclReduceScatter(in, out, block, type_of(type), op, comm_of(comm), stream));
}
FAKE_API int onecclSend(const void* data, std::size_t count, int type, int peer, void* comm, void* stream) {
    if (!known(type)) return plugin_exception;
    return code(ncclSend(data, count, type_of(type), peer, comm_of(comm), stream));
}
FAKE_API int onecclRecv(void* data, std::size_t count, int type, int peer, void* comm, void* stream) {
    if (!known(type)) return plugin_exception;
    return code(ncclRecv(data, count, type_of(type), peer, comm_of(comm), stream));
}
FAKE_API int onecclGroupStart() {
    return code(ncclGroupStart());
}
FAKE_API int onecclGroupEnd() {
    return code(ncclGroupEnd());
}
