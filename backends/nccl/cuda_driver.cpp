// CUDA's driver (libcuda.so.1): the functions that the plug-in uses, by the names and numbers of NVIDIA's "CUDA Driver
// API".
#include "nccl/beside_captures.hpp"
#include "nccl/driver.hpp"
#include "nccl/driver_file.hpp"

#include <tutti/error.hpp>

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tutti::nccl {
namespace {

using Code = int;
using DeviceContext = void*;
using Address = std::uint64_t;

constexpr Code success = 0, not_ready = 600;
constexpr int capability_major = 75, capability_minor = 76;               // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
constexpr int memory_type = 2, device_ordinal = 9, memory_is_device = 2;  // CU_POINTER_ATTRIBUTE_…
constexpr unsigned own_order = 1, without_timing = 2, for_all_contexts = 1;

void* const legacy_stream = reinterpret_cast<void*>(1);  // CU_STREAM_LEGACY

struct Functions {
    Code (*cuInit)(unsigned) = nullptr;
    Code (*cuGetErrorName)(Code, const char**) = nullptr;
    Code (*cuGetErrorString)(Code, const char**) = nullptr;
    Code (*cuDeviceGetCount)(int*) = nullptr;
    Code (*cuDeviceGet)(int*, int) = nullptr;
    Code (*cuDeviceGetAttribute)(int*, int, int) = nullptr;
    Code (*cuDeviceGetPCIBusId)(char*, int, int) = nullptr;
    Code (*cuDeviceGetUuid)(unsigned char*, int) = nullptr;  // of a MIG instance; from CUDA 11.4 on
    Code (*cuDevicePrimaryCtxRetain)(DeviceContext*, int) = nullptr;
    Code (*cuCtxGetCurrent)(DeviceContext*) = nullptr;
    Code (*cuCtxSetCurrent)(DeviceContext) = nullptr;
    Code (*cuCtxGetDevice)(int*) = nullptr;
    Code (*cuCtxGetStreamPriorityRange)(int*, int*) = nullptr;
    Code (*cuStreamCreateWithPriority)(void**, unsigned, int) = nullptr;
    Code (*cuStreamDestroy)(void*) = nullptr;
    Code (*cuStreamSynchronize)(void*) = nullptr;
    Code (*cuStreamWaitEvent)(void*, void*, unsigned) = nullptr;
    Code (*cuStreamIsCapturing)(void*, int*) = nullptr;
    Code (*cuThreadExchangeStreamCaptureMode)(int*) = nullptr;
    Code (*cuEventCreate)(void**, unsigned) = nullptr;
    Code (*cuEventDestroy)(void*) = nullptr;
    Code (*cuEventRecord)(void*, void*) = nullptr;
    Code (*cuEventQuery)(void*) = nullptr;
    Code (*cuMemAlloc)(Address*, std::size_t) = nullptr;
    Code (*cuMemFree)(Address) = nullptr;
    Code (*cuMemHostAlloc)(void**, std::size_t, unsigned) = nullptr;
    Code (*cuMemFreeHost)(void*) = nullptr;
    Code (*cuMemcpyAsync)(Address, Address, std::size_t, void*) = nullptr;
    Code (*cuPointerGetAttribute)(void*, int, Address) = nullptr;
};

const DriverFile cuda_file{"CUDA", "TUTTI_CUDA_LIB", {"libcuda.so.1"}, "NVIDIA's driver brings it"};

Address address(const void* memory) {
    return reinterpret_cast<Address>(memory);
}

Functions resolve(const OpenedDriver& opened) {
    Symbols symbols(opened.handle);
    Functions f;
    symbols.need(f.cuInit, "cuInit");
    symbols.need(f.cuGetErrorName, "cuGetErrorName");
    symbols.need(f.cuGetErrorString, "cuGetErrorString");
    symbols.need(f.cuDeviceGetCount, "cuDeviceGetCount");
    symbols.need(f.cuDeviceGet, "cuDeviceGet");
    symbols.need(f.cuDeviceGetAttribute, "cuDeviceGetAttribute");
    symbols.need(f.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId");
    symbols.want(f.cuDeviceGetUuid, "cuDeviceGetUuid_v2");
    symbols.need(f.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    symbols.need(f.cuCtxGetCurrent, "cuCtxGetCurrent");
    symbols.need(f.cuCtxSetCurrent, "cuCtxSetCurrent");
    symbols.need(f.cuCtxGetDevice, "cuCtxGetDevice");
    symbols.need(f.cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange");
    symbols.need(f.cuStreamCreateWithPriority, "cuStreamCreateWithPriority");
    symbols.need(f.cuStreamDestroy, "cuStreamDestroy_v2");
    symbols.need(f.cuStreamSynchronize, "cuStreamSynchronize");
    symbols.need(f.cuStreamWaitEvent, "cuStreamWaitEvent");
    symbols.need(f.cuStreamIsCapturing, "cuStreamIsCapturing");
    symbols.need(f.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
    symbols.need(f.cuEventCreate, "cuEventCreate");
    symbols.need(f.cuEventDestroy, "cuEventDestroy_v2");
    symbols.need(f.cuEventRecord, "cuEventRecord");
    symbols.need(f.cuEventQuery, "cuEventQuery");
    symbols.need(f.cuMemAlloc, "cuMemAlloc_v2");
    symbols.need(f.cuMemFree, "cuMemFree_v2");
    symbols.need(f.cuMemHostAlloc, "cuMemHostAlloc");
    symbols.need(f.cuMemFreeHost, "cuMemFreeHost");
    symbols.need(f.cuMemcpyAsync, "cuMemcpyAsync");
    symbols.need(f.cuPointerGetAttribute, "cuPointerGetAttribute");
    check_symbols(symbols, cuda_file, opened.file);
    return f;
}

class CudaDriver final : public Driver {
 public:
    explicit CudaDriver(const OpenedDriver& opened) : file_(opened.file), call_(resolve(opened)) {
        check(call_.cuInit(0), "cuInit");
        int count = 0;
        check(call_.cuDeviceGetCount(&count), "cuDeviceGetCount");
        contexts_.resize(static_cast<std::size_t>(count), nullptr);
    }

    std::string file() const override { return file_; }
    int device_count() const override { return static_cast<int>(contexts_.size()); }

    int current() const override {
        int device = -1;
        return call_.cuCtxGetDevice(&device) == success ? device : -1;
    }

    void* use(int device) const override {
        void* const own = context(device);
        void* before = nullptr;
        check(call_.cuCtxGetCurrent(&before), "cuCtxGetCurrent");
        if (before != own) check(call_.cuCtxSetCurrent(own), "cuCtxSetCurrent");
        return before;
    }
    void put_back(void* before) const noexcept override {
        void* now = nullptr;
        // A thread that had no context keeps this one: CUDA's runtime would choose it, too.
        if (before != nullptr && call_.cuCtxGetCurrent(&now) == success && now != before) call_.cuCtxSetCurrent(before);
    }

    std::string identity(int device) const override {
        constexpr std::size_t uuid_bytes = 16;
        std::array<unsigned char, uuid_bytes> uuid{};
        if (call_.cuDeviceGetUuid != nullptr && call_.cuDeviceGetUuid(uuid.data(), handle(device)) == success)
            return {reinterpret_cast<const char*>(uuid.data()), uuid.size()};
        std::array<char, 64> bus{};
        check(call_.cuDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), handle(device)),
              "cuDeviceGetPCIBusId");
        return bus.data();
    }
    int capability(int device) const override {
        int major = 0, minor = 0;
        check(call_.cuDeviceGetAttribute(&major, capability_major, handle(device)), "cuDeviceGetAttribute");
        check(call_.cuDeviceGetAttribute(&minor, capability_minor, handle(device)), "cuDeviceGetAttribute");
        return major * 10 + minor;
    }

    StreamHandle make_stream(int device, bool high_priority) const override {
        const CurrentDevice current(*this, device);
        int least = 0, greatest = 0;
        check(call_.cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
        void* stream = nullptr;
        check(call_.cuStreamCreateWithPriority(&stream, own_order, high_priority ? greatest : least),
              "cuStreamCreateWithPriority");
        return stream;
    }
    void destroy_stream(StreamHandle stream) const noexcept override { call_.cuStreamDestroy(stream); }
    void wait_for_stream(StreamHandle stream) const override {
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        check(call_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }

    bool is_capturing(StreamHandle stream) const override {
        if (stream == nullptr || stream == legacy_stream) return false;  // CUDA refuses to capture it
        int status = 0;                                                  // CU_STREAM_CAPTURE_STATUS_NONE
        check(call_.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
        return status != 0;
    }

    EventHandle make_event(int device) const override {
        const CurrentDevice current(*this, device);
        void* event = nullptr;
        check(call_.cuEventCreate(&event, without_timing), "cuEventCreate");
        return event;
    }
    void destroy_event(EventHandle event) const noexcept override { call_.cuEventDestroy(event); }
    void record(EventHandle event, StreamHandle stream) const override {
        check(call_.cuEventRecord(event, stream), "cuEventRecord");
    }
    bool reached(EventHandle event) const override {
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        const Code code = call_.cuEventQuery(event);
        if (code != not_ready) check(code, "cuEventQuery");
        return code == success;
    }
    void make_wait(StreamHandle stream, EventHandle event) const override {
        check(call_.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
    }

    void* allocate(int device, std::size_t bytes) const override {
        const CurrentDevice current(*this, device);
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        Address memory = 0;
        check(call_.cuMemAlloc(&memory, bytes), "cuMemAlloc");
        return reinterpret_cast<void*>(memory);
    }
    void release(int, void* memory) const noexcept override {
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        call_.cuMemFree(address(memory));
    }
    void* allocate_host(std::size_t bytes) const override {
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        void* memory = nullptr;
        check(call_.cuMemHostAlloc(&memory, bytes, for_all_contexts), "cuMemHostAlloc");
        return memory;
    }
    void release_host(void* memory) const noexcept override {
        const BesideCaptures beside(call_.cuThreadExchangeStreamCaptureMode);
        call_.cuMemFreeHost(memory);
    }
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const override {
        if (bytes > 0) check(call_.cuMemcpyAsync(address(to), address(from), bytes, stream), "cuMemcpyAsync");
    }
    int device_of(const void* memory) const override {
        int kind = 0, device = -1;
        if (call_.cuPointerGetAttribute(&kind, memory_type, address(memory)) != success || kind != memory_is_device)
            return -1;
        return call_.cuPointerGetAttribute(&device, device_ordinal, address(memory)) == success ? device : -1;
    }

 private:
    void check(Code code, const char* function) const {
        if (code == success) return;
        const char* name = nullptr;
        const char* text = nullptr;
        call_.cuGetErrorName(code, &name);
        call_.cuGetErrorString(code, &text);
        throw DistBackendError(std::string(function) + ": " + (name == nullptr ? "error" : name) + " (" +
                               std::to_string(code) + (text == nullptr ? "" : ", " + std::string(text)) + "), from " +
                               file_);
    }

    int handle(int device) const {
        if (device < 0 || device >= device_count()) {
            throw DistBackendError("cuda:" + std::to_string(device) + " is no device here: expected one of the " +
                                   std::to_string(device_count()) + " that " + file_ + " has");
        }
        int found = 0;
        check(call_.cuDeviceGet(&found, device), "cuDeviceGet");
        return found;
    }

    // A device's primary context is the one that CUDA's runtime uses. It stays: the program's streams may live in it.
    DeviceContext context(int device) const {
        if (device >= 0 && device < device_count()) {
            const std::lock_guard lock(mutex_);
            DeviceContext& known = contexts_[static_cast<std::size_t>(device)];
            if (known == nullptr)
                check(call_.cuDevicePrimaryCtxRetain(&known, handle(device)), "cuDevicePrimaryCtxRetain");
            return known;
        }
        (void)handle(device);
        return nullptr;
    }

    const std::string file_;
    const Functions call_;
    mutable std::mutex mutex_;
    mutable std::vector<DeviceContext> contexts_;
};

}  // namespace

std::shared_ptr<const Driver> open_cuda_driver() {
    return std::make_shared<CudaDriver>(open_driver_file(cuda_file));
}

}  // namespace tutti::nccl
