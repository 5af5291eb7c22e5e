// What the plug-in needs of a device: streams, events, copies. CUDA's driver (libcuda.so.1), which is wherever a GPU is;
// HIP and AscendCL by adapters. All functions are resolved when the library is opened.
#pragma once

#include <tutti/tensor.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::nccl {

/// Errors are thrown as DistBackendError with the driver's name for them, the function and the driver's file.
/// All functions: any thread; those that take a device index make it the thread's current one.
class Driver {
 public:
    using StreamHandle = void*;
    using EventHandle = void*;

    virtual ~Driver() = default;
    virtual std::string file() const = 0;  ///< of the library
    virtual int device_count() const = 0;
    virtual void use(int device) const = 0;  ///< makes it this thread's
    virtual StreamHandle make_stream(int device, bool high_priority) const = 0;
    virtual void destroy_stream(StreamHandle stream) const noexcept = 0;
    virtual void wait_for_stream(StreamHandle stream) const = 0;  ///< blocks
    virtual EventHandle make_event(int device) const = 0;
    virtual void destroy_event(EventHandle event) const noexcept = 0;
    virtual void record(EventHandle event, StreamHandle stream) const = 0;
    virtual bool reached(EventHandle event) const = 0;  ///< throws what went wrong on the device
    virtual void make_wait(StreamHandle stream, EventHandle event) const = 0;
    /// Device memory of the plug-in's own, and host memory that copies run to and from by themselves.
    virtual void* allocate(int device, std::size_t bytes) const = 0;
    virtual void release(int device, void* memory) const noexcept = 0;
    virtual void* allocate_host(std::size_t bytes) const = 0;
    virtual void release_host(void* memory) const noexcept = 0;
    virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const = 0;  ///< any directions
    /// Of memory; -1: it is not on a device of this driver's.
    virtual int device_of(const void* memory) const = 0;
};

/// Opens the driver of a kind of devices, once. Throws DistBackendError that says which library it looked for, and what
/// is missing. cuda: TUTTI_CUDA_LIB, or libcuda.so.1.
std::shared_ptr<const Driver> open_driver(Device::Type device);

}  // namespace tutti::nccl
