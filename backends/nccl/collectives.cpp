#include "nccl/collectives.hpp"

#include "common/ways.hpp"
#include "nccl/join.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto time_of_a_blocked_call = 2000ms;  // for a blocked call to end after the abort of the communicator

bool reduces(const BackendRequest& request) {
    const auto collective = collective_of(request.call);
    return collective && traits_of(*collective).combines;
}
// No library has prefixes.
bool is_prefix(const BackendRequest& request) {
    const auto collective = collective_of(request.call);
    return collective && traits_of(*collective).is_prefix();
}

std::optional<NativeReduction> reduction_of(const BackendRequest& request, int ranks, const Library& library) {
    if (!reduces(request) || is_prefix(request)) return std::nullopt;
    return native_reduction(request.op, request.dtype, ranks, library.abilities());
}

}  // namespace

class Collectives::Core : public std::enable_shared_from_this<Core> {
 public:
    Core(std::shared_ptr<Context> context, std::shared_ptr<HostFallback> by_host)
        : context_(std::move(context)), by_host_(std::move(by_host)) {}

    void start() {
        context_->when_over([weak = weak_from_this()](const std::exception_ptr& error) {
            if (const auto self = weak.lock()) self->end(error);
        });
    }

    Channel& channel(Device device) {
        const Place& place = context_->place(device);
        const std::lock_guard lock(mutex_);
        Channel& own = channels_[device.type];
        own.place = &place;
        return own;
    }

    void set_up(Channel& own, std::shared_ptr<Communicator> communicator, const Agreement& agreed) {
        const Place& place = *own.place;
        own.agreed = agreed;
        own.stream = std::make_unique<OwnStream>(place.driver, place.device.index,
                                                 context_->nccl_options().is_high_priority_stream);
        own.communicator = std::move(communicator);
        own.communicator->keep_for_shrink();
    }

    // Blocks.
    void connect(Channel& own) {
        if (own.communicator) return;
        const Watcher::Waiting waiting(context_->watcher());
        const Place& place = *own.place;
        const std::string name = place.device.type == Device::Type::cpu ? "cpu" : "device";
        const Agreement agreed = meet(*context_, facts_of(*context_, place), name);
        set_up(own, context_->make_communicator(agreed.ids, context_->rank(), context_->size(), place), agreed);
    }

    // Reports a missing device to the other ranks, which wait for this one to make the communicator.
    Channel& connected(Device device) {
        if (last_ != nullptr && last_->place->device == device) return *last_;
        Channel* own = nullptr;
        try {
            own = &channel(device);
        } catch (const DistError& error) {
            if (is_connected(device.type)) throw;
            Facts facts{.version = context_->library()->version(), .trouble = error.what()};
            meet(*context_, facts, device.type == Device::Type::cpu ? "cpu" : "device");
            throw;
        }
        connect(*own);
        last_ = own;
        return *own;
    }

    Job job_of(const BackendRequest& request, BackendCompletion completion) {
        const bool needs_device = request.call == BackendCall::barrier && request.device.type == Device::Type::cpu &&
                                  !context_->library()->host_memory();
        Job job = needs_device ? barrier_of(request, std::move(completion)) : Job{&request, std::move(completion)};
        job.reduction = reduction_of(request, context_->size(), *context_->library());
        job.is_captured = context_->is_captured(*job.request);
        if (job.is_captured) check_capture(job);
        return job;
    }

    // A graph can hold only the work that the library itself puts into its stream here and now, without memory of ours.
    void check_capture(const Job& job) {
        const BackendRequest& r = *job.request;
        drain(context_->deadline_of(r));
        const auto refuse = [&](const std::string& why) { throw context_->cannot_be_captured(r, why); };
        if (r.call == BackendCall::barrier) refuse("the host takes part in it, which waits for the device");
        if (!is_connected(r.device.type)) refuse("the host takes part in it, which makes the communicator");
        if (goes_by_host(job)) refuse("the host takes part in it, which combines the values");
        const Task task(r, context_->rank(), context_->size(), job.reduction, connected(r.device).agreed);
        if (task.scratch_bytes() > 0)
            refuse(
                "it brings blocks together in memory that other operations use, too, as they are of several "
                "lengths or do not adjoin");
    }

