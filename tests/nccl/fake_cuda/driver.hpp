// All that the fake knows: devices, streams, events, memory; and what every function of the driver begins with.
//
// Lives until the process ends: threads of streams may outlast main().
#pragma once

#include "capture.hpp"
#include "cuda.hpp"
#include "faults.hpp"
#include "memory.hpp"
#include "stream.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fake_cuda {

enum Error : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    no_device = 100,
    invalid_device = 101,
    invalid_context = 201,
    invalid_handle = 400,
    illegal_state = 401,
    not_ready = 600,
    illegal_address = 700,
    context_is_destroyed = 709,
    launch_failed = 719,
    not_permitted = 800,
    capture_unsupported = 900,
    capture_invalidated = 901,
    capture_merge = 902,
    capture_unmatched = 903,
    capture_unjoined = 904,
    capture_isolation = 905,
    capture_implicit = 906,
    captured_event = 907,
    capture_wrong_thread = 908,
};

inline constexpr int least_priority = 0;
inline constexpr int greatest_priority = -5;

/// Objects by numbers that are never used again, so that a handle of what is gone is known for what it is.
template <class T, class Handle>
class Handles {
 public:
    Handle add(std::shared_ptr<T> object) {
        const std::lock_guard lock(mutex_);
        last_ += 0x1000;
        objects_[last_] = std::move(object);
        return reinterpret_cast<Handle>(last_);
    }
    std::shared_ptr<T> find(Handle handle) const {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        return found != objects_.end() ? found->second : nullptr;
    }
    bool remove(Handle handle) {
        std::shared_ptr<T> object;
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) return false;
        object = std::move(found->second);
        objects_.erase(found);
        return true;
    }
    std::vector<std::shared_ptr<T>> all() const {
        const std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<T>> objects;
        for (const auto& [handle, object] : objects_) objects.push_back(object);
        return objects;
    }

 private:
    mutable std::mutex mutex_;
    std::map<std::uintptr_t, std::shared_ptr<T>> objects_;
    std::uintptr_t last_ = 0x10000;
};

struct Device {
    explicit Device(int device_index) : index(device_index) {}
    CUcontext context() { return reinterpret_cast<CUcontext>(this); }
    /// What broke it, or 0. It stays broken.
    int error() const { return error_.load(); }
    void break_with(int error) { error_.store(error); }

    const int index;
    std::atomic<int> retained{0};
    std::mutex mutex;  // the order of what is pushed into its streams
    std::shared_ptr<Stream> legacy;
    std::vector<MarkerPtr> departed;  // the ends of streams that were destroyed before they were through

 private:
    std::atomic<int> error_{0};
};

class Driver {
 public:
    Driver();

    int init();
    bool initialized() const { return initialized_; }
    Device* device(int index) const;
    Device* device_of(CUcontext context) const;
    int device_count() const { return static_cast<int>(devices_.size()); }

    /// A stream of the caller's, or the legacy default stream of `device` for null and CU_STREAM_LEGACY.
    std::shared_ptr<Stream> stream(CUstream handle, Device& device);
    /// Pushes behind what the stream must wait for; `event`: too.
    MarkerPtr push(Stream& stream, std::function<void()> run, const MarkerPtr& event = nullptr);
    /// Pushes it, or makes it a node of the graph that the stream is captured into. `end`: null then.
    int enqueue(Stream& stream, std::function<void()> run, MarkerPtr* end = nullptr);
    /// The ends of all that is under way on a device.
    std::vector<MarkerPtr> tails(Device& device);

    Faults faults;
    Memory memory;
    Handles<Stream, CUstream> streams;
    Handles<Event, CUevent> events;
    Captures captures;
    Handles<Graph, CUgraph> graphs;
    Handles<Graph, CUgraphExec> runnable_graphs;
    std::mutex mutex;  // Event::recorded
    std::atomic<unsigned> delay_us{0};

 private:
    std::vector<std::unique_ptr<Device>> devices_;
    std::atomic<bool> initialized_{false};
};

Driver& driver();

/// While it lives, this thread runs a host function or a kernel, which may not call the driver.
class InHostFunction {
 public:
    InHostFunction();
    ~InHostFunction();
};

enum class Needs { nothing, initialized, context };
/// Whether it may be called while a stream is captured, as far as modes say.
enum class Beside { captures, no_capture };

/// A call of one of the driver's functions: counts it, and says what is in its way.
class Call {
 public:
    Call(const char* name, Needs needs, Beside beside = Beside::captures);
    int error = success;
    Device* device = nullptr;  // of the current context
};

/// The thread's stack of contexts; the last one is current.
std::vector<CUcontext>& contexts();

}  // namespace fake_cuda
