// What the fakes of other drivers share: they are the fake of CUDA's driver by other names.
#pragma once

#include "nccl/fake_cuda/cuda.hpp"

#include <cstdint>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace fakes {

inline CUstream stream(void* handle) {
    return static_cast<CUstream>(handle);
}
inline CUevent event(void* handle) {
    return static_cast<CUevent>(handle);
}
inline CUdeviceptr address(const void* memory) {
    return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

constexpr int ordinal_attribute = 9, memory_type_attribute = 2, on_device = 2;  // CU_POINTER_ATTRIBUTE_…

/// -1: on none.
inline int device_of(const void* memory) {
    int device = -1;
    unsigned type = 0;
    const bool known = cuPointerGetAttribute(&type, memory_type_attribute, address(memory)) == 0 && type == on_device &&
                       cuPointerGetAttribute(&device, ordinal_attribute, address(memory)) == 0;
    return known ? device : -1;
}

inline CUresult use(int device) {
    cuInit(0);
    CUcontext context = nullptr;
    const CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    return result != 0 ? result : cuCtxSetCurrent(context);
}
inline int current() {
    int device = -1;
    return cuCtxGetDevice(&device) == 0 ? device : -1;
}
inline int count() {
    cuInit(0);
    int devices = 0;
    return cuDeviceGetCount(&devices) == 0 ? devices : 0;
}

template <class F>
int with_memory(void** memory, F allocate) {
    CUdeviceptr got = 0;
    const int result = allocate(&got);
    *memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(got));
    return result;
}

}  // namespace fakes
