#include "group/foreign_backends.hpp"

#include "core/assert.hpp"
#include "group/backend_request.hpp"
#include "group/group.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

namespace tutti::detail {
namespace {

constexpr std::chrono::milliseconds time_for_the_backend{2000};  // it may wait for the cause of its symptom

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& known) {
        return known.what();
    } catch (...) {
        return "an unknown error";
    }
}

}  // namespace

CustomBackend* ForeignBackends::of(const Operation& operation) const {
    TUTTI_ASSERT(operation.group == nullptr || operation.group.get() == &group_);
    if (made_.empty()) return nullptr;
    auto found = made_.find(operation.device.type);
    // A barrier has no buffers: the backend for host memory runs it, or else the first one. Objects travel natively
    // where no backend serves host memory.
    const bool is_barrier = operation.is_collective && operation.call.collective == Collective::barrier;
    if (found == made_.end() && is_barrier && !names_.contains(operation.device.type)) found = made_.begin();
    return found == made_.end() ? nullptr : found->second.get();
}

ForeignBackends::ForeignBackends(Group& group, const SubgroupSpec& spec)
    : group_(group),
      names_(spec.backends.empty() ? backend::Devices{{Device::Type::cpu, backend::native}} : spec.backends),
      options_(spec.pg_options),
      device_(spec.device) {
    make(spec);
}

void ForeignBackends::forget() noexcept {
    new auto(std::move(made_));
    new auto(std::move(transport_));
}

void ForeignBackends::close() {
    std::unique_ptr<transport::Streams> streams;  // they end without the lock
    const OperationsInFlight::Guard guard(group_.world().flight());
    if (transport_) streams = transport_->close();
}

void ForeignBackends::make(const SubgroupSpec& spec) {
    World& world = group_.world();
    for (const auto& [device, name] : names_) {
        if (name == backend::native) continue;
        const auto same = std::ranges::find_if(
            made_, [&, &wanted = name](const auto& made) { return names_.at(made.first) == wanted; });
        if (same != made_.end()) {
            made_[device] = same->second;
            continue;
        }
        const DistributedBackendOptions options{
            .store = PrefixStore(fmt::format("group/{}/{}/backend/{}", world.name(), group_.index(), name),
                                 world.setup().store),
            .group_rank = group_.rank(),
            .group_size = group_.size(),
            .timeout = group_.timeout(),
            .group_id = group_.name(),
            .global_ranks_in_group = group_.ranks().all(),
            .device = spec.device};
        if (backend::is_transport(name)) {
            transport_ = std::make_shared<ForeignTransport>(ForeignTransport::Parts{.ranks = group_.ranks(),
                                                                                    .world_size = world.size(),
                                                                                    .determinism = group_.determinism(),
                                                                                    .health = world.verdicts().health(),
                                                                                    .groups = world.groups(),
                                                                                    .world_id = world.id()},
                                                            backend::make_streams(name, options));
            const BiasedMutex::Lock lock(world.flight().mutex());
            world.flight().add({transport_, &transport_->mailbox()});
            continue;
        }
        std::shared_ptr<CustomBackend> made;
        if (CustomBackend* whole = spec.parent ? spec.parent->backends().splittable(name) : nullptr)
            made = whole->split(&options, options_);
        if (CustomBackend* before = spec.predecessor.of ? spec.predecessor.of->backends().of_name(name) : nullptr)
            made = before->shrink(options, spec.predecessor.left_out, options_);
        made_[device] = made ? made : backend::make(name, options, options_);
    }
}

CustomBackend* ForeignBackends::of_name(const std::string& name) const {
    for (const auto& [device, backend] : made_) {
        if (names_.at(device) == name) return backend.get();
    }
    return nullptr;
}

CustomBackend* ForeignBackends::splittable(const std::string& name) const {
    CustomBackend* const backend = of_name(name);
    return backend != nullptr && backend->can_split() ? backend : nullptr;
}

void ForeignBackends::stay_out_of_split(const backend::Devices& names) const {
    std::set<std::string> asked;
    for (const auto& [device, name] : names) {
        CustomBackend* whole = asked.insert(name).second ? splittable(name) : nullptr;
        if (whole != nullptr) whole->split(nullptr, {});
    }
}

