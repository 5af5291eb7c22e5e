#include "nccl/watcher.hpp"

#include "nccl/join.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto shortest_nap = 20us, longest_nap = 1000us;
constexpr auto last_idle_nap = 200us;          // a longer one with nothing under way is sleep
constexpr auto time_between_questions = 50ms;  // to the library, for the state of its communicators

}  // namespace

class Watcher::Core : public std::enable_shared_from_this<Core> {
 public:
    Core(std::string title, std::function<void(std::exception_ptr)> fail)
        : title_(std::move(title)), fail_(std::move(fail)) {}

    void start() {
        thread_ = std::thread([self = shared_from_this()] { self->work(); });
    }

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
            changed_.notify_all();
        }
        backends::join(thread_);
    }

    void watch(Watched&& operation, bool at_once) {
        std::unique_lock lock(mutex_);
        if (ended_ || stopped_) {
            const auto error = ended_;
            lock.unlock();
            if (operation.completion) operation.completion->failure(error);
            return;
        }
        ++open_;
        arrived_.push_back(std::move(operation));
        if (!sleeps_ && !at_once) return;
        sleeps_ = false;
        is_called_ = true;
        lock.unlock();
        changed_.notify_all();
    }

    void set_probe(std::function<std::exception_ptr()> probe) {
        const std::lock_guard lock(mutex_);
        probe_ = std::move(probe);
    }

    void add_waiting(int number) {
        const std::lock_guard lock(mutex_);
        waiting_ += number;
        is_called_ = true;
        changed_.notify_all();
    }

    bool drain(Clock::time_point until) {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, until, [&] { return open_ == 0; });
    }

    void end(std::exception_ptr error) noexcept {
        const std::lock_guard lock(mutex_);
        if (!ended_) ended_ = std::move(error);
        changed_.notify_all();
    }

 private:
    void work() {
        std::vector<Watched> arrived;
        for (;;) {
            std::exception_ptr ended;
            {
                std::unique_lock lock(mutex_);
                rest(lock);
                if (stopped_ && !ended_) ended_ = std::make_exception_ptr(Aborted(title_ + ": the group has ended"));
                arrived.swap(arrived_);
                ended = ended_;
            }
            std::ranges::move(arrived, std::back_inserter(active_));
            arrived.clear();
            if (ended) {
                close(ended);
                const std::lock_guard lock(mutex_);
                if (stopped_) return;
                continue;
            }
            const std::size_t over = look();
            nap_ = over > 0 ? std::chrono::microseconds(shortest_nap)
                            : std::min<std::chrono::microseconds>(nap_ * 3 / 2, longest_nap);
            const std::lock_guard lock(mutex_);
            open_ -= over;
            if (over > 0 && open_ == 0) changed_.notify_all();
        }
    }

    // Waits until there may be something to see.
    void rest(std::unique_lock<std::mutex>& lock) {
        const auto is_called = [&] { return stopped_ || is_called_ || (ended_ && open_ > 0); };
        if (open_ > 0 || (nap_ <= last_idle_nap && !ended_)) {
            changed_.wait_for(lock, nap_, is_called);
        } else {
            sleeps_ = true;
            if (waiting_ > 0 && !ended_)
                changed_.wait_for(lock, time_between_questions, is_called);
            else
                changed_.wait(lock, is_called);
            sleeps_ = false;
        }
        if (std::exchange(is_called_, false)) nap_ = shortest_nap;
    }

    // Completes the operations that the device has reached; returns their number. The device reaches operations of one
    // communicator in their order.
    std::size_t look() {
        const auto now = Clock::now();
        std::vector<const Communicator*> busy;
        std::vector<Watched> over;
        std::exception_ptr failure;
        const auto is_over = [&](Watched& operation) {
            const Communicator* const own = operation.communicator.get();
            if (failure || (own != nullptr && std::ranges::find(busy, own) != busy.end())) return false;
            try {
                // Abort ends kernels before the watcher hears of it; this order of the two checks shows it.
                if (operation.end->reached()) return own == nullptr || !own->is_over();
                if (now > operation.deadline) throw_late(operation);
            } catch (const Timeout&) {
                failure = std::current_exception();
            } catch (const std::exception& error) {
                const std::string what = operation.what();
                failure = std::make_exception_ptr(
                    DistBackendError(title_ + ": " + what + ": " + error.what(), {.operation = what}));
            }
            if (own != nullptr) busy.push_back(own);
            return false;
        };
        std::vector<Watched> open;
        open.reserve(active_.size());
        for (Watched& operation : active_) (is_over(operation) ? over : open).push_back(std::move(operation));
        active_ = std::move(open);
        for (const Watched& operation : over) {
            if (operation.completion) operation.completion->success(operation.source);
        }
        if (!failure && now > next_question_) failure = ask();
        if (failure && !stopped()) fail_(failure);  // not if a completion has dropped the last handle of the group
        return over.size();
    }

    bool stopped() {
        const std::lock_guard lock(mutex_);
        return stopped_;
    }

    void throw_late(const Watched& operation) const {
        const std::string what = operation.what();
        throw Timeout(
            title_ + ": " + what + ": the device has not reached its end after " +
                std::to_string(operation.timeout.count()) +
                " ms: expected all ranks to come to it, and what the caller's stream held to end" +
                (operation.communicator == nullptr ? "" : "; from " + operation.communicator->library().describe()),
            {.operation = what, .elapsed = operation.timeout});
    }

    // Asks for failures of the other ranks, and of the communicators.
    std::exception_ptr ask() {
        next_question_ = Clock::now() + time_between_questions;
        std::function<std::exception_ptr()> probe;
        {
            const std::lock_guard lock(mutex_);
            probe = probe_;
        }
        if (probe) {
            if (auto error = probe()) return error;
        }
        std::vector<const Communicator*> asked;
        for (const Watched& operation : active_) {
            const Communicator* const own = operation.communicator.get();
            if (own == nullptr || std::ranges::find(asked, own) != asked.end()) continue;
            asked.push_back(own);
            const Result result = own->state();
            if (result == Result::success || result == Result::in_progress) continue;
            return own->failure(result, "CommGetAsyncError", operation.what());
        }
        return nullptr;
    }

    void close(const std::exception_ptr& error) {
        for (const Watched& operation : active_) {
            if (operation.completion) operation.completion->failure(error);
        }
        const std::lock_guard lock(mutex_);
        open_ -= active_.size();
        active_.clear();
        changed_.notify_all();
    }

    const std::string title_;
    const std::function<void(std::exception_ptr)> fail_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Watched> arrived_;
    std::size_t open_ = 0;  // arrived and active ones
    int waiting_ = 0;
    bool sleeps_ = false;     // for long: a new operation wakes it
    bool is_called_ = false;  // to end its sleep, or nap
    std::function<std::exception_ptr()> probe_;
    std::exception_ptr ended_;
    bool stopped_ = false;
    std::vector<Watched> active_;  // for the thread alone, as the next ones
    std::chrono::microseconds nap_ = longest_nap;
    Clock::time_point next_question_{};
    std::thread thread_;
};

Watcher::Watcher(std::string title, std::function<void(std::exception_ptr)> fail)
    : core_(std::make_shared<Core>(std::move(title), std::move(fail))) {
    core_->start();
}

Watcher::~Watcher() {
    core_->stop();
}

Watcher::Waiting::Waiting(Watcher& watcher) : core_(watcher.core_) {
    core_->add_waiting(1);
}

Watcher::Waiting::~Waiting() {
    core_->add_waiting(-1);
}

void Watcher::set_probe(std::function<std::exception_ptr()> probe) {
    core_->set_probe(std::move(probe));
}

void Watcher::watch(Watched operation, Told is_told) {
    if (operation.completion && is_told == Told::yes) operation.completion->enqueued(operation.end, operation.source);
    core_->watch(std::move(operation), is_told == Told::no);  // if not told, the host waits for its end
}

bool Watcher::drain(Clock::time_point until) {
    return core_->drain(until);
}

void Watcher::end(std::exception_ptr error) noexcept {
    core_->end(std::move(error));
}

}  // namespace tutti::nccl
