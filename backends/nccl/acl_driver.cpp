// AscendCL, for Huawei's devices. Numbers and signatures: acl_rt.h 1.15 (CANN 8.5), whose names are those of CANN 8.1.
//
// AscendCL wants every thread to have a device before it calls anything: a thread without one gets the last used one.
#include "nccl/driver_file.hpp"
#include "nccl/vendors.hpp"

#include <tutti/error.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr int repeated_initialize = 100002;         // ACL_ERROR_REPEAT_INITIALIZE: the program has done it
constexpr std::uint32_t event_flags = 0x1U | 0x2U;  // ACL_EVENT_SYNC: streams wait for it; ..._CAPTURE_STREAM_PROGRESS
constexpr int event_complete = 1;                   // ACL_EVENT_RECORDED_STATUS_COMPLETE
constexpr int malloc_huge_first = 0;                // ACL_MEM_MALLOC_HUGE_FIRST
constexpr int location_device = 1;                  // ACL_MEM_LOCATION_TYPE_DEVICE

// aclrtPtrAttributes; with room for fields to come.
struct PointerAttributes {
    std::uint32_t id;
    int type;
    std::uint32_t page_bytes;
    std::uint32_t reserved[4];
    char later[64];
};

struct AclFunctions {
    int (*aclInit)(const char* config);
    const char* (*aclGetRecentErrMsg)();
    int (*aclrtGetDeviceCount)(std::uint32_t* count);
    int (*aclrtGetDevice)(std::int32_t* device);
    int (*aclrtSetDevice)(std::int32_t device);
    int (*aclrtCreateStreamWithConfig)(void** stream, std::uint32_t priority, std::uint32_t flag);
    int (*aclrtDestroyStream)(void* stream);
    int (*aclrtSynchronizeStream)(void* stream);
    int (*aclrtStreamWaitEvent)(void* stream, void* event);
    int (*aclrtCreateEventExWithFlag)(void** event, std::uint32_t flag);
    int (*aclrtDestroyEvent)(void* event);
    int (*aclrtRecordEvent)(void* event, void* stream);
    int (*aclrtQueryEventStatus)(void* event, int* status);
    int (*aclrtMalloc)(void** memory, std::size_t bytes, int policy);
    int (*aclrtFree)(void* memory);
    int (*aclrtMallocHost)(void** memory, std::size_t bytes);
    int (*aclrtFreeHost)(void* memory);
    int (*aclrtMemcpyAsync)(void* to, std::size_t room, const void* from, std::size_t bytes, int kind, void* stream);
    int (*aclrtPointerGetAttributes)(const void* memory, PointerAttributes* attributes);
};

const DriverFile acl_file{"AscendCL", "TUTTI_ACL_LIB", {"libascendcl.so"}, "CANN 8.1 or later brings it"};

class AclDriver final : public Driver {
 public:
    AclDriver(const AclFunctions& functions, std::string file) : call_(functions), file_(std::move(file)) {
        const int code = call_.aclInit(nullptr);
        if (code != repeated_initialize) check(code, "aclInit");
    }

