#include "nccl/streams.hpp"

#include <cstdint>
#include <utility>

namespace tutti::nccl {

Event::Event(std::shared_ptr<const Driver> driver, int device)
    : driver_(std::move(driver)), device_(device), handle_(driver_->make_event(device)) {}

Event::~Event() {
    driver_->destroy_event(handle_);
}

bool Event::reached() const {
    if (captured_in_ == nullptr) return driver_->reached(handle_);
    const CurrentDevice current(*driver_, device_);
    return !driver_->is_capturing(captured_in_);
}

// The default streams' handles (null, and CUDA's 1 and 2) mean those of the thread's device.
void Event::make_wait(Stream stream) {
    constexpr std::uintptr_t last_default = 2;
    if (reinterpret_cast<std::uintptr_t>(stream.handle) > last_default) return make_wait(stream.handle);
    const CurrentDevice current(*driver_, device_);
    make_wait(stream.handle);
}

// The events that were taken first are free first, unless a program keeps a Work.
std::shared_ptr<Event> Events::take() {
    constexpr int tries = 4;
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < tries && !all_.empty(); ++i) {
        last_ = last_ + 1 < all_.size() ? last_ + 1 : 0;
        if (all_[last_].use_count() == 1) return all_[last_];
    }
    last_ = all_.size();
    return all_.emplace_back(std::make_shared<Event>(driver_, device_));
}

// A wait is for the record that the event had at the call of make_wait(): one event is enough for all.
void Events::order(Driver::StreamHandle first, Driver::StreamHandle stream) {
    const std::lock_guard lock(mutex_);
    if (!between_) between_ = std::make_unique<Event>(driver_, device_);
    between_->record(first);
    between_->make_wait(stream);
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
