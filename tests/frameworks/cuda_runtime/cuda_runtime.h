// The part of CUDA's runtime that nccl-tests use, over the driver of tests/nccl/fake_cuda. Signatures and numbers:
// NVIDIA's "CUDA Runtime API". Threads: as the runtime; each has a current device, 0 at first.
#pragma once
#include "../../nccl/fake_cuda/cuda.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define CUDART_VERSION 11070  // has graphs, and no float8
#define __CUDA_BF16_TYPES_EXIST__

using std::max;
using std::min;

// ---- Types of 16 bits ----

struct half {
    half() = default;
    template <class Number>
    half(Number value) : value(static_cast<_Float16>(value)) {}
    operator float() const { return static_cast<float>(value); }

    _Float16 value;
};
inline float __half2float(half x) {
    return x;
}
inline half __float2half(float x) {
    return x;
}
inline half __double2half(double x) {
    return x;
}
inline half __ull2half_rn(unsigned long long x) {
    return x;
}

struct __nv_bfloat16 {
    __nv_bfloat16() = default;
    template <class Number>
    __nv_bfloat16(Number number) {
        const float value = static_cast<float>(number);
        std::uint32_t all;
        std::memcpy(&all, &value, sizeof(all));
        if (value == value) all += 0x7FFF + (all >> 16 & 1);  // to the nearest, ties to even
        bits = static_cast<std::uint16_t>(all >> 16);
    }
    operator float() const {
        const std::uint32_t all = std::uint32_t{bits} << 16;
        float value;
        std::memcpy(&value, &all, sizeof(value));
        return value;
    }

    std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
    return x;
}
inline __nv_bfloat16 __float2bfloat16(float x) {
    return x;
}
inline __nv_bfloat16 __double2bfloat16(double x) {
    return x;
}

// ---- Devices ----

using cudaError_t = CUresult;
using cudaStream_t = CUstream;
enum : int { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotReady = 600 };
enum { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
enum { cudaStreamNonBlocking = 1, cudaHostAllocMapped = 2 };
constexpr cudaStream_t cudaStreamDefault = nullptr;

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem;
    int pciDomainID, pciBusID, pciDeviceID;
};

inline const char* cudaGetErrorString(cudaError_t error) {
    const char* text = "no such error";
    cuGetErrorString(error, &text);
    return text;
}
inline cudaError_t cudaSetDevice(int device) {
    CUcontext context = nullptr;
    cudaError_t error = cuInit(0);
    if (error == cudaSuccess) error = cuDevicePrimaryCtxRetain(&context, device);
    return error == cudaSuccess ? cuCtxSetCurrent(context) : error;
}
/// As the runtime does before each call: a thread that has no device takes the first.
inline cudaError_t standin_device() {
    CUcontext context = nullptr;
    return cuCtxGetCurrent(&context) == cudaSuccess && context != nullptr ? int{cudaSuccess} : cudaSetDevice(0);
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    const cudaError_t error = cuInit(0);
    return error == cudaSuccess ? cuDeviceGetCount(count) : error;
}
inline std::size_t standin_memory_bytes() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    *properties = {};
    properties->totalGlobalMem = standin_memory_bytes();
    properties->pciBusID = device;
    return cuDeviceGetName(properties->name, sizeof(properties->name), device);
}
inline cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
    return cuDeviceGetAttribute(value, attribute, device);
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = *total = standin_memory_bytes();
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
    const cudaError_t error = standin_device();
    return error == cudaSuccess ? cuCtxSynchronize() : error;
}
inline cudaError_t cudaDeviceReset() {
    return cudaDeviceSynchronize();
}

// ---- Streams, events, graphs ----

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    const cudaError_t error = standin_device();
    return error == cudaSuccess ? cuStreamCreate(stream, flags) : error;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return cuStreamQuery(stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return cuStreamDestroy_v2(stream);
}

struct StandinEvent {
    std::atomic<std::chrono::steady_clock::duration> at{};
};
using cudaEvent_t = StandinEvent*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new StandinEvent;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const auto stamp = [](void* of) {
        static_cast<StandinEvent*>(of)->at = std::chrono::steady_clock::now().time_since_epoch();
    };
    return fakeCudaLaunch(stream, stamp, event);
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    *milliseconds = std::chrono::duration<float, std::milli>(end->at.load() - start->at.load()).count();
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

