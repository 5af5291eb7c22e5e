// The plug-in's view of a device: streams, events, copies. CUDA's driver (libcuda.so.1), which every machine with a GPU
// has; HIP and AscendCL by adapters. Opening the library resolves all functions.
#pragma once

#include <tutti/tensor.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::nccl {

/// Errors are thrown as DistBackendError with the driver's name for them, the function and the driver's file.
/// All functions: any thread; a null stream is the default stream of the device that is the thread's (use()).
class Driver {
 public:
    using StreamHandle = void*;
    using EventHandle = void*;

    virtual ~Driver() = default;
    virtual std::string file() const = 0;  ///< of the library
    virtual int device_count() const = 0;
    /// False: host memory alone; there are no streams then, and copies are done when they return.
    virtual bool has_streams() const { return true; }
    virtual int current() const { return -1; }  ///< the thread's device; -1: it has none yet
    /// Makes `device` this thread's, and returns the previous one, for put_back(). Throws if there is no such device.
    virtual void* use(int device) const = 0;
    virtual void put_back(void* before) const noexcept = 0;
    virtual std::string identity(int /*device*/) const { return {}; }  ///< the same in all processes of a host
    virtual int capability(int /*device*/) const { return 0; }         ///< CUDA's compute capability: 90 is 9.0
    virtual StreamHandle make_stream(int device, bool high_priority) const = 0;
    virtual void destroy_stream(StreamHandle stream) const noexcept = 0;
    virtual void wait_for_stream(StreamHandle stream) const = 0;  ///< blocks
    /// Whether the stream's work goes into a graph that runs later. Meanwhile the other functions do no harm to the
    /// program's captures, in any thread.
    virtual bool is_capturing(StreamHandle /*stream*/) const { return false; }
    virtual EventHandle make_event(int device) const = 0;
    virtual void destroy_event(EventHandle event) const noexcept = 0;
    virtual void record(EventHandle event, StreamHandle stream) const = 0;
    virtual bool reached(EventHandle event) const = 0;  ///< throws the device's error
    virtual void make_wait(StreamHandle stream, EventHandle event) const = 0;
    /// Device memory of the plug-in's own, and pinned host memory, which the device copies to and from by itself.
    virtual void* allocate(int device, std::size_t bytes) const = 0;
    virtual void release(int device, void* memory) const noexcept = 0;
    virtual void* allocate_host(std::size_t bytes) const = 0;
    virtual void release_host(void* memory) const noexcept = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes,
                      StreamHandle stream) const = 0;  ///< any directions
    /// The device of memory; -1: none of this driver's.
    virtual int device_of(const void* memory) const = 0;
};

/// Makes a device the thread's for a block.
class CurrentDevice {
 public:
    CurrentDevice(const Driver& driver, int device) : driver_(driver), before_(driver.use(device)) {}
    ~CurrentDevice() { driver_.put_back(before_); }
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
    const Driver& driver_;
    void* const before_;
};

/// Opens the driver of a kind of devices, once. Throws DistBackendError that names the library it looked for, and the
/// missing functions. cuda: TUTTI_CUDA_LIB, or libcuda.so.1.
std::shared_ptr<const Driver> open_driver(Device::Type device);
/// Other plug-ins bring drivers of their own kinds of devices, before the first open_driver().
void provide_driver(Device::Type device, std::shared_ptr<const Driver> (*open)());
/// CUDA's.
std::shared_ptr<const Driver> open_cuda_driver();

}  // namespace tutti::nccl
