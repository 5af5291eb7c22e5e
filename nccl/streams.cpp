#include "streams.hpp"

#include "failure.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

namespace tutti::nccl_library {
namespace {

using HostFunction = void (*)(void* data);
using LaunchHostFunction = int (*)(ncclStream_t stream, HostFunction function, void* data);
using GetDevice = int (*)(int* device);
using IsCapturing = int (*)(ncclStream_t stream, int* status);
using Context = void*;
using GetContext = int (*)(ncclStream_t stream, Context* context);
using PushContext = int (*)(Context context);
using PopContext = int (*)(Context* context);

struct Driver {
    LaunchHostFunction launch = nullptr;
    GetDevice get_device = nullptr;
    IsCapturing is_capturing = nullptr;
    GetContext get_context = nullptr;
    PushContext push = nullptr;
    PopContext pop = nullptr;
};

void* loaded_driver() {
    void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const char* file = std::getenv("TUTTI_CUDA_LIB");
    if (library == nullptr && file != nullptr && *file != '\0') library = ::dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    return library;
}

const Driver& driver() {
    static const Driver found = [] {
        Driver one;
        const bool global = ::dlsym(RTLD_DEFAULT, "cuLaunchHostFunc") != nullptr;
        void* where = global ? RTLD_DEFAULT : loaded_driver();
        if (!global && where == nullptr) return one;
        one.launch = reinterpret_cast<LaunchHostFunction>(::dlsym(where, "cuLaunchHostFunc"));
        one.get_device = reinterpret_cast<GetDevice>(::dlsym(where, "cuCtxGetDevice"));
        one.is_capturing = reinterpret_cast<IsCapturing>(::dlsym(where, "cuStreamIsCapturing"));
        one.get_context = reinterpret_cast<GetContext>(::dlsym(where, "cuStreamGetCtx"));
        one.push = reinterpret_cast<PushContext>(::dlsym(where, "cuCtxPushCurrent_v2"));
        one.pop = reinterpret_cast<PopContext>(::dlsym(where, "cuCtxPopCurrent_v2"));
        return one;
    }();
    return found;
}

// With the stream's own device as the thread's: one thread may hold the ranks of several devices, and the driver takes
// a stream of the current device alone.
void launch(ncclStream_t stream, HostFunction function, void* data) {
    const Driver& of = driver();
    Context context = nullptr;
    const bool pushed = of.get_context != nullptr && of.push != nullptr && of.pop != nullptr &&
                        of.get_context(stream, &context) == 0 && of.push(context) == 0;
    const int code = of.launch(stream, function, data);
    if (pushed) of.pop(&context);
    if (code != 0) fail(ncclUnhandledCudaError, "cuLaunchHostFunc failed with ", code, " for the stream ", stream);
}

}  // namespace

bool is_ordered(ncclStream_t stream) {
    return stream != nullptr && driver().launch != nullptr;
}

void run_in_stream(ncclStream_t stream, std::function<void()> work) {
    auto held = std::make_unique<std::function<void()>>(std::move(work));
    launch(
        stream,
        [](void* data) {
            const std::unique_ptr<std::function<void()>> run(static_cast<std::function<void()>*>(data));
            (*run)();
        },
        held.get());
    (void)held.release();  // the stream has it
}

bool is_captured(ncclStream_t stream) {
    int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
    return is_ordered(stream) && driver().is_capturing != nullptr && driver().is_capturing(stream, &status) == 0 &&
           status != 0;
}

void run_in_graph(ncclStream_t stream, const std::function<void()>& work) {
    launch(
        stream, [](void* data) { (*static_cast<const std::function<void()>*>(data))(); },
        const_cast<std::function<void()>*>(&work));
}

int current_device() {
    int device = 0;
    if (driver().get_device == nullptr || driver().get_device(&device) != 0) return 0;
    return device;
}

}  // namespace tutti::nccl_library
