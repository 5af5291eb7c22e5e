// Stream: an ordered, reliable pipe of bytes in both directions between two ranks. What every transport offers.
//
// Non-blocking: an operation moves what it can and says how much. Threads: one at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tutti::transport {

enum class StreamState { open, closed };

class Stream {
 public:
    virtual ~Stream() = default;
    /// Takes bytes from `header`, then from `payload`; returns how many in all (0: try again later).
    virtual std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
    /// Puts bytes into `into`, then into `ahead`; returns how many in all (0: nothing there now, or closed).
    virtual std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) = 0;
    virtual StreamState state() const noexcept = 0;
    /// Why it closed.
    virtual std::string reason() const = 0;
    /// A descriptor to poll for input, or -1 for memory.
    virtual int poll_fd() const noexcept = 0;
    /// A descriptor to poll for output when a write was short, or -1.
    virtual int poll_output_fd() const noexcept { return -1; }
};

}  // namespace tutti::transport
