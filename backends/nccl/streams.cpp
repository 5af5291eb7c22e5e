#include "nccl/streams.hpp"

#include <cstdint>
#include <utility>

namespace tutti::nccl {

Event::Event(std::shared_ptr<const Driver> driver, int device)
    : driver_(std::move(driver)), device_(device), handle_(driver_->make_event(device)) {}

Event::~Event() {
    driver_->destroy_event(handle_);
}

// The default streams' handles (null, and CUDA's 1 and 2) mean those of the thread's device.
void Event::make_wait(Stream stream) {
    constexpr std::uintptr_t last_default = 2;
    if (reinterpret_cast<std::uintptr_t>(stream.handle) > last_default) return make_wait(stream.handle);
    const CurrentDevice current(*driver_, device_);
    make_wait(stream.handle);
}

std::shared_ptr<Event> Events::take() {
    std::unique_ptr<Event> event;
    {
        const std::lock_guard lock(mutex_);
        if (!free_.empty()) {
            event = std::move(free_.back());
            free_.pop_back();
        }
    }
    if (!event) event = std::make_unique<Event>(driver_, device_);
    return {event.release(), [pool = weak_from_this()](Event* over) {
                std::unique_ptr<Event> back(over);
                if (const auto events = pool.lock()) {
                    const std::lock_guard lock(events->mutex_);
                    events->free_.push_back(std::move(back));
                }
            }};
}

OwnStream::OwnStream(std::shared_ptr<const Driver> driver, int device, bool high_priority)
    : driver_(std::move(driver)), handle_(driver_->make_stream(device, high_priority)) {}

OwnStream::~OwnStream() {
    driver_->destroy_stream(handle_);
}

Memory::Memory(std::shared_ptr<const Driver> driver, int device, std::size_t bytes)
    : driver_(std::move(driver)),
      device_(device),
      data_(bytes == 0 ? nullptr
                       : static_cast<std::byte*>(device < 0 ? driver_->allocate_host(bytes)
                                                            : driver_->allocate(device, bytes))),
      bytes_(bytes) {}

Memory::~Memory() {
    if (data_ == nullptr) return;
    if (device_ < 0)
        driver_->release_host(data_);
    else
        driver_->release(device_, data_);
}

Memory::Memory(Memory&& other) noexcept
    : driver_(std::move(other.driver_)),
      device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

}  // namespace tutti::nccl
