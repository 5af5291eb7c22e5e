// Ranks on GPUs, for tests: the fake's, or real ones. TUTTI_CUDA_LIB names the driver as it does for the plug-in;
// without it the driver is libcuda.so.1. Nothing here is the plug-in's.
#pragma once

#include "fake_cuda/cuda.hpp"

#include <tutti/tutti.hpp>

#include <any>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

using namespace std::chrono_literals;

/// The driver's functions; the last ones only where it is the fake.
struct Cuda {
    decltype(&cuInit) Init;
    decltype(&cuDeviceGetCount) DeviceGetCount;
    decltype(&cuDevicePrimaryCtxRetain) DevicePrimaryCtxRetain;
    decltype(&cuDevicePrimaryCtxRelease_v2) DevicePrimaryCtxRelease;
    decltype(&cuCtxSetCurrent) CtxSetCurrent;
    decltype(&cuCtxSynchronize) CtxSynchronize;
    decltype(&cuStreamCreate) StreamCreate;
    decltype(&cuStreamDestroy_v2) StreamDestroy;
    decltype(&cuStreamSynchronize) StreamSynchronize;
    decltype(&cuStreamWaitEvent) StreamWaitEvent;
    decltype(&cuLaunchHostFunc) LaunchHostFunc;
    decltype(&cuEventCreate) EventCreate;
    decltype(&cuEventDestroy_v2) EventDestroy;
    decltype(&cuEventRecord) EventRecord;
    decltype(&cuStreamBeginCapture_v2) StreamBeginCapture;
    decltype(&cuStreamEndCapture) StreamEndCapture;
    decltype(&cuGraphInstantiateWithFlags) GraphInstantiate;
    decltype(&cuGraphLaunch) GraphLaunch;
    decltype(&cuGraphExecDestroy) GraphExecDestroy;
    decltype(&cuGraphDestroy) GraphDestroy;
    decltype(&cuMemAlloc_v2) MemAlloc;
    decltype(&cuMemFree_v2) MemFree;
    decltype(&cuMemAllocHost_v2) MemAllocHost;
    decltype(&cuMemFreeHost) MemFreeHost;
    decltype(&cuMemcpyAsync) MemcpyAsync;
    int (*ModuleLoadData)(void** module, const void* image) = nullptr;
    int (*ModuleGetFunction)(void** function, void* module, const char* name) = nullptr;
    int (*LaunchKernel)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                        CUstream stream, void** arguments, void** extra) = nullptr;
    decltype(&fakeCudaLaunch) fake_launch = nullptr;
    decltype(&fakeCudaSetFaults) fake_set_faults = nullptr;
    decltype(&fakeCudaSetDelay) fake_set_delay = nullptr;
    decltype(&fakeCudaCalls) fake_calls = nullptr;
    decltype(&fakeCudaLive) fake_live = nullptr;
    decltype(&fakeCudaStreamsOfPriority) fake_streams_of_priority = nullptr;

    bool is_fake() const { return fake_launch != nullptr; }
    int device_count() const;
};
/// Opened once; nothing of it has been called then. Throws std::runtime_error that says what is missing.
const Cuda& cuda();

/// "cuda:nccl", or what TUTTI_TEST_GPU names instead: "npu:hccl".
std::string gpu_backend();
/// What tensors on a GPU are: cuda, or another vendor's kind. The fakes of their drivers share CUDA's devices.
Device::Type gpu_kind();

/// For rows of the inventory that need a GPU: the running test shows them if this is one.
void covers_on_gpu(std::initializer_list<const char*> rows);

/// Something that happens once, in another thread, on a device, or in a process that was forked since.
class Flag {
 public:
    Flag();
    ~Flag();
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;
    void set();
    bool is_set() const;
    /// Whether it happened in that time.
    bool wait(std::chrono::milliseconds limit = 20s) const;

 private:
    std::atomic<bool>* const set_;  // in shared memory
};

/// A GPU as one rank's thread uses it. Its streams and buffers live as long as it does, as freeing memory waits for all
/// ranks that share the GPU.
class Gpu {
 public:
    explicit Gpu(int index);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    Device device() const { return {gpu_kind(), index_}; }
    /// Makes it this thread's current one.
    void use() const;
    /// One that does not wait for the default stream.
    Stream make_stream() const;
    /// What comes into `later` from now on waits for all that is in `stream`.
    void make_wait(Stream later, Stream stream) const;
    void wait_for(Stream stream) const;
    /// Adds to each of `count` int64, in stream order.
    void add(Stream stream, void* data, std::int64_t value, unsigned count) const;
    /// Calls a function of the host, in stream order.
    void call(Stream stream, std::function<void()> function) const;
    /// Memory with the bytes of `values`, written in stream order.
    void* memory(const Tensor& values, Stream stream = {}) const;
    /// Its bytes, in a tensor like `like`, read in stream order.
    Tensor read(const void* memory, const Tensor& like, Stream stream = {}) const;

