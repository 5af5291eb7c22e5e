// AscendCL without a device of Huawei's: acl_rt.h's functions on the fake of CUDA's driver. As in AscendCL, a thread
// that has chosen no device may call next to nothing, and a copy must say its direction.
#include "cuda_calls.hpp"

#include <atomic>
#include <cstddef>

namespace {

constexpr int invalid_param = 100000, uninitialize = 100001, repeat_initialize = 100002, context_null = 107002;
std::atomic<bool> initialized{false};
thread_local const char* words = "";

int refused() {
    if (!initialized) return uninitialize;
    if (fakes::current() >= 0) return 0;
    words = "this thread has no context";
    return context_null;
}
template <class F>
int call(F f) {
    const int code = refused();
    return code != 0 ? code : f();
}

struct Attributes {
    std::uint32_t id;
    int type;
    std::uint32_t page_bytes;
    std::uint32_t reserved[4];
};

}  // namespace

FAKE_API int aclInit(const char*) {
    return initialized.exchange(true) ? repeat_initialize : 0;
}
FAKE_API const char* aclGetRecentErrMsg() {
    return words;
}
FAKE_API int aclrtGetDeviceCount(std::uint32_t* count) {
    *count = static_cast<std::uint32_t>(fakes::count());
    return 0;
}
FAKE_API int aclrtGetDevice(std::int32_t* device) {
    *device = fakes::current();
    return refused();
}
FAKE_API int aclrtSetDevice(std::int32_t device) {
    if (!initialized) return uninitialize;
    return fakes::use(device) == 0 ? 0 : invalid_param;
}
FAKE_API int aclrtCreateStreamWithConfig(void** stream, std::uint32_t priority, std::uint32_t flag) {
    if (priority > 7 || flag != 0) return invalid_param;
    // 0 comes first here, and last in CUDA.
    return call(
        [&] { return cuStreamCreateWithPriority(reinterpret_cast<CUstream*>(stream), 1, priority == 0 ? -5 : 0); });
}
FAKE_API int aclrtDestroyStream(void* stream) {
    return call([&] { return cuStreamDestroy_v2(fakes::stream(stream)); });
}
FAKE_API int aclrtSynchronizeStream(void* stream) {
    return call([&] { return cuStreamSynchronize(fakes::stream(stream)); });
}
FAKE_API int aclrtStreamWaitEvent(void* stream, void* event) {
    return call([&] { return cuStreamWaitEvent(fakes::stream(stream), fakes::event(event), 0); });
}
FAKE_API int aclrtCreateEventExWithFlag(void** event, std::uint32_t flag) {
    if ((flag & 3U) != 3U) return invalid_param;  // it is asked for, and waited for
    return call([&] { return cuEventCreate(reinterpret_cast<CUevent*>(event), 2); });
}
FAKE_API int aclrtDestroyEvent(void* event) {
    return call([&] { return cuEventDestroy_v2(fakes::event(event)); });
}
FAKE_API int aclrtRecordEvent(void* event, void* stream) {
    return call([&] { return cuEventRecord(fakes::event(event), fakes::stream(stream)); });
}
FAKE_API int aclrtQueryEventStatus(void* event, int* status) {
    return call([&] {
        const int code = cuEventQuery(fakes::event(event));
        *status = code == 0 ? 1 : 0;
        return code == 600 ? 0 : code;
    });
}
FAKE_API int aclrtMalloc(void** memory, std::size_t bytes, int) {
    return call(
        [&] { return fakes::with_memory(memory, [&](CUdeviceptr* got) { return cuMemAlloc_v2(got, bytes); }); });
}
FAKE_API int aclrtFree(void* memory) {
    return call([&] { return cuMemFree_v2(fakes::address(memory)); });
}
FAKE_API int aclrtMallocHost(void** memory, std::size_t bytes) {
    return call([&] { return cuMemAllocHost_v2(memory, bytes); });
}
FAKE_API int aclrtFreeHost(void* memory) {
    return call([&] { return cuMemFreeHost(memory); });
}
FAKE_API int aclrtMemcpyAsync(void* to, std::size_t room, const void* from, std::size_t bytes, int kind, void* stream) {
    const int right_kind = (fakes::device_of(from) >= 0 ? 2 : 0) + (fakes::device_of(to) >= 0 ? 1 : 0);
    if (bytes > room || kind != right_kind) return invalid_param;
    return call([&] { return cuMemcpyAsync(fakes::address(to), fakes::address(from), bytes, fakes::stream(stream)); });
}
FAKE_API int aclrtPointerGetAttributes(const void* memory, Attributes* attributes) {
    const int device = fakes::device_of(memory);
    *attributes = {.id = static_cast<std::uint32_t>(device < 0 ? 0 : device),
                   .type = device < 0 ? 0 : 1,
                   .page_bytes = 4096,
                   .reserved = {}};
    return refused();
}
