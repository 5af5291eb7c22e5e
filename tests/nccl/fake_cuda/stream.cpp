#include "stream.hpp"

#include "driver.hpp"

#include <chrono>
#include <thread>

namespace fake_cuda {

void Marker::reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
}

bool Marker::reached() const {
    const std::lock_guard lock(mutex_);
    return reached_;
}

void Marker::wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
}

Stream::Stream(Device& stream_device, Kind stream_kind, int stream_priority)
    : device(stream_device), kind(stream_kind), priority(stream_priority) {
    std::thread(&Stream::work, queue_, std::ref(device)).detach();
}

Stream::~Stream() {
    const std::lock_guard lock(queue_->mutex);
    queue_->closed = true;
    queue_->changed.notify_all();
}

MarkerPtr Stream::push(std::function<void()> run, std::vector<MarkerPtr> after) {
    tail_ = std::make_shared<Marker>();
    const std::lock_guard lock(queue_->mutex);
    queue_->operations.push_back({std::move(after), std::move(run), tail_});
    queue_->changed.notify_all();
    return tail_;
}

MarkerPtr Stream::tail() const {
    return tail_;
}

void Stream::work(const std::shared_ptr<Queue>& queue, Device& device) {
    while (true) {
        Operation operation;
        {
            std::unique_lock lock(queue->mutex);
            queue->changed.wait(lock, [&] { return queue->closed || !queue->operations.empty(); });
            if (queue->operations.empty()) return;
            operation = std::move(queue->operations.front());
            queue->operations.pop_front();
        }
        for (const MarkerPtr& marker : operation.after) marker->wait();
        if (operation.run) {
            std::this_thread::sleep_for(std::chrono::microseconds(driver().delay_us.load()));
            if (const int error = driver().faults.on_call("operation"); error != 0) device.break_with(error);
            if (device.error() == 0) {
                const InHostFunction mark;
                operation.run();
            }
        }
        operation.run = nullptr;  // what it holds goes before anyone is told
        operation.end->reach();
    }
}

}  // namespace fake_cuda
