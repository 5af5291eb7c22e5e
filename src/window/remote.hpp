// Remote: what a rank asks of the ranks of other hosts for one window.
//
// Threads: any; the order of a thread's requests to one rank is that of its calls.
#pragma once

#include "window/messages.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::window {

/// A signal that follows a put; value 0: none.
struct Raise {
    int signal = 0;
    std::uint64_t value = 0;
};

class Remote {
 public:
    Remote(Group& group, std::uint32_t number)
        : messages_(group, number), unflushed_(static_cast<std::size_t>(group.size())) {}

    /// Issues them; an operation that completes when `source` may be written, or `destination` read. `offset`: in
    /// bytes.
    std::shared_ptr<Operation> put(const char* name, int target, std::uint64_t offset,
                                   std::span<const std::byte> source, Raise raise, std::chrono::milliseconds timeout);
    std::shared_ptr<Operation> get(const char* name, int target, std::uint64_t offset, std::span<std::byte> destination,
                                   std::chrono::milliseconds timeout);
    /// An operation that completes when all requests before it have been carried out; null: there were none since the
    /// last one.
    std::shared_ptr<Operation> flush(int target, std::chrono::milliseconds timeout);

 private:
    const Messages messages_;
    std::mutex mutex_;  // from a request to the last message that belongs to it
    std::vector<bool> unflushed_;
};

}  // namespace tutti::window
