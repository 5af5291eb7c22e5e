// Drivers by their kind of device, each opened once; and that of host memory.
#include "nccl/driver.hpp"
#include "nccl/streams.hpp"

#include <tutti/error.hpp>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

namespace tutti::nccl {
namespace {

class HostDriver final : public Driver {
 public:
    std::string file() const override { return "host memory"; }
    int device_count() const override { return 1; }
    bool has_streams() const override { return false; }
    int current() const override { return 0; }
    void* use(int) const override { return nullptr; }
    void put_back(void*) const noexcept override {}
    StreamHandle make_stream(int, bool) const override { return nullptr; }
    void destroy_stream(StreamHandle) const noexcept override {}
    void wait_for_stream(StreamHandle) const override {}
    EventHandle make_event(int) const override { return nullptr; }
    void destroy_event(EventHandle) const noexcept override {}
    void record(EventHandle, StreamHandle) const override {}
    bool reached(EventHandle) const override { return true; }
    void make_wait(StreamHandle, EventHandle) const override {}
    void* allocate(int, std::size_t bytes) const override { return allocate_host(bytes); }
    void release(int, void* memory) const noexcept override { release_host(memory); }
    void* allocate_host(std::size_t bytes) const override {
        constexpr std::size_t cache_line = 64;
        void* memory = std::aligned_alloc(cache_line, (bytes + cache_line - 1) / cache_line * cache_line);
        if (memory == nullptr) throw std::bad_alloc();
        return memory;
    }
    void release_host(void* memory) const noexcept override { std::free(memory); }
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle) const override {
        if (bytes > 0) std::memmove(to, from, bytes);
    }
    int device_of(const void*) const override { return -1; }
};

struct Drivers {
    std::mutex mutex;
    std::map<Device::Type, std::shared_ptr<const Driver> (*)()> known{{Device::Type::cuda, &open_cuda_driver}};
    std::map<Device::Type, std::shared_ptr<const Driver>> open;
};
Drivers& drivers() {
    static auto* const one = new Drivers;  // groups may outlive static objects
    return *one;
}

}  // namespace

std::shared_ptr<const Driver> host_driver() {
    static const auto* const one = new std::shared_ptr<const Driver>(std::make_shared<HostDriver>());
    return *one;
}

void provide_driver(Device::Type device, std::shared_ptr<const Driver> (*open)()) {
    const std::lock_guard lock(drivers().mutex);
    drivers().known[device] = open;
}

std::shared_ptr<const Driver> open_driver(Device::Type device) {
    if (device == Device::Type::cpu) return host_driver();
    const std::lock_guard lock(drivers().mutex);
    auto& driver = drivers().open[device];
    if (driver) return driver;
    const auto found = drivers().known.find(device);
    if (found == drivers().known.end()) {
        throw DistBackendError("no driver for tensors on " + to_string(Device{device, 0}) +
                               ": expected a device that this backend serves");
    }
    driver = found->second();  // a failed call is repeated the next time
    return driver;
}

}  // namespace tutti::nccl
