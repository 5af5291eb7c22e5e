#include "gloo/waits.hpp"

#include "gloo/lanes.hpp"

#include <tutti/error.hpp>

#include <system_error>
#include <utility>

namespace tutti::backends::gloo {

Waits::~Waits() {
    if (thread_.joinable()) thread_.join();
}

void Waits::add(Wait wait) {
    waits_.push_back(std::move(wait));
    if (thread_.joinable()) return changed_.notify_all();
    try {
        const QuietPipes quiet;  // the thread inherits it
        thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
        throw DistBackendError(std::string("gloo gets no thread (") + error.what() +
                               "): how many this user may have says ulimit -u");
    }
}

std::string Waits::wait_for(const Buffer& buffer) const {
    try {
        const bool is_over = until_ == Until::sent ? buffer->waitSend(forever) : buffer->waitRecv(forever);
        return is_over ? "" : "gloo: the connection has been given up";
    } catch (const ::gloo::Exception& error) {
        return std::string("gloo: a connection has broken: ") + error.what();
    }
}

void Waits::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stops_ || !waits_.empty(); });
        if (stops_) return;
        Wait& first = waits_.front();  // stays where it is, since only this thread takes it away
        lock.unlock();
        const std::string why = wait_for(first.buffer);
        lock.lock();
        first.buffer.reset();
        first.over(why);
        waits_.pop_front();
        changed_.notify_all();
    }
}

void Waits::drain(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point limit,
                  const std::function<bool()>& enough) {
    changed_.wait_until(lock, limit, [&] { return waits_.empty() || enough(); });
}

// A message of which a part has been written hears nothing of the end of its connection.
void Waits::abort() noexcept {
    for (const Wait& wait : waits_) {
        if (!wait.buffer) continue;
        if (until_ == Until::sent)
            wait.buffer->abortWaitSend();
        else
            wait.buffer->abortWaitRecv();
    }
}

void Waits::stop() noexcept {
    stops_ = true;
    abort();
    changed_.notify_all();
}

}  // namespace tutti::backends::gloo
