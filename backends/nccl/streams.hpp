// Streams and events of a device that end with their owner; and the device that is none: host memory.
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

/// Host memory as a device: streams and events are null, copies are made before the call returns, everything recorded
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
    /// In a stream that is being captured into a graph.
    void record_captured(Driver::StreamHandle stream) {
        record(stream);
        captured_in_ = stream;
    }
    /// Throws what went wrong on the device. Of a captured one: the capture is over; it runs with the graph, and a
    /// driver that were asked for it would break the capture.
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

/// Events of a device that are used again.
class Events {
 public:
    Events(std::shared_ptr<const Driver> driver, int device) : driver_(std::move(driver)), device_(device) {}
    /// One that nobody else holds.
    std::shared_ptr<Event> take();
    std::shared_ptr<Event> record(Driver::StreamHandle stream) {
        auto event = take();
        event->record(stream);
        return event;
    }
    /// What comes into `stream` from now on waits for what `first` holds.
    void order(Driver::StreamHandle first, Driver::StreamHandle stream);

 private:
    const std::shared_ptr<const Driver> driver_;
    const int device_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<Event>> all_;
    std::size_t last_ = 0;            // that was taken
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

/// Memory of a device, or of the host where copies run to and from by themselves (`device` -1).
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
