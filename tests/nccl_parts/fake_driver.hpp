// A device that is none, for tests of the plug-in's parts: its memory is the host's, its streams are threads that work
// off what they hold, later than the call. Tests may make a stream wait, and make copies fail.
//
// Threads: any.
#pragma once

#include "nccl/driver.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

/// Something that happens once.
class Flag {
 public:
    void set();
    bool is_set() const;
    /// Whether it happened in that time.
    bool wait(std::chrono::milliseconds limit) const;

 private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool set_ = false;
};

class FakeDriver final : public nccl::Driver {
 public:
    static constexpr int devices = 4;
    /// The one that open_driver(cuda) finds in this program.
    static const std::shared_ptr<const FakeDriver>& get();

    std::string file() const override { return "no device"; }
    int device_count() const override { return devices; }
    int current() const override;
    void* use(int device) const override;
    void put_back(void* before) const noexcept override;
    StreamHandle make_stream(int device, bool high_priority) const override;
    void destroy_stream(StreamHandle stream) const noexcept override;
    void wait_for_stream(StreamHandle stream) const override;
    EventHandle make_event(int device) const override;
    void destroy_event(EventHandle event) const noexcept override;
    void record(EventHandle event, StreamHandle stream) const override;
    bool reached(EventHandle event) const override;
    void make_wait(StreamHandle stream, EventHandle event) const override;
    void* allocate(int device, std::size_t bytes) const override;
    void release(int device, void* memory) const noexcept override;
    void* allocate_host(std::size_t bytes) const override;
    void release_host(void* memory) const noexcept override;
    void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const override;
    int device_of(const void*) const override { return -1; }

    /// Calls it when the stream has come to it.
    void push(StreamHandle stream, std::function<void()> work) const;

    /// What exists now.
    struct Live {
        int streams = 0, events = 0, allocations = 0;
        std::size_t host_bytes = 0;
    };
    Live live() const;
    std::size_t copies() const noexcept { return copies_; }
    /// The next copies fail; -1: none.
    void fail_copies(int device) const noexcept { failing_ = device; }

 private:
    class Stream;
    struct Event;
    Stream& stream_of(StreamHandle stream) const;

    mutable std::mutex mutex_;
    mutable std::map<int, std::unique_ptr<Stream>> default_streams_;
    mutable Live live_;
    mutable std::map<void*, std::size_t> sizes_;  // of host memory
    mutable std::atomic<std::size_t> copies_{0};
    mutable std::atomic<int> failing_{-1};
};

}  // namespace tutti::test