void ForeignBackends::submit_together(const std::vector<std::shared_ptr<Operation>>& operations, bool asynchronous) {
    std::set<CustomBackend*> used;
    for (const auto& operation : operations) used.insert(of(*operation));
    used.erase(nullptr);
    const std::lock_guard order(order_);
    for (CustomBackend* backend : used) backend->begin_group();
    std::exception_ptr failure;
    try {
        for (const auto& operation : operations) group_.submit(operation, asynchronous);
    } catch (...) {
        failure = std::current_exception();
    }
    for (CustomBackend* backend : used) {
        try {
            backend->end_group();
        } catch (...) {
            for (const auto& operation : operations) {
                if (of(*operation) == backend) take_back(operation, -1, std::current_exception());
            }
        }
    }
    if (failure) std::rethrow_exception(failure);
}

bool ForeignBackends::submit(const std::shared_ptr<Operation>& operation) {
    CustomBackend* const backend = of(*operation);
    if (backend == nullptr) return false;
    TUTTI_ASSERT(operation != nullptr);
    hand_over(*backend, operation);
    return true;
}

void ForeignBackends::hand_over(CustomBackend& backend, const std::shared_ptr<Operation>& operation) {
    TUTTI_ASSERT(operation != nullptr && !operation->handed_over.request && !operation->handed_over.place);
    const std::lock_guard order(order_);
    {
        const OperationsInFlight::Guard guard(group_.world().flight());
        group_.begin(operation);
        operation->handed_over.request =
            std::make_unique<BackendRequest>(request_of(*operation, group_.ranks(), group_.determinism()));
        operation->handed_over.place = handed_over_.insert(handed_over_.end(), operation);
    }
    try {
        backend.run(*operation->handed_over.request, BackendCompletion(operation));
    } catch (...) {
        take_back(operation, -1, std::current_exception());
    }
}

void ForeignBackends::note_enqueued(const std::shared_ptr<Operation>& operation, int source) {
    if (!operation->is_receive || source < 0) return;
    TUTTI_ASSERT(source < group_.ranks().size());
    const OperationsInFlight::Guard guard(group_.world().flight());
    operation->transfer.peer = group_.ranks().global(source);
}

void ForeignBackends::take_back(const std::shared_ptr<Operation>& operation, int source,
                                const std::exception_ptr& error) {
    const OperationsInFlight::Guard guard(group_.world().flight());
    if (!operation->handed_over.place) return;  // it is over already
    TUTTI_ASSERT(!handed_over_.empty() && !operation->done());
    TUTTI_ASSERT(!operation->is_receive || source < group_.size());
    handed_over_.erase(*operation->handed_over.place);
    operation->handed_over.place.reset();
    if (operation->is_receive && source >= 0) operation->transfer.peer = group_.ranks().global(source);
    group_.end(operation, error);
}

void ForeignBackends::wait_until_issued(Operation& operation) {
    if (!operation.issued()) wait_for(operation, Deadline::never(), Until::issued);
}

void ForeignBackends::wait_for(Operation& operation, const Deadline& deadline, Until until) {
    struct Signal {
        std::mutex mutex;
        std::condition_variable changed;
        bool over = false;
    };
    // A device's backend watches the time, too, and knows more: the group lets it report first.
    const auto late = operation.device.type == Device::Type::cpu ? std::chrono::milliseconds(0) : time_for_the_backend;
    const auto signal = std::make_shared<Signal>();
    auto wake = [signal] {
        const std::lock_guard lock(signal->mutex);
        signal->over = true;
        signal->changed.notify_all();
    };
    if (until == Until::issued)
        operation.on_issue(std::move(wake));
    else
        operation.on_completion(std::move(wake));
    for (;;) {
        {
            std::unique_lock lock(signal->mutex);
            if (signal->changed.wait_for(lock, wait_slice, [&] { return signal->over; })) return;
        }
        std::exception_ptr failure;
        {
            const OperationsInFlight::Guard guard(group_.world().flight());
            group_.world().flight().progress();  // hears of ranks that have died
            failure = group_.world().flight().failure();
        }
        if (interrupt_requested()) {
            clear_interrupt();
            throw Aborted(fmt::format("{}: interrupted by a signal", operation.name), {.operation = operation.name},
                          ErrorCode::interrupted);
        }
        if (!failure && operation.deadline.expired(Clock::now() - late)) {
            const OperationsInFlight::Guard guard(group_.world().flight());
            group_.inquiry().time_out(operation, group_.inquiry().peer_of(operation));
            failure = group_.world().flight().failure();
        }
        if (failure) return end(failure);
        if (deadline.expired()) {
            if (operation.done()) return;
            throw Timeout(
                fmt::format("{}: wait timed out; the operation goes on", group_.inquiry().title_of(operation)),
                group_.inquiry().context_of(operation));
        }
    }
}