 private:
    void* staging(std::size_t bytes) const;

    int index_;
    CUcontext context_ = nullptr;
    mutable void* kernel_ = nullptr;
    mutable std::vector<CUstream> streams_;
    mutable std::vector<CUevent> events_;
    mutable std::vector<CUdeviceptr> memory_;
    mutable std::vector<void*> host_memory_;
    mutable std::deque<std::function<void()>> functions_;  // that streams, or graphs, have
};

/// What a graph of a GPU holds that was captured from a stream.
class GpuGraph {
 public:
    enum class Mode { global, thread_local_, relaxed };
    /// Captures what `put_in` puts into the stream. What that throws is thrown when the capture has ended.
    GpuGraph(const Gpu& gpu, Stream stream, const std::function<void()>& put_in, Mode mode = Mode::global);
    ~GpuGraph();
    GpuGraph(const GpuGraph&) = delete;
    GpuGraph& operator=(const GpuGraph&) = delete;

    int error() const { return error_; }  ///< the driver's, at the end of the capture; 0: there is a graph
    void run(Stream stream) const;

 private:
    int error_ = 0;
    CUgraph graph_ = nullptr;
    CUgraphExec exec_ = nullptr;
};

/// A tensor on a GPU.
class OnGpu {
 public:
    OnGpu(const Gpu& gpu, const Tensor& values, Stream stream = {})
        : gpu_(&gpu), like_(values), data_(static_cast<std::byte*>(gpu.memory(values, stream))) {}

    TensorView view() const { return {data_, like_.shape(), like_.dtype(), {}, gpu_->device()}; }
    operator TensorView() const { return view(); }       // NOLINT(google-explicit-constructor)
    operator ConstTensorView() const { return view(); }  // NOLINT(google-explicit-constructor)
    /// `count` elements from `first` on.
    TensorView part(std::int64_t first, std::int64_t count) const {
        return {data_ + first * static_cast<std::int64_t>(size_of(like_.dtype())),
                Extents::of(count),
                like_.dtype(),
                {},
                gpu_->device()};
    }
    void* data() const { return data_; }
    /// Its values, once all that is in the stream has been carried out.
    Tensor values(Stream stream = {}) const { return gpu_->read(data_, like_, stream); }
    /// The first one.
    template <class T>
    T value(Stream stream = {}) const {
        return values(stream).data<T>()[0];
    }

 private:
    const Gpu* gpu_;
    Tensor like_;
    std::byte* data_;
};

struct GpuWorld {
    std::chrono::milliseconds timeout = 30s;
    std::string backend = "cpu:native," + gpu_backend();
    bool bound = true;  ///< device_id is given
    std::any pg_options{};
    Determinism determinism = Determinism::fast;
    std::vector<int> devices{};  ///< of each rank; empty: they take turns
    std::string name = "world";
};
using GpuBody = std::function<void(const ProcessGroup&, const Gpu&)>;
bool ranks_are_processes();
/// The body on ranks that are threads of this process; with GPU_TEST_RANKS=processes each is a process of its own (and
/// with GPU_TEST_HOSTS=1 a host of its own to NCCL, so that ranks may share a GPU). EXPECTs count on each; an
/// exception that escapes is a failure.
void on_gpus(int size, const GpuBody& body, const GpuWorld& world = {});

/// The path of a shared library that is loaded, by its file's name; empty: it is not.
std::string loaded_file(const std::string& name);

class TemporaryFolder {
 public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }

 private:
    std::string path_;
};

using Variables = std::vector<std::pair<std::string, std::string>>;
/// f(0) to f(count - 1), each in a process of its own, with variables of the environment by number. Their failed
/// EXPECTs are failures here; a process that takes more than a minute is ended.
void in_processes(int count, const std::function<Variables(int)>& variables, const std::function<void(int)>& f);
inline void in_process(const Variables& variables, const std::function<void()>& f) {
    in_processes(
        1, [&](int) { return variables; }, [&](int) { f(); });
}

}  // namespace tutti::test
