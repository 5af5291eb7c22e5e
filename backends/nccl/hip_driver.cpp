// HIP's runtime, for AMD's devices. Numbers and signatures: hip_runtime_api.h of ROCm 5.2 to 7; each difference between
// them is noted at its place.
#include "nccl/beside_captures.hpp"
#include "nccl/driver_file.hpp"
#include "nccl/vendors.hpp"

#include <tutti/error.hpp>

#include <cstdint>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr int not_ready = 600;                 // hipErrorNotReady
constexpr unsigned stream_non_blocking = 0x1;  // hipStreamNonBlocking: apart from the default stream
constexpr unsigned event_disable_timing = 0x2;
constexpr int memcpy_default = 4;  // hipMemcpyDefault: the direction is the pointers'

// hipPointerAttribute_t; with room for fields to come.
struct PointerAttributes {
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
    int is_managed;
    unsigned allocation_flags;
    char later[64];
};

struct HipFunctions {
    int (*hipGetDeviceCount)(int* count);
    int (*hipRuntimeGetVersion)(int* version);
    int (*hipGetDevice)(int* device);
    int (*hipSetDevice)(int device);
    int (*hipDeviceGetPCIBusId)(char* id, int room, int device);
    int (*hipDeviceGetStreamPriorityRange)(int* least, int* greatest);
    int (*hipStreamCreateWithPriority)(void** stream, unsigned flags, int priority);
    int (*hipStreamDestroy)(void* stream);
    int (*hipStreamSynchronize)(void* stream);
    int (*hipStreamWaitEvent)(void* stream, void* event, unsigned flags);
    int (*hipStreamIsCapturing)(void* stream, int* status);
    int (*hipThreadExchangeStreamCaptureMode)(int* mode);
    int (*hipEventCreateWithFlags)(void** event, unsigned flags);
    int (*hipEventDestroy)(void* event);
    int (*hipEventRecord)(void* event, void* stream);
    int (*hipEventQuery)(void* event);
    int (*hipMalloc)(void** memory, std::size_t bytes);
    int (*hipFree)(void* memory);
    int (*hipHostMalloc)(void** memory, std::size_t bytes, unsigned flags);
    int (*hipHostFree)(void* memory);
    int (*hipMemcpyAsync)(void* to, const void* from, std::size_t bytes, int kind, void* stream);
    int (*hipPointerGetAttributes)(PointerAttributes* attributes, const void* memory);
    int (*hipGetLastError)();
    const char* (*hipGetErrorName)(int code);
    const char* (*hipGetErrorString)(int code);
};

