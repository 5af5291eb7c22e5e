// A HIP runtime without a device of AMD's: hip_runtime_api.h's functions on the fake of CUDA's driver. HIP's numbers of
// errors are CUDA's. As in HIP, a thread that has chosen no device has the first one.
#include "cuda_calls.hpp"

#include <cstddef>
#include <cstdio>

namespace {

thread_local bool has_device = false;
void enter() {
    if (!has_device && fakes::current() < 0) fakes::use(0);
    has_device = true;
}

struct Attributes {
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
    int is_managed;
    unsigned allocation_flags;
};

}  // namespace

FAKE_API int hipGetDeviceCount(int* count) {
    *count = fakes::count();
    return *count > 0 ? 0 : 100;
}
FAKE_API int hipRuntimeGetVersion(int* version) {
    *version = 60'032'830;
    return 0;
}
FAKE_API int hipGetDevice(int* device) {
    enter();
    *device = fakes::current();
    return 0;
}
FAKE_API int hipSetDevice(int device) {
    has_device = true;
    return fakes::use(device);
}
FAKE_API int hipDeviceGetPCIBusId(char* id, int room, int device) {
    return cuDeviceGetPCIBusId(id, room, device);
}
FAKE_API int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
    enter();
    return cuCtxGetStreamPriorityRange(least, greatest);
}
FAKE_API int hipStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
    enter();
    return cuStreamCreateWithPriority(reinterpret_cast<CUstream*>(stream), flags, priority);
}
FAKE_API int hipStreamDestroy(void* stream) {
    enter();
    return cuStreamDestroy_v2(fakes::stream(stream));
}
FAKE_API int hipStreamSynchronize(void* stream) {
    enter();
    return cuStreamSynchronize(fakes::stream(stream));
}
FAKE_API int hipStreamWaitEvent(void* stream, void* event, unsigned flags) {
    enter();
    return cuStreamWaitEvent(fakes::stream(stream), fakes::event(event), flags);
}
FAKE_API int hipStreamIsCapturing(void* stream, int* status) {
    enter();
    return cuStreamIsCapturing(fakes::stream(stream), status);
}
FAKE_API int hipThreadExchangeStreamCaptureMode(int* mode) {
    return cuThreadExchangeStreamCaptureMode(mode);
}
FAKE_API int hipEventCreateWithFlags(void** event, unsigned flags) {
    enter();
    return cuEventCreate(reinterpret_cast<CUevent*>(event), flags);
}
FAKE_API int hipEventDestroy(void* event) {
    enter();
    return cuEventDestroy_v2(fakes::event(event));
}
FAKE_API int hipEventRecord(void* event, void* stream) {
    enter();
    return cuEventRecord(fakes::event(event), fakes::stream(stream));
}
FAKE_API int hipEventQuery(void* event) {
    enter();
    return cuEventQuery(fakes::event(event));
}
FAKE_API int hipMalloc(void** memory, std::size_t bytes) {
    enter();
    return fakes::with_memory(memory, [&](CUdeviceptr* got) { return cuMemAlloc_v2(got, bytes); });
}
FAKE_API int hipFree(void* memory) {
    enter();
    return cuMemFree_v2(fakes::address(memory));
}
FAKE_API int hipHostMalloc(void** memory, std::size_t bytes, unsigned flags) {
    enter();
    return cuMemHostAlloc(memory, bytes, flags);
}
FAKE_API int hipHostFree(void* memory) {
    enter();
    return cuMemFreeHost(memory);
}
FAKE_API int hipMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
    enter();
    if (kind != 4) return 1;  // hipMemcpyDefault is what the driver asks for
    return cuMemcpyAsync(fakes::address(to), fakes::address(from), bytes, fakes::stream(stream));
}
FAKE_API int hipPointerGetAttributes(Attributes* attributes, const void* memory) {
    enter();
    const int device = fakes::device_of(memory);
    *attributes = {.type = device >= 0 ? 2 : 0,  // hipMemoryTypeDevice, hipMemoryTypeUnregistered
                   .device = device >= 0 ? device : 0,
                   .device_pointer = nullptr,
                   .host_pointer = nullptr,
                   .is_managed = 0,
                   .allocation_flags = 0};
    return 0;
}
FAKE_API int hipGetLastError() {
    return 0;
}
FAKE_API const char* hipGetErrorName(int code) {
    const char* name = nullptr;
    return cuGetErrorName(code, &name) == 0 ? name : "hipErrorUnknown";
}
FAKE_API const char* hipGetErrorString(int code) {
    const char* text = nullptr;
    return cuGetErrorString(code, &text) == 0 ? text : "unknown error";
}
