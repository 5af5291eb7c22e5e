// SYCL, for Intel's devices, by libtutti-sycl.so. SYCL knows no current device of a thread; this driver remembers one,
// since oneCCL needs to know it (xccl.cpp), and since a null stream is that device's default queue.
#include "nccl/sycl_driver.hpp"

#include "nccl/driver_file.hpp"
#include "nccl/vendors.hpp"

#include <tutti/error.hpp>

#include <cstdint>
#include <utility>

namespace tutti::nccl {
namespace {

thread_local int thread_device = -1;

const DriverFile sycl_file{
    "SYCL", "TUTTI_SYCL_LIB", {"libtutti-sycl.so"}, "tutti's build makes it where it finds SYCL's headers and library"};

class SyclDriver final : public Driver {
 public:
    SyclDriver(const TuttiSycl& functions, std::string file) : call_(functions), file_(std::move(file)) {}

    std::string file() const override { return file_; }
    int device_count() const override { return call_.device_count(); }
    int current() const override { return thread_device; }
    void* use(int device) const override {
        if (device < 0 || device >= device_count()) {
            throw DistBackendError("SYCL: there is no device xpu:" + std::to_string(device) + ": this process sees " +
                                   std::to_string(device_count()) + " (" + file_ + ")");
        }
        return reinterpret_cast<void*>(static_cast<std::intptr_t>(std::exchange(thread_device, device)));
    }
    void put_back(void* before) const noexcept override {
        thread_device = static_cast<int>(reinterpret_cast<std::intptr_t>(before));
    }

    StreamHandle make_stream(int device, bool high_priority) const override {
        StreamHandle stream = nullptr;
        check(call_.make_queue(device, high_priority ? 1 : 0, &stream), "a queue");
        return stream;
    }
    void destroy_stream(StreamHandle stream) const noexcept override { call_.destroy_queue(stream); }
    void wait_for_stream(StreamHandle stream) const override {
        check(call_.wait_for_queue(queue_of(stream)), "waiting for a queue");
    }
    EventHandle make_event(int) const override {
        EventHandle event = nullptr;
        check(call_.make_event(&event), "an event");
        return event;
    }
    void destroy_event(EventHandle event) const noexcept override { call_.destroy_event(event); }
    void record(EventHandle event, StreamHandle stream) const override {
        check(call_.record(event, queue_of(stream)), "recording an event");
    }
    bool reached(EventHandle event) const override {
        int yes = 0;
        check(call_.reached(event, &yes), "asking for an event");
        return yes != 0;
    }
    void make_wait(StreamHandle stream, EventHandle event) const override {
        check(call_.make_wait(queue_of(stream), event), "waiting for an event");
    }

    void* allocate(int device, std::size_t bytes) const override {
        void* memory = nullptr;
        check(call_.allocate(device, bytes, &memory), "device memory");
        return memory;
    }
    void release(int device, void* memory) const noexcept override { call_.release(device, memory); }
    void* allocate_host(std::size_t bytes) const override {
        void* memory = nullptr;
        check(call_.allocate_host(bytes, &memory), "host memory");
        return memory;
    }
    void release_host(void* memory) const noexcept override { call_.release_host(memory); }
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const override {
        check(call_.copy(to, from, bytes, queue_of(stream)), "a copy");
    }
    int device_of(const void* memory) const override { return call_.device_of(memory); }

 private:
    void* queue_of(StreamHandle stream) const {
        return stream != nullptr ? stream : call_.default_queue(thread_device < 0 ? 0 : thread_device);
    }
    void check(const char* error, const char* what) const {
        if (error == nullptr) return;
        throw DistBackendError(std::string("SYCL: ") + what + ": " + error + " (" + file_ + ")");
    }

    const TuttiSycl& call_;
    const std::string file_;
};

std::shared_ptr<const Driver> load_sycl() {
    const OpenedDriver opened = open_driver_file(sycl_file);
    Symbols symbols(opened.handle);
    const TuttiSycl* (*functions)() = nullptr;
    symbols.need(functions, "tutti_sycl");
    check_symbols(symbols, sycl_file, opened.file);
    const TuttiSycl* table = functions();
    if (table->version != TUTTI_SYCL_VERSION) {
        throw DistBackendError("SYCL: " + opened.file + " is of version " + std::to_string(table->version) +
                               ": expected " + std::to_string(TUTTI_SYCL_VERSION));
    }
    if (table->device_count() == 0) throw DistBackendError("SYCL: " + opened.file + " sees no device of Intel's");
    return std::make_shared<SyclDriver>(*table, opened.file);
}

}  // namespace

std::shared_ptr<const Driver> open_sycl_driver() {
    // Groups may outlive static objects. An exception leaves the next call to try again.
    static const auto& driver = *new std::shared_ptr<const Driver>(load_sycl());
    return driver;
}

}  // namespace tutti::nccl
