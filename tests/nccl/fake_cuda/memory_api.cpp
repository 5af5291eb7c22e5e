// The driver's functions about memory.
#include "driver.hpp"

#include <cstring>

using namespace fake_cuda;

namespace {

const void* pointer(CUdeviceptr address) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
}
CUdeviceptr address(const void* memory) {
    return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

// Real drivers free memory only after all that may still use it.
void wait_for(Device& device) {
    for (const MarkerPtr& marker : driver().tails(device)) marker->wait();
}

int allocate_host(const Call& call, void** memory, std::size_t bytes) {
    if (call.error != success) return call.error;
    if (memory == nullptr || bytes == 0) return invalid_value;
    *memory = driver().memory.allocate(MemoryKind::pinned, -1, bytes);
    return *memory != nullptr ? success : out_of_memory;
}

enum class Way { any, to_device, to_host, within };

// The two memories are on the sides that the function says.
bool fits(Way way, const Place& to, const Place& from) {
    const bool to_device = to.kind == MemoryKind::device, from_device = from.kind == MemoryKind::device;
    switch (way) {
        case Way::any: return true;
        case Way::to_device: return to_device && !from_device;
        case Way::to_host: return !to_device && from_device;
        case Way::within: return to_device && from_device;
    }
    return false;
}

int copy(const Call& call, Way way, void* to, const void* from, std::size_t bytes, CUstream handle, bool wait) {
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    if (bytes == 0) return success;
    const auto target = driver().memory.range(to, bytes), source = driver().memory.range(from, bytes);
    if (to == nullptr || from == nullptr || !target || !source || !fits(way, *target, *source)) return invalid_value;
    // Memory that is not pinned is copied while the caller waits, in any function.
    wait = wait || target->kind == MemoryKind::pageable || source->kind == MemoryKind::pageable;
    if (const int error = wait ? driver().captures.refuse(*stream) : success; error != success) return error;
    MarkerPtr end;
    const int error = driver().enqueue(
        *stream, [to, from, bytes] { std::memmove(to, from, bytes); }, &end);
    if (error != success) return error;
    if (wait) {
        end->wait();
        return stream->device.error();
    }
    return success;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes) {
    const Call call("cuMemAlloc", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    if (memory == nullptr || bytes == 0) return invalid_value;
    *memory = address(driver().memory.allocate(MemoryKind::device, call.device->index, bytes));
    return *memory != 0 ? success : out_of_memory;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    const Call call("cuMemFree", Needs::context, Beside::no_capture);
    if (call.error != success || memory == 0) return call.error;
    const Place place = driver().memory.place_of(pointer(memory));
    if (place.kind != MemoryKind::device || place.begin != memory) return invalid_value;
    wait_for(*driver().device(place.device));
    return driver().memory.release(MemoryKind::device, pointer(memory)) ? success : invalid_value;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return allocate_host(Call("cuMemHostAlloc", Needs::context, Beside::no_capture), memory, bytes);
}

CUresult cuMemAllocHost_v2(void** memory, std::size_t bytes) {
    return allocate_host(Call("cuMemAllocHost", Needs::context, Beside::no_capture), memory, bytes);
}

CUresult cuMemFreeHost(void* memory) {
    const Call call("cuMemFreeHost", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    for (int i = 0; i < driver().device_count(); ++i) wait_for(*driver().device(i));
    return driver().memory.release(MemoryKind::pinned, memory) ? success : invalid_value;
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr memory) {
    const Call call("cuPointerGetAttribute", Needs::initialized);
    if (call.error != success) return call.error;
    const Place place = driver().memory.place_of(pointer(memory));
    if (place.kind == MemoryKind::pageable) return invalid_value;  // it is no memory of the driver's
    const bool on_device = place.kind == MemoryKind::device;
    switch (attribute) {
        case 1: *static_cast<CUcontext*>(value) = driver().device(on_device ? place.device : 0)->context(); break;
        case 2: *static_cast<unsigned*>(value) = on_device ? 2 : 1; break;        // memory type
        case 3: *static_cast<CUdeviceptr*>(value) = memory; break;                // device pointer
        case 8: *static_cast<unsigned*>(value) = 0; break;                        // managed
        case 9: *static_cast<int*>(value) = on_device ? place.device : 0; break;  // device ordinal
        case 11: *static_cast<CUdeviceptr*>(value) = place.begin; break;          // range start
        case 12: *static_cast<std::size_t*>(value) = place.bytes; break;          // range size
        default: return invalid_value;
    }
    return success;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    return copy(Call("cuMemcpy", Needs::context, Beside::no_capture), Way::any, const_cast<void*>(pointer(to)),
                pointer(from), bytes, nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return copy(Call("cuMemcpyAsync", Needs::context), Way::any, const_cast<void*>(pointer(to)), pointer(from), bytes,
                stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
    return copy(Call("cuMemcpyHtoD", Needs::context, Beside::no_capture), Way::to_device,
                const_cast<void*>(pointer(to)), from, bytes, nullptr, true);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
    return copy(Call("cuMemcpyDtoH", Needs::context, Beside::no_capture), Way::to_host, to, pointer(from), bytes,
                nullptr, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    return copy(Call("cuMemcpyDtoD", Needs::context), Way::within, const_cast<void*>(pointer(to)), pointer(from), bytes,
                nullptr, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return copy(Call("cuMemcpyHtoDAsync", Needs::context), Way::to_device, const_cast<void*>(pointer(to)), from, bytes,
                stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return copy(Call("cuMemcpyDtoHAsync", Needs::context), Way::to_host, to, pointer(from), bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return copy(Call("cuMemcpyDtoDAsync", Needs::context), Way::within, const_cast<void*>(pointer(to)), pointer(from),
                bytes, stream, false);
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, std::size_t count, CUstream handle) {
    const Call call("cuMemsetD8Async", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    const auto place = driver().memory.range(pointer(memory), count);
    if (!place || place->kind == MemoryKind::pageable) return invalid_value;
    void* const begin = const_cast<void*>(pointer(memory));
    return driver().enqueue(*stream, [begin, value, count] { std::memset(begin, value, count); });
}
}
