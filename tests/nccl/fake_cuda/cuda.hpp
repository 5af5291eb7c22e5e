// The part of CUDA's driver API that the fake has, and what a test can ask of the fake besides. Source of signatures
// and numbers: NVIDIA's "CUDA Driver API"; "_v2" is part of a function's name where it is in the real library.
#pragma once

#include <cstddef>

#define FAKE_CUDA_API __attribute__((visibility("default")))

extern "C" {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct FakeContext*;
using CUstream = struct FakeStream*;
using CUevent = struct FakeEvent*;
using CUgraph = struct FakeGraph*;
using CUgraphExec = struct FakeGraphExec*;
using CUhostFn = void (*)(void*);

FAKE_CUDA_API CUresult cuInit(unsigned flags);
FAKE_CUDA_API CUresult cuDriverGetVersion(int* version);
FAKE_CUDA_API CUresult cuGetErrorName(CUresult error, const char** name);
FAKE_CUDA_API CUresult cuGetErrorString(CUresult error, const char** text);

FAKE_CUDA_API CUresult cuDeviceGetCount(int* count);
FAKE_CUDA_API CUresult cuDeviceGet(CUdevice* device, int index);
FAKE_CUDA_API CUresult cuDeviceGetName(char* name, int size, CUdevice device);
FAKE_CUDA_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
FAKE_CUDA_API CUresult cuDeviceGetUuid_v2(unsigned char* uuid, CUdevice device);
FAKE_CUDA_API CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device);
FAKE_CUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
FAKE_CUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
FAKE_CUDA_API CUresult cuCtxSetCurrent(CUcontext context);
FAKE_CUDA_API CUresult cuCtxGetCurrent(CUcontext* context);
FAKE_CUDA_API CUresult cuCtxPushCurrent_v2(CUcontext context);
FAKE_CUDA_API CUresult cuCtxPopCurrent_v2(CUcontext* context);
FAKE_CUDA_API CUresult cuCtxGetDevice(CUdevice* device);
FAKE_CUDA_API CUresult cuCtxSynchronize();
FAKE_CUDA_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest);

FAKE_CUDA_API CUresult cuStreamCreate(CUstream* stream, unsigned flags);
FAKE_CUDA_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority);
FAKE_CUDA_API CUresult cuStreamDestroy_v2(CUstream stream);
FAKE_CUDA_API CUresult cuStreamSynchronize(CUstream stream);
FAKE_CUDA_API CUresult cuStreamQuery(CUstream stream);
FAKE_CUDA_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
FAKE_CUDA_API CUresult cuStreamGetPriority(CUstream stream, int* priority);
FAKE_CUDA_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* context);
FAKE_CUDA_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument);

FAKE_CUDA_API CUresult cuEventCreate(CUevent* event, unsigned flags);
FAKE_CUDA_API CUresult cuEventDestroy_v2(CUevent event);
FAKE_CUDA_API CUresult cuEventRecord(CUevent event, CUstream stream);
FAKE_CUDA_API CUresult cuEventQuery(CUevent event);
FAKE_CUDA_API CUresult cuEventSynchronize(CUevent event);

FAKE_CUDA_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
FAKE_CUDA_API CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph);
FAKE_CUDA_API CUresult cuStreamIsCapturing(CUstream stream, int* status);
FAKE_CUDA_API CUresult cuThreadExchangeStreamCaptureMode(int* mode);
FAKE_CUDA_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
FAKE_CUDA_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
FAKE_CUDA_API CUresult cuGraphExecDestroy(CUgraphExec exec);
FAKE_CUDA_API CUresult cuGraphDestroy(CUgraph graph);

FAKE_CUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemFree_v2(CUdeviceptr memory);
FAKE_CUDA_API CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags);
FAKE_CUDA_API CUresult cuMemAllocHost_v2(void** memory, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemFreeHost(void* memory);
FAKE_CUDA_API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer);
FAKE_CUDA_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
FAKE_CUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
FAKE_CUDA_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream);
FAKE_CUDA_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream);
FAKE_CUDA_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
FAKE_CUDA_API CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, std::size_t count, CUstream stream);

// ---- What only the fake has ----

/// A kernel: `function` runs in stream order, on the stream's thread. Takes any stream of the current device's.
FAKE_CUDA_API CUresult fakeCudaLaunch(CUstream stream, CUhostFn function, void* argument);
/// From now on, as FAKE_CUDA_FAULTS and FAKE_CUDA_DELAY_US say it. Null: no faults.
FAKE_CUDA_API void fakeCudaSetFaults(const char* faults);
FAKE_CUDA_API void fakeCudaSetDelay(unsigned microseconds);
/// How often a function of the driver was called, by its name without "_v2"; "operation": what streams carried out.
FAKE_CUDA_API unsigned long long fakeCudaCalls(const char* function);
/// How many there are now: "streams", "events", "memory", "host memory" (allocations).
FAKE_CUDA_API unsigned long long fakeCudaLive(const char* what);
/// How many streams of a device there are now with that priority.
FAKE_CUDA_API int fakeCudaStreamsOfPriority(int device, int priority);
}