    // A barrier has no buffers: it runs on the group's device, or on the one that this thread uses.
    Job barrier_of(const BackendRequest& request, BackendCompletion completion) {
        auto own = std::make_shared<BackendRequest>(request);
        own->device = barrier_device();
        own->stream = current_stream(own->device.type);
        return {own.get(), std::move(completion), own};
    }

    Device barrier_device() {
        {
            const std::lock_guard lock(mutex_);
            for (const auto& [type, own] : channels_) {
                if (type != Device::Type::cpu && own.communicator) return own.place->device;
            }
        }
        const Device::Type type = context_->library()->vendor().devices.front();
        const auto driver = open_driver(type);
        const int current = driver->current();
        return {type, current >= 0 ? current : context_->rank() % std::max(driver->device_count(), 1)};
    }

    void issue(Job job) {
        std::vector<Job> jobs = std::exchange(spare_jobs_, {});
        jobs.push_back(std::move(job));
        issue(jobs);
        jobs.clear();
        spare_jobs_ = std::move(jobs);
    }

    // Takes the contents of `jobs` if they cannot begin now.
    void issue(std::vector<Job>& jobs) {
        context_->throw_if_over();
        {
            const std::lock_guard lock(mutex_);
            if (!queue_.empty() || is_busy_ || !can_begin(jobs)) {
                queue_.emplace_back([this, jobs = std::move(jobs)]() mutable { begin(jobs, May::block); });
                return wake();
            }
        }
        begin(jobs, May::not_block);
    }

    bool drain(Clock::time_point until) {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, until, [&] { return queue_.empty() && !is_busy_; });
    }

    // A waiting collective fails when its turn comes; the communicator's end releases one that is just beginning.
    void end(const std::exception_ptr& error) noexcept {
        std::vector<BackendCompletion> failed;
        {
            const std::lock_guard lock(mutex_);
            ended_ = error;
            failed.swap(failed_);
        }
        for (const BackendCompletion& completion : failed) completion.failure(error);
        std::unique_lock lock(mutex_);
        if (worker_.get_id() != std::this_thread::get_id())
            changed_.wait_for(lock, time_of_a_blocked_call, [&] { return !is_busy_; });
    }

    void stop() {
        std::unique_lock lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
        const bool is_free = worker_.get_id() == std::this_thread::get_id() ||
                             changed_.wait_for(lock, time_of_a_blocked_call, [&] { return !is_busy_; });
        lock.unlock();
        if (is_free)
            backends::join(worker_);
        else
            worker_.detach();  // in a call of the library that does not return
    }

 private:
    using May = Launch::May;

    bool is_connected(Device::Type type) {
        const std::lock_guard lock(mutex_);
        const auto found = channels_.find(type);
        return found != channels_.end() && found->second.communicator != nullptr;
    }

    static bool is_for_host(const Job& job) {
        return reduces(*job.request) && (job.request->in_rank_order || !job.reduction);
    }

    // Whether they can begin in the caller's thread, without waiting.
    bool can_begin(const std::vector<Job>& jobs) {
        for (const Job& job : jobs) {
            if (is_for_host(job)) continue;
            const auto found = channels_.find(job.request->device.type);
            if (found == channels_.end() || !found->second.communicator || found->second.place->calls_block)
                return false;
        }
        return true;
    }

    // Begins neighbours on one device in one launch, those of the host one by one. The first that waits makes the rest
    // wait.
    void begin(std::vector<Job>& jobs, May may) {
        std::size_t at = 0;
        try {
            while (at < jobs.size()) {
                context_->throw_if_over();
                if (goes_by_host(jobs[at])) {
                    backends::count(backends::Way::by_host);
                    by_host_->run(*jobs[at].request, jobs[at].completion);
                    ++at;
                    continue;
                }
                const std::size_t end = end_of_launch(jobs, at);
                Channel& own = connected(jobs[at].request->device);
                Launch one(*context_, own, {&jobs[at], end - at});
                if (one.go(may) == Launch::State::waits)
                    return go_on_later(std::make_shared<Launch>(std::move(one)), std::move(jobs), at, end);
                at = end;
            }
        } catch (...) {
            fail(jobs, at);
        }
    }

    std::size_t end_of_launch(const std::vector<Job>& jobs, std::size_t at) {
        const Device device = jobs[at].request->device;
        std::size_t end = at + 1;
        const auto fits = [&](const Job& job) {
            return job.request->device == device && job.is_captured == jobs[at].is_captured && !goes_by_host(job);
        };
        while (end < jobs.size() && fits(jobs[end])) ++end;
        return end;
    }

    void go_on_later(const std::shared_ptr<Launch>& one, std::vector<Job> jobs, std::size_t at, std::size_t end) {
        const std::lock_guard lock(mutex_);
        queue_.emplace_front([this, one, jobs = std::move(jobs), at, end] {
            try {
                const Watcher::Waiting waiting(context_->watcher());
                one->go(May::block);
            } catch (...) {
                return fail(jobs, at);
            }
            std::vector<Job> rest(jobs.begin() + static_cast<std::ptrdiff_t>(end), jobs.end());
            begin(rest, May::block);
        });
        wake();
    }

    // Call it within a handler. The other ranks' collective lacks this rank's part, so the group has failed.
    void fail(const std::vector<Job>& jobs, std::size_t from) {
        {
            const std::lock_guard lock(mutex_);
            if (!ended_) {
                for (std::size_t i = from; i < jobs.size(); ++i) failed_.push_back(jobs[i].completion);
                return context_->suspect(std::current_exception());
            }
        }
        for (std::size_t i = from; i < jobs.size(); ++i) jobs[i].completion.failure(ended_);
    }

    bool goes_by_host(const Job& job) {
        const BackendRequest& r = *job.request;
        if (is_for_host(job)) return true;
        return reduces(r) && is_float8(r.dtype) && !connected(r.device).agreed.reduces_float8;
    }

    void wake() {  // with the lock
        if (!worker_.joinable()) worker_ = std::thread([self = shared_from_this()] { self->work(); });
        changed_.notify_all();
    }

    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
            if (queue_.empty()) return;
            const auto step = std::move(queue_.front());
            queue_.pop_front();
            is_busy_ = true;
            lock.unlock();
            step();  // fails by itself once the context is over
            lock.lock();
            is_busy_ = false;
            changed_.notify_all();
        }
    }

    const std::shared_ptr<Context> context_;
    const std::shared_ptr<HostFallback> by_host_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Device::Type, Channel> channels_;  // only the thread that begins operations uses their contents
    Channel* last_ = nullptr;                   // the last used one; for the thread that begins operations
    std::deque<std::function<void()>> queue_;
    std::exception_ptr ended_;
    std::vector<BackendCompletion> failed_;  // until the cause is known
    bool is_busy_ = false, stopped_ = false;
    std::thread worker_;
    std::optional<std::vector<Job>> group_;
    std::vector<Job> spare_jobs_;  // empty; kept for its memory

    friend class Collectives;
};

