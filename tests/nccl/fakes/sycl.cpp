// libtutti-sycl.so without a SYCL compiler, and without a device of Intel's: its table on the fake of CUDA's driver.
// A queue is a stream, as the fake of oneCCL (oneccl.cpp) takes it.
#include "cuda_calls.hpp"
#include "nccl/sycl_driver.hpp"

#include <string>

namespace {

const char* answer(int code) {
    thread_local std::string words;
    if (code == 0) return nullptr;
    words = "error " + std::to_string(code);
    return words.c_str();
}
// SYCL knows no current device; the fake below does.
void enter(int device = 0) {
    if (fakes::current() < 0) fakes::use(device);
}

const char* make_queue(int device, int high_priority, void** queue) {
    const int before = fakes::current();
    fakes::use(device);
    const int code = cuStreamCreateWithPriority(reinterpret_cast<CUstream*>(queue), 1, high_priority != 0 ? -5 : 0);
    if (before >= 0) fakes::use(before);
    return answer(code);
}
void destroy_queue(void* queue) {
    enter();
    cuStreamDestroy_v2(fakes::stream(queue));
}
const char* wait_for_queue(void* queue) {
    enter();
    return answer(cuStreamSynchronize(fakes::stream(queue)));
}
const char* make_event(void** event) {
    *event = new CUevent(nullptr);  // SYCL's come to be when they are recorded
    return nullptr;
}
void destroy_event(void* event) {
    auto* one = static_cast<CUevent*>(event);
    enter();
    if (*one != nullptr) cuEventDestroy_v2(*one);
    delete one;
}
const char* record(void* event, void* queue) {
    auto* one = static_cast<CUevent*>(event);
    enter();
    if (*one != nullptr) cuEventDestroy_v2(*one);
    CUcontext context = nullptr, before = nullptr;
    cuCtxGetCurrent(&before);
    if (queue != nullptr && cuStreamGetCtx(fakes::stream(queue), &context) == 0) cuCtxSetCurrent(context);
    int code = cuEventCreate(one, 2);
    if (code == 0) code = cuEventRecord(*one, fakes::stream(queue));
    cuCtxSetCurrent(before);
    return answer(code);
}
const char* reached(void* event, int* yes) {
    const int code = cuEventQuery(*static_cast<CUevent*>(event));
    *yes = code == 0 ? 1 : 0;
    return answer(code == 600 ? 0 : code);
}
const char* make_wait(void* queue, void* event) {
    enter();
    return answer(cuStreamWaitEvent(fakes::stream(queue), *static_cast<CUevent*>(event), 0));
}
const char* allocate(int device, std::size_t bytes, void** memory) {
    const int before = fakes::current();
    fakes::use(device);
    const int code = fakes::with_memory(memory, [&](CUdeviceptr* got) { return cuMemAlloc_v2(got, bytes); });
    if (before >= 0) fakes::use(before);
    return answer(code);
}
void release(int device, void* memory) {
    enter(device);
    cuMemFree_v2(fakes::address(memory));
}
const char* allocate_host(std::size_t bytes, void** memory) {
    enter();
    return answer(cuMemAllocHost_v2(memory, bytes));
}
void release_host(void* memory) {
    enter();
    cuMemFreeHost(memory);
}
const char* copy(void* to, const void* from, std::size_t bytes, void* queue) {
    enter();
    return answer(cuMemcpyAsync(fakes::address(to), fakes::address(from), bytes, fakes::stream(queue)));
}
void* default_queue(int device) {
    enter(device);
    return nullptr;  // the fake's default stream
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TuttiSycl* tutti_sycl() {
    static const TuttiSycl functions{.version = TUTTI_SYCL_VERSION,
                                     .device_count = fakes::count,
                                     .make_queue = make_queue,
                                     .destroy_queue = destroy_queue,
                                     .wait_for_queue = wait_for_queue,
                                     .make_event = make_event,
                                     .destroy_event = destroy_event,
                                     .record = record,
                                     .reached = reached,
                                     .make_wait = make_wait,
                                     .allocate = allocate,
                                     .release = release,
                                     .allocate_host = allocate_host,
                                     .release_host = release_host,
                                     .copy = copy,
                                     .device_of = fakes::device_of,
                                     .default_queue = default_queue};
    return &functions;
}
