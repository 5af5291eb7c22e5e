#include "shared/message_backend.hpp"

#include "shared/collectives.hpp"
#include "shared/join.hpp"
#include "shared/messages.hpp"
#include "shared/ways.hpp"

#include <tutti/error.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::backends {
namespace {

// A library's error after a peer's death is a symptom; tutti knows the cause a moment later, and then ends everything.
constexpr std::chrono::milliseconds time_for_the_cause{1000};

}  // namespace

class MessageBackend::Core : public std::enable_shared_from_this<Core> {
 public:
    explicit Core(Parts parts)
        : parts_(std::move(parts)),
          messages_(std::make_shared<Messages>(parts_.name, parts_.rank, parts_.carrier)),
          queues_(static_cast<std::size_t>(parts_.lanes)) {}

    void start() {
        messages_->start();
        for (int lane = 0; lane < parts_.lanes; ++lane)
            threads_.emplace_back([self = shared_from_this(), lane] { self->work(lane); });
    }

    void run(const BackendRequest& r, BackendCompletion completion) {
        if (r.call == BackendCall::send || r.call == BackendCall::receive) return message(r, std::move(completion));
        std::unique_lock lock(mutex_);
        if (ended_) {
            lock.unlock();
            return completion.failure(ended_);
        }
        queues_[next_lane_].push_back({&r, next_channel_++, std::move(completion)});
        next_lane_ = (next_lane_ + 1) % queues_.size();
        changed_.notify_all();
    }

    void end(const std::string& reason) noexcept {
        const std::lock_guard one(ending_);
        bool idle = true;
        {
            const std::lock_guard lock(mutex_);
            if (!ended_) ended_ = std::make_exception_ptr(Aborted(parts_.name + ": " + reason));
            idle = open_ == 0;
            for (const auto& queue : queues_) idle = idle && queue.empty();
            changed_.notify_all();
        }
        messages_->end(ended_, idle ? Carrier::How::leaves : Carrier::How::fails);
        for (std::thread& thread : threads_) join(thread);
        std::vector<BackendCompletion> over;
        {
            const std::lock_guard lock(mutex_);
            for (auto& queue : queues_) {
                for (Pending& pending : queue) over.push_back(std::move(pending.completion));
                queue.clear();
            }
        }
        for (const BackendCompletion& completion : over) completion.failure(ended_);
    }

 private:
    struct Pending {
        const BackendRequest* request;
        std::uint64_t channel;
        BackendCompletion completion;
    };

    void message(const BackendRequest& r, BackendCompletion completion) {
        {
            const std::lock_guard lock(mutex_);
            ++open_;
        }
        auto done = [self = shared_from_this(), completion = std::move(completion)](int source, const auto& error) {
            {
                const std::lock_guard lock(self->mutex_);
                --self->open_;
            }
            if (error)
                completion.failure(error);
            else
                completion.success(source);
        };
        const Label label{0, r.tag};
        const std::uint64_t bytes = r.count * size_of(r.dtype);
        if (r.call == BackendCall::send)
            messages_->send(r.root, label, r.input, bytes, std::move(done));
        else
            messages_->receive(r.root, label, r.output, bytes, std::move(done));
    }

    void work(int lane) {
        auto& queue = queues_[static_cast<std::size_t>(lane)];
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ended_ || !queue.empty(); });
            if (ended_) return;
            const Pending pending = std::move(queue.front());
            queue.pop_front();
            ++open_;
            lock.unlock();
            std::exception_ptr error;
            try {
                const bool is_native = parts_.foreign && parts_.foreign(*pending.request, lane);
                if (!is_native)
                    run_collective(*pending.request, {parts_.rank, parts_.size, *messages_}, pending.channel);
                count(is_native ? Way::native : Way::composed);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            --open_;
            if (error) changed_.wait_for(lock, time_for_the_cause, [&] { return ended_ != nullptr; });
            lock.unlock();
            if (error)
                pending.completion.failure(error);
            else
                pending.completion.success();
        }
    }

    const Parts parts_;
    const std::shared_ptr<Messages> messages_;
    std::mutex ending_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::exception_ptr ended_;
    int open_ = 0;                             // under way
    std::vector<std::deque<Pending>> queues_;  // by lane
    std::size_t next_lane_ = 0;
    std::uint64_t next_channel_ = 1;
    std::vector<std::thread> threads_;
};

MessageBackend::MessageBackend(Parts parts) : core_(std::make_shared<Core>(std::move(parts))) {
    try {
        core_->start();
    } catch (const std::system_error& error) {
        core_->end("it has not started");
        throw DistBackendError(std::string("a backend gets no thread (") + error.what() +
                               "): how many this user may have says ulimit -u");
    }
}

MessageBackend::~MessageBackend() {
    core_->end("the group has gone");
}

void MessageBackend::run(const BackendRequest& request, BackendCompletion completion) {
    core_->run(request, std::move(completion));
}

void MessageBackend::abort(const std::string& reason) noexcept {
    core_->end(reason);
}

}  // namespace tutti::backends