Collectives::Collectives(std::shared_ptr<Context> context, std::shared_ptr<HostFallback> by_host)
    : core_(std::make_shared<Core>(std::move(context), std::move(by_host))) {
    core_->start();
}

Collectives::~Collectives() {
    core_->stop();
}

void Collectives::connect(Device device) {
    try {
        core_->connected(device);
    } catch (...) {
        core_->context_->fail(std::current_exception());
        throw;
    }
}

void Collectives::connect(Device device, std::shared_ptr<Communicator> communicator, const Agreement& agreed) {
    core_->set_up(core_->channel(device), std::move(communicator), agreed);
}

void Collectives::run(const BackendRequest& request, BackendCompletion completion) {
    Job job = core_->job_of(request, std::move(completion));
    if (core_->group_)
        core_->group_->push_back(std::move(job));
    else
        core_->issue(std::move(job));
}

void Collectives::begin_group() {
    core_->group_.emplace();
}

void Collectives::end_group() {
    if (!core_->group_) return;
    std::vector<Job> jobs = std::move(*core_->group_);
    core_->group_.reset();
    if (!jobs.empty()) core_->issue(jobs);
}

const Channel& Collectives::settled(Device device) {
    if (!core_->drain(Clock::now() + core_->context_->timeout())) {
        throw Timeout(core_->context_->title() + ": its collectives have not begun after " +
                      std::to_string(core_->context_->timeout().count()) + " ms: expected all ranks to come to them");
    }
    return core_->connected(device);
}

const Channel* Collectives::connected_channel(Device device) {
    return core_->is_connected(device.type) ? &core_->channel(device) : nullptr;
}

bool Collectives::drain(Clock::time_point until) {
    return core_->drain(until);
}

}  // namespace tutti::nccl
