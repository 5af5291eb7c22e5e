// Streams: queues of a device's work, for operations on tensors that are not in host memory.
#pragma once

#include <tutti/export.hpp>
#include <tutti/tensor.hpp>

namespace tutti {

/// A cudaStream_t, hipStream_t, aclrtStream or sycl::queue*, borrowed. An empty Stream means, in options, the calling
/// thread's current stream; elsewhere, the device's default stream.
struct Stream {
    void* handle = nullptr;
    friend bool operator==(const Stream&, const Stream&) = default;
};

/// The stream that this thread's operations use if their options name none; empty at first. Python sets it to the
/// current stream of the library whose tensors it gets.
TUTTI_API Stream current_stream(Device::Type device) noexcept;
TUTTI_API void set_current_stream(Device::Type device, Stream stream) noexcept;

/// Sets the thread's current stream; the destructor restores the previous one.
class CurrentStream {
 public:
    CurrentStream(Device::Type device, Stream stream) noexcept : device_(device), before_(current_stream(device)) {
        set_current_stream(device, stream);
    }
    ~CurrentStream() { set_current_stream(device_, before_); }
    CurrentStream(const CurrentStream&) = delete;
    CurrentStream& operator=(const CurrentStream&) = delete;

 private:
    Device::Type device_;
    Stream before_;
};

}  // namespace tutti
