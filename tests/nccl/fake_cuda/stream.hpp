// Streams: queues of operations, each with a thread of its own that carries them out one after the other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fake_cuda {

struct Device;

/// A place in a stream: reached, or not yet.
class Marker {
 public:
    void reach();
    bool reached() const;
    void wait() const;

 private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool reached_ = false;
};
using MarkerPtr = std::shared_ptr<Marker>;

struct Operation {
    std::vector<MarkerPtr> after;  // of other streams
    std::function<void()> run;     // may be empty
    MarkerPtr end;
};

/// Threads: any; the order of push() is the caller's (Device::mutex).
class Stream {
 public:
    enum class Kind { blocking, non_blocking, legacy };

    Stream(Device& device, Kind kind, int priority);
    /// What was pushed is still carried out; nobody waits for it.
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    MarkerPtr push(std::function<void()> run, std::vector<MarkerPtr> after);
    /// The end of what is in it; null: nothing ever was.
    MarkerPtr tail() const;

    Device& device;
    const Kind kind;
    const int priority;

 private:
    struct Queue {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<Operation> operations;
        bool closed = false;
    };
    static void work(const std::shared_ptr<Queue>& queue, Device& device);

    std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
    MarkerPtr tail_;
};

struct Capture;

struct Event {
    explicit Event(Device& event_device) : device(event_device) {}
    Device& device;
    MarkerPtr recorded;  // guarded by Driver::mutex; null: never, or in a stream that was captured
    // Guarded by Captures: where it was recorded in a captured stream.
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> nodes;
};

}  // namespace fake_cuda