    std::string file() const override { return file_; }
    int device_count() const override {
        std::uint32_t count = 0;
        return call_.aclrtGetDeviceCount(&count) == 0 ? static_cast<int>(count) : 0;
    }
    int current() const override {
        std::int32_t device = 0;
        return call_.aclrtGetDevice(&device) == 0 ? device : -1;
    }
    void* use(int device) const override {
        const std::intptr_t before = current();
        check(call_.aclrtSetDevice(device), "aclrtSetDevice");
        last_device_ = device;
        return reinterpret_cast<void*>(before);
    }
    void put_back(void* before) const noexcept override {
        const auto device = static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(before));
        if (device >= 0) call_.aclrtSetDevice(device);
    }

    StreamHandle make_stream(int device, bool high_priority) const override {
        const CurrentDevice current(*this, device);
        StreamHandle stream = nullptr;
        check(call_.aclrtCreateStreamWithConfig(&stream, high_priority ? 0 : 7, 0), "aclrtCreateStreamWithConfig");
        return stream;
    }
    void destroy_stream(StreamHandle stream) const noexcept override {
        enter();
        call_.aclrtDestroyStream(stream);
    }
    void wait_for_stream(StreamHandle stream) const override {
        enter();
        check(call_.aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    }
    EventHandle make_event(int device) const override {
        const CurrentDevice current(*this, device);
        EventHandle event = nullptr;
        check(call_.aclrtCreateEventExWithFlag(&event, event_flags), "aclrtCreateEventExWithFlag");
        return event;
    }
    void destroy_event(EventHandle event) const noexcept override {
        enter();
        call_.aclrtDestroyEvent(event);
    }
    void record(EventHandle event, StreamHandle stream) const override {
        enter();
        check(call_.aclrtRecordEvent(event, stream), "aclrtRecordEvent");
    }
    bool reached(EventHandle event) const override {
        enter();
        int status = 0;
        check(call_.aclrtQueryEventStatus(event, &status), "aclrtQueryEventStatus");
        return status == event_complete;
    }
    void make_wait(StreamHandle stream, EventHandle event) const override {
        enter();
        check(call_.aclrtStreamWaitEvent(stream, event), "aclrtStreamWaitEvent");
    }

    void* allocate(int device, std::size_t bytes) const override {
        const CurrentDevice current(*this, device);
        void* memory = nullptr;
        check(call_.aclrtMalloc(&memory, bytes, malloc_huge_first), "aclrtMalloc");
        return memory;
    }
    void release(int, void* memory) const noexcept override {
        enter();
        call_.aclrtFree(memory);
    }
    void* allocate_host(std::size_t bytes) const override {
        enter();
        void* memory = nullptr;
        check(call_.aclrtMallocHost(&memory, bytes), "aclrtMallocHost");
        return memory;
    }
    void release_host(void* memory) const noexcept override {
        enter();
        call_.aclrtFreeHost(memory);
    }
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const override {
        // ACL_MEMCPY_HOST_TO_HOST 0, HOST_TO_DEVICE 1, DEVICE_TO_HOST 2, DEVICE_TO_DEVICE 3
        const int kind = (device_of(from) >= 0 ? 2 : 0) + (device_of(to) >= 0 ? 1 : 0);
        check(call_.aclrtMemcpyAsync(to, bytes, from, bytes, kind, stream), "aclrtMemcpyAsync");
    }
    int device_of(const void* memory) const override {
        enter();
        PointerAttributes attributes{};
        const bool known = call_.aclrtPointerGetAttributes(memory, &attributes) == 0;
        return known && attributes.type == location_device ? static_cast<int>(attributes.id) : -1;
    }

 private:
    void enter() const noexcept {
        thread_local bool has_device = false;
        if (has_device) return;
        if (current() < 0) call_.aclrtSetDevice(last_device_);
        has_device = true;
    }
    void check(int code, const char* call) const {
        if (code == 0) return;
        const char* words = call_.aclGetRecentErrMsg();  // of this thread; null: it has none
        throw DistBackendError(std::string("AscendCL: ") + call + ": error " + std::to_string(code) +
                               (words != nullptr && *words != '\0' ? std::string(", ") + words : std::string()) + " (" +
                               file_ + ")");
    }

    const AclFunctions call_;
    const std::string file_;
    mutable std::atomic<std::int32_t> last_device_{0};
};

std::shared_ptr<const Driver> load_acl() {
    const OpenedDriver opened = open_driver_file(acl_file);
    Symbols symbols(opened.handle);
    AclFunctions f{};
    symbols.need(f.aclInit, "aclInit");
    symbols.need(f.aclGetRecentErrMsg, "aclGetRecentErrMsg");
    symbols.need(f.aclrtGetDeviceCount, "aclrtGetDeviceCount");
    symbols.need(f.aclrtGetDevice, "aclrtGetDevice");
    symbols.need(f.aclrtSetDevice, "aclrtSetDevice");
    symbols.need(f.aclrtCreateStreamWithConfig, "aclrtCreateStreamWithConfig");
    symbols.need(f.aclrtDestroyStream, "aclrtDestroyStream");
    symbols.need(f.aclrtSynchronizeStream, "aclrtSynchronizeStream");
    symbols.need(f.aclrtStreamWaitEvent, "aclrtStreamWaitEvent");
    symbols.need(f.aclrtCreateEventExWithFlag, "aclrtCreateEventExWithFlag");
    symbols.need(f.aclrtDestroyEvent, "aclrtDestroyEvent");
    symbols.need(f.aclrtRecordEvent, "aclrtRecordEvent");
    symbols.need(f.aclrtQueryEventStatus, "aclrtQueryEventStatus");
    symbols.need(f.aclrtMalloc, "aclrtMalloc");
    symbols.need(f.aclrtFree, "aclrtFree");
    symbols.need(f.aclrtMallocHost, "aclrtMallocHost");
    symbols.need(f.aclrtFreeHost, "aclrtFreeHost");
    symbols.need(f.aclrtMemcpyAsync, "aclrtMemcpyAsync");
    symbols.need(f.aclrtPointerGetAttributes, "aclrtPointerGetAttributes");
    check_symbols(symbols, acl_file, opened.file);
    return std::make_shared<AclDriver>(f, opened.file);
}

}  // namespace

std::shared_ptr<const Driver> open_acl_driver() {
    // Groups may outlive static objects. An exception leaves the next call to try again.
    static const auto& driver = *new std::shared_ptr<const Driver>(load_acl());
    return driver;
}

}  // namespace tutti::nccl
