#include "nccl/context.hpp"

#include "nccl/with_title.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {
namespace {

// Runs them all at the same time, as each may take long.
void for_each(const std::vector<std::shared_ptr<Communicator>>& communicators,
              const std::function<void(Communicator&)>& end) {
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < communicators.size(); ++i) {
        try {
            threads.emplace_back([&, one = communicators[i]] { end(*one); });
        } catch (const std::system_error&) {
            end(*communicators[i]);
        }
    }
    if (!communicators.empty()) end(*communicators.front());
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::string title_of(const std::string& backend, const DistributedBackendOptions& options) {
    return backend + ": rank " + std::to_string(options.group_rank) + " of group \"" + options.group_id + "\" (" +
           std::to_string(options.group_size) + " ranks)";
}

struct Context::State {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    std::map<Device::Type, std::unique_ptr<const Place>> places;
    std::vector<std::function<void(std::exception_ptr)>> ends;
    std::vector<std::weak_ptr<Communicator>> communicators;
    std::exception_ptr error;
    std::thread::id ender;
    bool has_ended = false, is_suspected = false;
};

Context::Context(std::shared_ptr<const Library> library, const DistributedBackendOptions& options,
                 NcclOptions nccl_options)
    : state_(std::make_unique<State>()),
      library_(std::move(library)),
      nccl_options_(std::move(nccl_options)),
      rank_(options.group_rank),
      size_(options.group_size),
      timeout_(options.timeout),
      title_(title_of(library_->vendor().backend, options)),
      store_(options.store),
      host_group_({.store = PrefixStore("host", options.store),
                   .rank = options.group_rank,
                   .world_size = options.group_size,
                   .timeout = options.timeout,
                   .name = options.group_id + "/" + library_->vendor().backend,
                   .determinism = Determinism::layout_invariant,  // HostFallback may have to combine in rank order
                   .backend = "native"}),
      watcher_(std::make_unique<Watcher>(title_, [this](const std::exception_ptr& error) { suspect(error); })) {}

Context::~Context() = default;

const Place& Context::place(Device device) {
    const Place* const last = last_place_.load(std::memory_order_acquire);
    if (last != nullptr && last->device == device) return *last;
    const std::lock_guard lock(state_->mutex);
    auto& place = state_->places[device.type];
    if (!place) {
        if (device.type == Device::Type::cpu && !library_->host_memory()) {
            throw DistBackendError(title_ + ": a tensor in host memory: expected one on a device, as " +
                                   library_->describe() + " works on no other");
        }
        auto driver = open_driver(device.type);
        const int count = driver->device_count();
        if (device.type != Device::Type::cpu && (device.index < 0 || device.index >= count)) {
            throw DistBackendError(title_ + ": a tensor on " + to_string(device) + ": expected one of the " +
                                   std::to_string(count) + " devices that " + driver->file() + " has");
        }
        auto events = std::make_shared<Events>(driver, device.index);
        place = std::make_unique<const Place>(
            Place{.device = device, .driver = driver, .events = events, .calls_block = !driver->has_streams()});
    }
    if (place->device != device) {
        throw DistBackendError(title_ + ": a tensor on " + to_string(device) + ": expected one on " +
                               to_string(place->device) + ", which the group's communicator is for");
    }
    last_place_.store(place.get(), std::memory_order_release);
    return *place;
}

bool Context::is_captured(const BackendRequest& request) {
    if (request.device.type == Device::Type::cpu || request.stream.handle == nullptr) return false;
    try {
        return place(request.device).driver->is_capturing(request.stream.handle);
    } catch (const DistError&) {  // the operation itself reports a missing device to all ranks
        return false;
    }
}

DistBackendError Context::cannot_be_captured(const BackendRequest& request, const std::string& why) const {
    return DistBackendError(title_ + ": " + what(request) + ": it cannot be captured into a graph: " + why +
                                ": expected a collective that " + library_->vendor().title +
                                " carries out by itself, after the group's first one on the device",
                            {.operation = request.name, .rank = rank_});
}

std::string Context::what(const BackendRequest& request) {
    if (request.call == BackendCall::send) return request.name + " to rank " + std::to_string(request.root);
    if (request.call == BackendCall::receive)
        return request.name + (request.root < 0 ? " from any rank" : " from rank " + std::to_string(request.root));
    return request.name + " #" + std::to_string(request.sequence);
}

std::chrono::milliseconds Context::timeout_of(const BackendRequest& request) const {
    return request.timeout.count() > 0 ? request.timeout : timeout_;
}

std::vector<std::shared_ptr<Communicator>> Context::communicators() const {
    std::vector<std::shared_ptr<Communicator>> all;
    const std::lock_guard lock(state_->mutex);
    for (const auto& one : state_->communicators) {
        if (auto alive = one.lock()) all.push_back(std::move(alive));
    }
    return all;
}

void Context::fail(std::exception_ptr error) noexcept {
    std::vector<std::function<void(std::exception_ptr)>> ends;
    {
        const std::lock_guard lock(state_->mutex);
        if (over_) return;
        state_->error = error;
        state_->ender = std::this_thread::get_id();
        over_ = true;
        state_->changed.notify_all();
        ends.swap(state_->ends);
    }
    for_each(communicators(), [this](Communicator& one) { is_quiet_ ? one.abort() : one.stop(); });
    for (const auto& end : ends) end(error);
    watcher_->end(error);
    try {
        if (!is_quiet_) host_group_.abort(text_of(error));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it has ended by itself
    }
    const std::lock_guard lock(state_->mutex);
    state_->has_ended = true;
    state_->changed.notify_all();
}

void Context::suspect(std::exception_ptr error) noexcept {
    const auto self = weak_from_this().lock();
    const std::lock_guard lock(state_->mutex);
    if (!self || over_ || state_->is_suspected) return;
    state_->is_suspected = true;
    try {
        std::thread([self, error] {
            {
                std::unique_lock wait(self->state_->mutex);
                self->state_->changed.wait_for(wait, time_for_the_cause, [&] { return self->over_.load(); });
            }
            self->fail(error);
        }).detach();
    } catch (const std::system_error&) {
        state_->is_suspected = false;  // the next symptom ends the group, or tutti does
    }
}

void Context::leave(Clock::time_point until) noexcept {
    for_each(communicators(), [until](Communicator& one) { one.finalize(until); });
    try {
        host_group_.destroy();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others have gone in another way
    }
}

std::exception_ptr Context::error() const noexcept {
    const std::lock_guard lock(state_->mutex);
    return state_->error;
}

void Context::throw_if_over() const {
    if (over_) std::rethrow_exception(error());
}

void Context::when_over(std::function<void(std::exception_ptr)> end) {
    {
        const std::lock_guard lock(state_->mutex);
        if (!over_) return state_->ends.push_back(std::move(end));
    }
    end(error());
}

bool Context::wait_for_end(Clock::time_point until) const {
    std::unique_lock lock(state_->mutex);
    if (state_->ender == std::this_thread::get_id()) return state_->has_ended;
    return state_->changed.wait_until(lock, until, [&] { return state_->has_ended; });
}

CommunicatorOptions Context::communicator_options(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .name = title_,
            .config = nccl_options_.config,
            .timeout = timeout_,
            .store = store_};
}

std::shared_ptr<Communicator> Context::make_communicator(std::span<const UniqueId> ids, int rank, int size,
                                                         const Place& place) {
    throw_if_over();
    const CurrentDevice current(*place.driver, place.device.index);
    auto made = std::make_shared<Communicator>(library_, ids, communicator_options(rank, size), &over_);
    adopt(made);
    return made;
}

void Context::adopt(const std::shared_ptr<Communicator>& communicator) {
    {
        const std::lock_guard lock(state_->mutex);
        if (!over_) {
            std::erase_if(state_->communicators, [](const auto& one) { return one.expired(); });
            state_->communicators.push_back(communicator);
            return;
        }
    }
    communicator->abort();
    throw_if_over();
}

}  // namespace tutti::nccl