const DriverFile hip_file{"HIP",
                          "TUTTI_HIP_LIB",
                          {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
                          "ROCm brings it"};

class HipDriver final : public Driver {
 public:
    HipDriver(const HipFunctions& functions, std::string file) : call_(functions), file_(std::move(file)) {
        int version = 0;
        check(call_.hipRuntimeGetVersion(&version), "hipRuntimeGetVersion");
        device_type_ = version / 10'000'000 >= 6 ? 2 : 1;
    }

    std::string file() const override { return file_; }
    int device_count() const override {
        int count = 0;
        return call_.hipGetDeviceCount(&count) == 0 ? count : 0;  // HIP calls it an error to have none
    }
    int current() const override {
        int device = 0;
        return call_.hipGetDevice(&device) == 0 ? device : -1;
    }
    void* use(int device) const override {
        const std::intptr_t before = current();
        check(call_.hipSetDevice(device), "hipSetDevice");
        return reinterpret_cast<void*>(before);
    }
    void put_back(void* before) const noexcept override {
        const auto device = static_cast<int>(reinterpret_cast<std::intptr_t>(before));
        if (device >= 0) call_.hipSetDevice(device);
    }
    std::string identity(int device) const override {
        char id[32] = {};
        check(call_.hipDeviceGetPCIBusId(id, sizeof id - 1, device), "hipDeviceGetPCIBusId");
        return id;
    }

    StreamHandle make_stream(int device, bool high_priority) const override {
        const CurrentDevice current(*this, device);
        int least = 0, greatest = 0;
        check(call_.hipDeviceGetStreamPriorityRange(&least, &greatest), "hipDeviceGetStreamPriorityRange");
        StreamHandle stream = nullptr;
        check(call_.hipStreamCreateWithPriority(&stream, stream_non_blocking, high_priority ? greatest : least),
              "hipStreamCreateWithPriority");
        return stream;
    }
    void destroy_stream(StreamHandle stream) const noexcept override { call_.hipStreamDestroy(stream); }
    void wait_for_stream(StreamHandle stream) const override {
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        check(call_.hipStreamSynchronize(stream), "hipStreamSynchronize");
    }
    bool is_capturing(StreamHandle stream) const override {
        if (stream == nullptr) return false;  // HIP refuses to capture the default stream
        int status = 0;                       // hipStreamCaptureStatusNone
        check(call_.hipStreamIsCapturing(stream, &status), "hipStreamIsCapturing");
        return status != 0;
    }
    EventHandle make_event(int device) const override {
        const CurrentDevice current(*this, device);
        EventHandle event = nullptr;
        check(call_.hipEventCreateWithFlags(&event, event_disable_timing), "hipEventCreateWithFlags");
        return event;
    }
    void destroy_event(EventHandle event) const noexcept override { call_.hipEventDestroy(event); }
    void record(EventHandle event, StreamHandle stream) const override {
        check(call_.hipEventRecord(event, stream), "hipEventRecord");
    }
    bool reached(EventHandle event) const override {
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        const int code = call_.hipEventQuery(event);
        if (code != not_ready) check(code, "hipEventQuery");
        return code == 0;
    }
    void make_wait(StreamHandle stream, EventHandle event) const override {
        check(call_.hipStreamWaitEvent(stream, event, 0), "hipStreamWaitEvent");
    }

    void* allocate(int device, std::size_t bytes) const override {
        const CurrentDevice current(*this, device);
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        void* memory = nullptr;
        check(call_.hipMalloc(&memory, bytes), "hipMalloc");
        return memory;
    }
    void release(int, void* memory) const noexcept override {
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        call_.hipFree(memory);
    }
    void* allocate_host(std::size_t bytes) const override {
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        void* memory = nullptr;
        check(call_.hipHostMalloc(&memory, bytes, 0), "hipHostMalloc");
        return memory;
    }
    void release_host(void* memory) const noexcept override {
        const BesideCaptures beside(call_.hipThreadExchangeStreamCaptureMode);
        call_.hipHostFree(memory);
    }
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const override {
        check(call_.hipMemcpyAsync(to, from, bytes, memcpy_default, stream), "hipMemcpyAsync");
    }
    int device_of(const void* memory) const override {
        PointerAttributes attributes{};
        if (call_.hipPointerGetAttributes(&attributes, memory) != 0) {
            call_.hipGetLastError();  // unknown memory is an error, which stays until this call
            return -1;
        }
        return attributes.type == device_type_ || attributes.is_managed != 0 ? attributes.device : -1;
    }

 private:
    void check(int code, const char* call) const {
        if (code == 0) return;
        throw DistBackendError(std::string("HIP: ") + call + ": " + call_.hipGetErrorName(code) + ", " +
                               call_.hipGetErrorString(code) + " (" + file_ + ")");
    }

    const HipFunctions call_;
    const std::string file_;
    int device_type_ = 2;  // hipMemoryTypeDevice: 1 until ROCm 5, 2 from 6 on
};

std::shared_ptr<const Driver> load_hip() {
    const OpenedDriver opened = open_driver_file(hip_file);
    Symbols symbols(opened.handle);
    HipFunctions f{};
    symbols.need(f.hipGetDeviceCount, "hipGetDeviceCount");
    symbols.need(f.hipRuntimeGetVersion, "hipRuntimeGetVersion");
    symbols.need(f.hipGetDevice, "hipGetDevice");
    symbols.need(f.hipSetDevice, "hipSetDevice");
    symbols.need(f.hipDeviceGetPCIBusId, "hipDeviceGetPCIBusId");
    symbols.need(f.hipDeviceGetStreamPriorityRange, "hipDeviceGetStreamPriorityRange");
    symbols.need(f.hipStreamCreateWithPriority, "hipStreamCreateWithPriority");
    symbols.need(f.hipStreamDestroy, "hipStreamDestroy");
    symbols.need(f.hipStreamSynchronize, "hipStreamSynchronize");
    symbols.need(f.hipStreamWaitEvent, "hipStreamWaitEvent");
    symbols.need(f.hipStreamIsCapturing, "hipStreamIsCapturing");
    symbols.need(f.hipThreadExchangeStreamCaptureMode, "hipThreadExchangeStreamCaptureMode");
    symbols.need(f.hipEventCreateWithFlags, "hipEventCreateWithFlags");
    symbols.need(f.hipEventDestroy, "hipEventDestroy");
    symbols.need(f.hipEventRecord, "hipEventRecord");
    symbols.need(f.hipEventQuery, "hipEventQuery");
    symbols.need(f.hipMalloc, "hipMalloc");
    symbols.need(f.hipFree, "hipFree");
    symbols.need(f.hipHostMalloc, "hipHostMalloc");
    symbols.need(f.hipHostFree, "hipHostFree");
    symbols.need(f.hipMemcpyAsync, "hipMemcpyAsync");
    symbols.need(f.hipPointerGetAttributes, "hipPointerGetAttributes");
    symbols.need(f.hipGetLastError, "hipGetLastError");
    symbols.need(f.hipGetErrorName, "hipGetErrorName");
    symbols.need(f.hipGetErrorString, "hipGetErrorString");
    check_symbols(symbols, hip_file, opened.file);
    return std::make_shared<HipDriver>(f, opened.file);
}

}  // namespace

std::shared_ptr<const Driver> open_hip_driver() {
    // Groups may outlive static objects. An exception leaves the next call to try again.
    static const auto& driver = *new std::shared_ptr<const Driver>(load_hip());
    return driver;
}

}  // namespace tutti::nccl