// A backend's error after that is a symptom; the cause is known.
void ForeignBackends::end(const std::exception_ptr& failure) {
    TUTTI_ASSERT(failure != nullptr);
    std::list<std::shared_ptr<Operation>> open;
    {
        const OperationsInFlight::Guard guard(group_.world().flight());
        open = std::exchange(handed_over_, {});
        for (const auto& operation : open) operation->handed_over.place.reset();
    }
    // Backends may tell the other ranks before the world does.
    abort(fmt::format("group \"{}\" has failed: {}", group_.name(), text_of(failure)));
    const OperationsInFlight::Guard guard(group_.world().flight());
    for (const auto& operation : open) group_.end(operation, failure);
}

void ForeignBackends::drop() noexcept {
    const std::string reason = fmt::format("group \"{}\" was destroyed", group_.name());
    bool is_idle = false;
    {
        const std::lock_guard lock(group_.world().flight().mutex());
        is_idle = !group_.world().flight().failure() && handed_over_.empty();
    }
    for (const auto& [device, backend] : made_) is_idle ? backend->drop(reason) : backend->abort(reason);
}

void ForeignBackends::abort(const std::string& reason) noexcept {
    for (const auto& [device, backend] : made_) backend->abort(reason);
}

// Operations that their backends have not ended in time end with the world.
void ForeignBackends::wait_for_all() {
    for (;;) {
        std::shared_ptr<Operation> pending;
        {
            const std::lock_guard lock(group_.world().flight().mutex());
            if (!handed_over_.empty()) pending = handed_over_.front();
        }
        if (!pending) return;
        try {
            wait_for(*pending, Deadline::never());
        } catch (const DistError&) {
            return;
        }
    }
}

// Here, and not with the last handle: that may go on a thread of the backend, while this process ends.
void ForeignBackends::leave() {
    wait_for_all();
    if (!group_.world().flight().failure()) {
        for (const auto& [device, backend] : made_) backend->leave();
    }
    abort(fmt::format("group \"{}\" was destroyed", group_.name()));
}

}  // namespace tutti::detail

namespace tutti {

namespace {

// A backend's mistake; null: there is none.
std::exception_ptr wrong_sender(const detail::Operation& operation, int source) {
    const int ranks = detail::group_of(operation).size();
    if (!operation.is_receive || source < ranks) return nullptr;
    return std::make_exception_ptr(DistBackendError(
        fmt::format("{}: its backend says that rank {} sent the message: expected a rank of the group, "
                    "0 to {}",
                    operation.name, source, ranks - 1),
        {.operation = operation.name}));
}

}  // namespace

void BackendCompletion::success(int source) const {
    const auto error = wrong_sender(*operation_, source);
    detail::group_of(*operation_).backends().take_back(operation_, error ? -1 : source, error);
}

void BackendCompletion::enqueued(std::shared_ptr<DeviceEvent> event, int source) const {
    if (const auto error = wrong_sender(*operation_, source)) return failure(error);
    detail::group_of(*operation_).backends().note_enqueued(operation_, source);
    operation_->enqueue(std::move(event));
}

void BackendCompletion::failure(std::exception_ptr error) const {
    if (!error) error = std::make_exception_ptr(DistBackendError("a backend failed without saying why"));
    detail::group_of(*operation_).backends().take_back(operation_, -1, error);
}

}  // namespace tutti
