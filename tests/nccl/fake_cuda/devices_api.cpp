// The driver's functions about itself, devices and contexts; and those that only the fake has.
#include "driver.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

using namespace fake_cuda;

namespace {

struct ErrorText {
    int error;
    const char* name;
    const char* text;
};
constexpr ErrorText error_texts[] = {
    {success, "CUDA_SUCCESS", "no error"},
    {invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {illegal_state, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {context_is_destroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {not_permitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {capture_merge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {capture_unmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {capture_implicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {captured_event, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {capture_wrong_thread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorText* text_of(int error) {
    const auto* found = std::ranges::find(error_texts, error, &ErrorText::error);
    return found != std::end(error_texts) ? found : nullptr;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) {
    const Call call("cuInit", Needs::nothing);
    if (call.error != success) return call.error;
    return flags == 0 ? driver().init() : invalid_value;
}

CUresult cuDriverGetVersion(int* version) {
    const Call call("cuDriverGetVersion", Needs::nothing);
    if (call.error == success) *version = 13000;
    return call.error;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
    const ErrorText* found = text_of(error);
    *name = found != nullptr ? found->name : nullptr;
    return found != nullptr ? success : invalid_value;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    const ErrorText* found = text_of(error);
    *text = found != nullptr ? found->text : nullptr;
    return found != nullptr ? success : invalid_value;
}

CUresult cuDeviceGetCount(int* count) {
    const Call call("cuDeviceGetCount", Needs::initialized);
    if (call.error == success) *count = driver().device_count();
    return call.error;
}

CUresult cuDeviceGet(CUdevice* device, int index) {
    const Call call("cuDeviceGet", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device(index) == nullptr) return invalid_device;
    *device = index;
    return success;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
    const Call call("cuDeviceGetName", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device(device) == nullptr) return invalid_device;
    std::snprintf(name, static_cast<std::size_t>(size), "fake device");
    return success;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    const Call call("cuDeviceGetAttribute", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device(device) == nullptr) return invalid_device;
    switch (attribute) {
        case 75: *value = 9; return success;       // compute capability, major
        case 76: *value = 0; return success;       // minor
        case 33: *value = device; return success;  // PCI bus
        case 34: *value = 0; return success;       // PCI device
        case 41: *value = 1; return success;       // unified addressing
        default: return invalid_value;
    }
}

CUresult cuDeviceGetUuid_v2(unsigned char* uuid, CUdevice device) {
    const Call call("cuDeviceGetUuid", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device(device) == nullptr) return invalid_device;
    std::memset(uuid, 0x40 + device, 16);
    return success;
}

CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
    const Call call("cuDeviceGetPCIBusId", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device(device) == nullptr) return invalid_device;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
    return success;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice index) {
    const Call call("cuDevicePrimaryCtxRetain", Needs::initialized);
    if (call.error != success) return call.error;
    Device* device = driver().device(index);
    if (device == nullptr) return invalid_device;
    ++device->retained;
    *context = device->context();
    return device->error();
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice index) {
    const Call call("cuDevicePrimaryCtxRelease", Needs::initialized);
    if (call.error != success) return call.error;
    Device* device = driver().device(index);
    if (device == nullptr) return invalid_device;
    if (device->retained == 0) return invalid_context;
    --device->retained;
    return success;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    const Call call("cuCtxSetCurrent", Needs::initialized);
    if (call.error != success) return call.error;
    if (context != nullptr && driver().device_of(context) == nullptr) return invalid_context;
    if (!contexts().empty()) contexts().pop_back();
    if (context != nullptr) contexts().push_back(context);
    return success;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
    const Call call("cuCtxGetCurrent", Needs::initialized);
    if (call.error == success) *context = contexts().empty() ? nullptr : contexts().back();
    return call.error;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    const Call call("cuCtxPushCurrent", Needs::initialized);
    if (call.error != success) return call.error;
    if (driver().device_of(context) == nullptr) return invalid_context;
    contexts().push_back(context);
    return success;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    const Call call("cuCtxPopCurrent", Needs::initialized);
    if (call.error != success) return call.error;
    if (contexts().empty()) return invalid_context;
    if (context != nullptr) *context = contexts().back();
    contexts().pop_back();
    return success;
}

CUresult cuCtxGetDevice(CUdevice* device) {
    const Call call("cuCtxGetDevice", Needs::context);
    if (call.error == success) *device = call.device->index;
    return call.error;
}

CUresult cuCtxSynchronize() {
    const Call call("cuCtxSynchronize", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    for (const MarkerPtr& marker : driver().tails(*call.device)) marker->wait();
    return call.device->error();
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    const Call call("cuCtxGetStreamPriorityRange", Needs::context);
    if (call.error != success) return call.error;
    if (least != nullptr) *least = least_priority;
    if (greatest != nullptr) *greatest = greatest_priority;
    return success;
}

void fakeCudaSetFaults(const char* faults) {
    driver().faults.set(faults != nullptr ? faults : "");
}

void fakeCudaSetDelay(unsigned microseconds) {
    driver().delay_us = microseconds;
}

unsigned long long fakeCudaCalls(const char* function) {
    return driver().faults.calls(function);
}

unsigned long long fakeCudaLive(const char* what) {
    const std::string_view name = what;
    if (name == "streams") return driver().streams.all().size();
    if (name == "events") return driver().events.all().size();
    if (name == "memory") return driver().memory.allocations(MemoryKind::device);
    if (name == "host memory") return driver().memory.allocations(MemoryKind::pinned);
    std::fprintf(stderr, "fake CUDA: there are streams, events, memory, host memory; no %s\n", what);
    std::abort();
}

int fakeCudaStreamsOfPriority(int device, int priority) {
    const auto all = driver().streams.all();
    return static_cast<int>(std::ranges::count_if(
        all, [&](const auto& stream) { return stream->device.index == device && stream->priority == priority; }));
}
}
