// Streams and events of a device that end with their owner; and host memory in the role of a device.
//
// Threads: any.
#pragma once

#include "nccl/driver.hpp"

#include <tutti/backend.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::nccl {

/// Host memory as a device: streams and events are null, copies are done when the call returns, every recorded event
/// has been reached.
std::shared_ptr<const Driver> host_driver();

/// A point in a stream.
class Event final : public DeviceEvent {
 public:
    explicit Event(std::shared_ptr<const Driver> driver, int device);
    ~Event() override;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(Driver::StreamHandle stream) { driver_->record(handle_, stream); }
    /// The same in a stream that a graph is capturing.
    void record_captured(Driver::StreamHandle stream) {
        record(stream);
        captured_in_ = stream;
    }
    /// Throws the device's error. For a captured event: whether the capture is over; the event runs with the graph, and
    /// a query of the driver would break the capture.
    bool reached() const;
    void make_wait(Stream stream) override;
    /// A stream of the plug-in's own, or a default one of the thread's device.
    void make_wait(Driver::StreamHandle stream) { driver_->make_wait(stream, handle_); }

 private:
    const std::shared_ptr<const Driver> driver_;
    const int device_;
    const Driver::EventHandle handle_;
    Driver::StreamHandle captured_in_ = nullptr;
};

/// A pool of events of a device.
class Events {
 public:
    Events(std::shared_ptr<const Driver> driver, int device) : driver_(std::move(driver)), device_(device) {}
    /// An event that nobody else holds.
    std::shared_ptr<Event> take();
    std::shared_ptr<Event> record(Driver::StreamHandle stream) {
        auto event = take();
        event->record(stream);
        return event;
    }
    /// Later work of `stream` waits for the work that `first` holds now.
    void order(Driver::StreamHandle first, Driver::StreamHandle stream);

 private:
    const std::shared_ptr<const Driver> driver_;
    const int device_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<Event>> all_;
    std::size_t last_ = 0;            // the last taken event
    std::unique_ptr<Event> between_;  // of order()
};

/// A stream of the plug-in's own.
class OwnStream {
 public:
    OwnStream(std::shared_ptr<const Driver> driver, int device, bool high_priority);
    ~OwnStream();
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    Driver::StreamHandle handle() const noexcept { return handle_; }

 private:
    const std::shared_ptr<const Driver> driver_;
    const Driver::StreamHandle handle_;
};

/// Memory of a device, or pinned memory of the host (`device` -1).
class Memory {
 public:
    Memory() = default;
    Memory(std::shared_ptr<const Driver> driver, int device, std::size_t bytes);
    ~Memory();
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&& other) noexcept;
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }

 private:
    std::shared_ptr<const Driver> driver_;
    int device_ = 0;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace tutti::nccl
