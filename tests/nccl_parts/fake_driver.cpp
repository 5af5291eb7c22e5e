#include "nccl_parts/fake_driver.hpp"

#include <tutti/error.hpp>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace tutti::test {
namespace {

thread_local int device_of_thread = 0;

}  // namespace

void Flag::set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
}
bool Flag::is_set() const {
    const std::lock_guard lock(mutex_);
    return set_;
}
bool Flag::wait(std::chrono::milliseconds limit) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return set_; });
}

class FakeDriver::Stream {
 public:
    explicit Stream(int device) : device_(device), thread_([this] { work(); }) {}
    ~Stream() {
        push(nullptr);
        thread_.join();
    }
    int device() const noexcept { return device_; }
    void push(std::function<void()> work) {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
        changed_.notify_all();
    }

 private:
    void work() {
        for (;;) {
            std::function<void()> next;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !queue_.empty(); });
                next = std::move(queue_.front());
                queue_.pop_front();
            }
            if (!next) return;
            next();
        }
    }

    const int device_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::thread thread_;
};

struct FakeDriver::Event {
    std::mutex mutex;
    std::shared_ptr<Flag> mark;  // the last record's

    std::shared_ptr<Flag> last() {
        const std::lock_guard lock(mutex);
        return mark;
    }
};

const std::shared_ptr<const FakeDriver>& FakeDriver::get() {
    static const auto* const one = [] {
        const auto* made = new std::shared_ptr<const FakeDriver>(std::make_shared<FakeDriver>());
        nccl::provide_driver(Device::Type::cuda, []() -> std::shared_ptr<const nccl::Driver> { return get(); });
        return made;
    }();
    return *one;
}

int FakeDriver::current() const {
    return device_of_thread;
}
void* FakeDriver::use(int device) const {
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(std::exchange(device_of_thread, device)));
}
void FakeDriver::put_back(void* before) const noexcept {
    device_of_thread = static_cast<int>(reinterpret_cast<std::intptr_t>(before));
}

FakeDriver::StreamHandle FakeDriver::make_stream(int device, bool /*high_priority*/) const {
    auto stream = std::make_unique<Stream>(device);
    const std::lock_guard lock(mutex_);
    ++live_.streams;
    return stream.release();
}
void FakeDriver::destroy_stream(StreamHandle stream) const noexcept {
    delete static_cast<Stream*>(stream);
    const std::lock_guard lock(mutex_);
    --live_.streams;
}
FakeDriver::Stream& FakeDriver::stream_of(StreamHandle stream) const {
    if (stream != nullptr) return *static_cast<Stream*>(stream);
    const std::lock_guard lock(mutex_);
    auto& found = default_streams_[device_of_thread];
    if (!found) found = std::make_unique<Stream>(device_of_thread);
    return *found;
}
void FakeDriver::push(StreamHandle stream, std::function<void()> work) const {
    stream_of(stream).push(std::move(work));
}
void FakeDriver::wait_for_stream(StreamHandle stream) const {
    const auto end = std::make_shared<Flag>();
    push(stream, [end] { end->set(); });
    end->wait(std::chrono::minutes(1));
}

FakeDriver::EventHandle FakeDriver::make_event(int /*device*/) const {
    const std::lock_guard lock(mutex_);
    ++live_.events;
    return new Event;
}
void FakeDriver::destroy_event(EventHandle event) const noexcept {
    delete static_cast<Event*>(event);
    const std::lock_guard lock(mutex_);
    --live_.events;
}
void FakeDriver::record(EventHandle event, StreamHandle stream) const {
    const auto mark = std::make_shared<Flag>();
    {
        const std::lock_guard lock(static_cast<Event*>(event)->mutex);
        static_cast<Event*>(event)->mark = mark;
    }
    push(stream, [mark] { mark->set(); });
}
bool FakeDriver::reached(EventHandle event) const {
    const auto mark = static_cast<Event*>(event)->last();
    return !mark || mark->is_set();
}
void FakeDriver::make_wait(StreamHandle stream, EventHandle event) const {
    const auto mark = static_cast<Event*>(event)->last();
    if (mark) push(stream, [mark] { mark->wait(std::chrono::minutes(1)); });
}

void* FakeDriver::allocate(int /*device*/, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    ++live_.allocations;
    return std::malloc(bytes);
}
void FakeDriver::release(int /*device*/, void* memory) const noexcept {
    const std::lock_guard lock(mutex_);
    --live_.allocations;
    std::free(memory);
}
void* FakeDriver::allocate_host(std::size_t bytes) const {
    void* memory = std::malloc(bytes);
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    live_.host_bytes += bytes;
    return memory;
}
void FakeDriver::release_host(void* memory) const noexcept {
    const std::lock_guard lock(mutex_);
    live_.host_bytes -= sizes_.extract(memory).mapped();
    std::free(memory);
}
void FakeDriver::copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) const {
    if (stream_of(stream).device() == failing_) {
        throw DistBackendError("cuMemcpyAsync: CUDA_ERROR_LAUNCH_FAILED (719), from " + file());
    }
    ++copies_;
    push(stream, [=] { std::memcpy(to, from, bytes); });
}

FakeDriver::Live FakeDriver::live() const {
    const std::lock_guard lock(mutex_);
    return live_;
}

}  // namespace tutti::test