using cudaGraph_t = CUgraph;
using cudaGraphExec_t = CUgraphExec;
enum { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1 };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
    return cuStreamBeginCapture_v2(stream, mode);
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return cuStreamEndCapture(stream, graph);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, void*, void*, std::size_t) {
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return cuGraphLaunch(exec, stream);
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return cuGraphExecDestroy(exec);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return cuGraphDestroy(graph);
}

// ---- Memory ----

enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
inline CUdeviceptr standin_address(const void* memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
}
inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    CUdeviceptr address = 0;
    cudaError_t error = standin_device();
    if (error == cudaSuccess && bytes > 0) error = cuMemAlloc_v2(&address, bytes);
    *memory = reinterpret_cast<void*>(address);
    return error;
}
inline cudaError_t cudaFree(void* memory) {
    return cuMemFree_v2(standin_address(memory));
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
    const cudaError_t error = standin_device();
    return error == cudaSuccess ? cuMemHostAlloc(memory, bytes, flags) : error;
}
inline cudaError_t cudaFreeHost(void* memory) {
    return cuMemFreeHost(memory);
}
/// Runs `work` in the stream; what a graph has captured may run often, and stays. Also for memory of ncclMemAlloc,
/// which the driver does not know.
template <class Work>
cudaError_t standin_launch(cudaStream_t stream, Work work) {
    cudaError_t error = standin_device();
    int capturing = 0;
    if (error == cudaSuccess && stream != nullptr) error = cuStreamIsCapturing(stream, &capturing);
    if (error != cudaSuccess) return error;
    auto* const held = new Work(std::move(work));
    if (capturing != 0)
        return fakeCudaLaunch(
            stream, [](void* of) { (*static_cast<Work*>(of))(); }, held);
    return fakeCudaLaunch(
        stream, [](void* of) { (*std::unique_ptr<Work>(static_cast<Work*>(of)))(); }, held);
}
inline cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    return standin_launch(nullptr, [=] { std::memset(memory, value, bytes); });
}
/// In any device's stream, as the runtime copies.
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    CUcontext context = nullptr;
    cudaError_t error = standin_device();
    if (error == cudaSuccess) error = cuStreamGetCtx(stream, &context);
    if (error == cudaSuccess) error = cuCtxPushCurrent_v2(context);
    if (error != cudaSuccess) return error;
    error = standin_launch(stream, [=] { std::memmove(to, from, bytes); });
    cuCtxPopCurrent_v2(&context);
    return error;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return error == cudaSuccess ? cuStreamSynchronize(nullptr) : error;
}

// ---- Kernels ----

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
inline thread_local dim3 threadIdx, blockIdx, gridDim, blockDim;

struct StandinKernel {
    cudaError_t (*launch)(dim3 grid, dim3 block, void** arguments, cudaStream_t stream);
};
template <auto kernel, class... Arguments, std::size_t... index>
cudaError_t standin_launch_kernel(void (*)(Arguments...), std::index_sequence<index...>, dim3 grid, dim3 block,
                                  void** from, cudaStream_t stream) {
    std::tuple<Arguments...> arguments(*static_cast<Arguments*>(from[index])...);
    return standin_launch(stream, [=] {
        gridDim = grid;
        blockDim = block;
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) std::apply(kernel, arguments);
        }
    });
}
template <auto kernel, class... Arguments>
const StandinKernel* standin_kernel_of(void (*)(Arguments...)) {
    static const StandinKernel one{[](dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
        return standin_launch_kernel<kernel>(kernel, std::index_sequence_for<Arguments...>(), grid, block, arguments,
                                             stream);
    }};
    return &one;
}
/// What cudaLaunchKernel takes for a kernel: with the types of its arguments.
template <auto kernel>
const void* standin_kernel() {
    return standin_kernel_of<kernel>(kernel);
}
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t,
                                    cudaStream_t stream) {
    return static_cast<const StandinKernel*>(kernel)->launch(grid, block, arguments, stream);
}
