// Scopes that collect calls, the _coalesced collectives, and the launch of collected calls.
#include "api/arguments.hpp"
#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "core/assert.hpp"
#include "core/per_thread.hpp"
#include "record/public_call.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {

namespace detail {

class CollectedCalls {
 public:
    explicit CollectedCalls(std::shared_ptr<Group> group);
    ~CollectedCalls() { close(); }
    CollectedCalls(const CollectedCalls&) = delete;
    CollectedCalls& operator=(const CollectedCalls&) = delete;

    static CollectedCalls* find(const Group& group) noexcept;
    bool is_open() const noexcept { return open_; }
    bool is_own_thread() const noexcept { return thread_ == std::this_thread::get_id(); }
    const std::shared_ptr<Group>& group() const noexcept { return group_; }
    void add(const api::PreparedOperation& operation) { operations_.push_back(operation); }
    /// Ends the collecting; returns the calls collected.
    std::vector<api::PreparedOperation> close();

 private:
    std::shared_ptr<Group> group_;
    std::thread::id thread_ = std::this_thread::get_id();
    std::vector<api::PreparedOperation> operations_;
    bool open_ = true;
};

namespace {
/// The open ones of a thread.
struct Scopes {
    std::vector<CollectedCalls*> open;
};
std::vector<CollectedCalls*>& scopes() {
    return PerThread<Scopes>::get().open;
}
}  // namespace

CollectedCalls::CollectedCalls(std::shared_ptr<Group> group) : group_(std::move(group)) {
    TUTTI_ASSERT(group_ != nullptr);
    scopes().push_back(this);
    ++api::open_scopes;
    TUTTI_ASSERT(api::open_scopes > 0 && api::open_scopes >= static_cast<int>(scopes().size()));
}

CollectedCalls* CollectedCalls::find(const Group& group) noexcept {
    const std::vector<CollectedCalls*>& open = scopes();
    const auto found = std::ranges::find(open, &group, [](const CollectedCalls* c) { return c->group_.get(); });
    return found == open.end() ? nullptr : *found;
}

std::vector<api::PreparedOperation> CollectedCalls::close() {
    if (std::exchange(open_, false)) {
        std::erase(scopes(), this);
        TUTTI_ASSERT(api::open_scopes > 0);
        --api::open_scopes;
    }
    TUTTI_ASSERT(!open_ && std::ranges::find(scopes(), this) == scopes().end());
    return std::exchange(operations_, {});
}

}  // namespace detail

namespace api {
namespace {

// Up to here, copying costs less than another collective: measured with two ranks and 16 tensors. Equal on all ranks.
std::uint64_t short_bytes(const Group& group) {
    const auto& hosts = group.planner().layout().host_of;
    const bool one_host = std::ranges::adjacent_find(hosts, std::ranges::not_equal_to{}) == hosts.end();
    return one_host ? 16 << 10 : 32 << 10;
}
constexpr std::uint64_t pack_bytes_max = 1 << 20;

struct Batch {
    std::uint64_t kind = 0, bytes = 0;
    std::vector<PreparedOperation> pieces;
};

// In the order of their first calls; equal on all ranks, as its inputs are.
std::vector<Batch> batches_of(const std::vector<PreparedOperation>& operations) {
    std::vector<Batch> batches;
    for (const PreparedOperation& operation : operations) {
        const bool is_short =
            may_be_packed(*operation) && packed_bytes(*operation) <= short_bytes(detail::group_of(*operation));
        if (!is_short) {
            batches.push_back({0, pack_bytes_max, {operation}});
            continue;
        }
        const std::uint64_t kind = kind_of(*operation), bytes = packed_bytes(*operation);
        const auto fits = [&](const Batch& b) { return b.kind == kind && b.bytes + bytes <= pack_bytes_max; };
        TUTTI_ASSERT(bytes <= pack_bytes_max);
        auto batch = std::ranges::find_if(batches, fits);
        if (batch == batches.end()) batch = batches.insert(batch, Batch{kind, 0, {}});
        batch->bytes += bytes;
        batch->pieces.push_back(operation);
    }
    TUTTI_ASSERT(operations.empty() == batches.empty() && batches.size() <= operations.size());
    return batches;
}

// Completes when all of them have, with the first error.
PreparedOperation one_for(const char* name, const std::shared_ptr<Group>& group, std::size_t count) {
    TUTTI_ASSERT(group != nullptr);
    auto whole = std::make_shared<Operation>();
    whole->name = name;
    whole->is_collective = false;
    whole->group = group;
    if (count == 0) whole->complete_unseen();
    return whole;
}

struct Countdown {
    std::mutex mutex;
    std::size_t left;
    std::exception_ptr first;
    std::vector<std::function<void()>> results;  // run when all have ended, in this order
};

// The ends of several operations on a device as one.
class Ends : public DeviceEvent {
 public:
    explicit Ends(std::vector<PreparedOperation> operations) : operations_(std::move(operations)) {}
    void make_wait(Stream stream) override {
        for (const PreparedOperation& operation : operations_) operation->make_wait(stream);
    }

 private:
    std::vector<PreparedOperation> operations_;
};

// Of operations on one device: the whole is in its streams when all of them are.
void give_event(const PreparedOperation& whole, const std::vector<PreparedOperation>& operations) {
    if (operations.empty() || operations.front()->device.type == Device::Type::cpu) return;
    TUTTI_ASSERT(whole != nullptr && !whole->issued());
    const auto same = [&](const PreparedOperation& o) { return o->device == operations.front()->device; };
    if (!std::ranges::all_of(operations, same)) return;
    whole->device = operations.front()->device;
    whole->stream = operations.front()->stream;
    const auto left = std::make_shared<std::atomic<std::size_t>>(operations.size());
    for (const PreparedOperation& operation : operations) {
        operation->on_issue([whole, left, operations] {
            if (left->fetch_sub(1) == 1) whole->enqueue(std::make_shared<Ends>(operations));
        });
    }
}

}  // namespace

bool is_collected(const Group& group) noexcept {
    return open_scopes > 0 && (call_recorder != nullptr || detail::CollectedCalls::find(group) != nullptr);
}

bool collect(const PreparedOperation& operation) {
    TUTTI_ASSERT(operation != nullptr && !operation->done());
    if (open_scopes == 0) return false;
    if (call_recorder != nullptr) {
        call_recorder->run(operation);
        return true;
    }
    detail::CollectedCalls* calls = detail::CollectedCalls::find(detail::group_of(*operation));
    if (calls != nullptr) calls->add(operation);
    return calls != nullptr;
}

Work launch(const char* name, const std::shared_ptr<Group>& group, const std::vector<PreparedOperation>& operations,
            Driver driver) {
    TUTTI_ASSERT(group != nullptr);
    refuse_if_recorded(name);
    const bool in_background = driver == Driver::background;
    const std::vector<Batch> batches = batches_of(operations);
    // The tensors of one pack are all read before it, and written after it, in their order.
    std::vector<std::function<void()>> results;
    if (batches.size() > 1) results = set_apart(name, operations);
    std::vector<PreparedOperation> started;
    for (const Batch& batch : batches)
        started.push_back(batch.pieces.size() == 1 ? batch.pieces.front() : pack(batch.pieces));
    TUTTI_ASSERT(started.size() == batches.size());
    if (started.size() == 1 && started.front()->is_collective) {
        group->submit(started.front(), in_background);
        return Work(started.front());
    }
    PreparedOperation whole = one_for(name, group, started.size());
    for (const PreparedOperation& operation : operations)
        whole->outputs.insert(whole->outputs.end(), operation->outputs.begin(), operation->outputs.end());
    // Of one receive among others the whole knows the sender.
    whole->is_receive = std::ranges::count_if(started, [](const auto& one) { return one->is_receive; }) == 1;
    const auto countdown = std::make_shared<Countdown>();
    countdown->left = started.size();
    countdown->results = std::move(results);
    group->backends().submit_together(started, in_background);
    give_event(whole, started);
    for (const PreparedOperation& operation : started) {
        operation->on_completion([whole, countdown, one = operation.get()] {
            {
                const std::lock_guard lock(countdown->mutex);
                if (const auto error = one->error(); error && !countdown->first) countdown->first = error;
                if (whole->is_receive && one->is_receive) whole->transfer.peer = one->transfer.peer;
                TUTTI_ASSERT(countdown->left > 0);
                if (--countdown->left > 0) return;
            }
            for (const auto& write : std::exchange(countdown->results, {})) {
                if (!countdown->first) write();
            }
            TUTTI_ASSERT(!whole->done());
            whole->complete(countdown->first);
            whole->run_continuations();
        });
    }
    return Work(std::move(whole));
}

}  // namespace api

// ---- The scope

Coalescing::Coalescing(const CoalescingOptions& o) : exceptions_(std::uncaught_exceptions()) {
    if (o.group.is_non_member()) return;
    api::refuse_if_recorded("Coalescing");
    std::shared_ptr<detail::Group> group = api::group_of(o.group, "Coalescing");
    if (detail::CollectedCalls::find(*group) != nullptr) {
        throw InvalidArgument(
            fmt::format("Coalescing: this thread collects calls on group \"{}\" already: expected one scope at a time",
                        group->name()));
    }
    calls_ = std::make_unique<detail::CollectedCalls>(std::move(group));
}

Coalescing::~Coalescing() noexcept(false) {
    if (!calls_ || !calls_->is_open() || std::uncaught_exceptions() > exceptions_) return;
    const auto operations = calls_->close();
    TUTTI_ASSERT(!calls_->is_open());
    api::launch("Coalescing", calls_->group(), operations, api::Driver::caller).wait();
}

Work Coalescing::end() {
    if (!calls_) return {};
    if (!calls_->is_open()) throw InvalidArgument("Coalescing.end: it has been called: expected once");
    if (!calls_->is_own_thread())
        throw InvalidArgument("Coalescing.end: another thread made the scope: expected that thread");
    const record::PublicCall public_call("Coalescing");
    const auto operations = calls_->close();
    TUTTI_ASSERT(!calls_->is_open());
    return api::launch("Coalescing", calls_->group(), operations, api::Driver::background);
}

// ---- Lists

namespace {

// Prepares each of a list's calls; an error of one says which.
template <class F>
Work launch_all(const char* name, const ProcessGroup& target, std::size_t count, api::Driver driver, F&& prepare) {
    const record::PublicCall public_call(name);
    const std::shared_ptr<detail::Group> group = api::group_of(target, name);
    if (count == 0) throw InvalidArgument(fmt::format("{}: the list is empty: expected at least one tensor", name));
    std::vector<api::PreparedOperation> operations;
    operations.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        try {
            operations.push_back(prepare(i));
        } catch (const InvalidArgument& error) {
            throw InvalidArgument(fmt::format("{}: tensor {}: {}", name, i, error.what()), error.context());
        }
    }
    TUTTI_ASSERT(operations.size() == count);
    if (api::in_detail()) api::verify(name, operations);
    return api::launch(name, group, operations, driver);
}

void check_pairs(const char* name, std::size_t outputs, std::size_t inputs) {
    if (outputs != inputs)
        throw InvalidArgument(fmt::format("{}: {} outputs for {} inputs: expected as many", name, outputs, inputs));
}

// One for each form of several calls' tensors. `describe`: of one call.

template <auto describe>
Work launch_lists(const char* name, const TensorList& tensors, const AllReduceOptions& o, api::Driver driver) {
    const std::shared_ptr<detail::Group> group = api::group_of(o.group, name);
    if (const api::PreparedOperation one =
            api::pack_all_reduce(tensors, o, api::short_bytes(*group), api::pack_bytes_max)) {
        const record::PublicCall public_call(name);
        api::refuse_if_recorded(name);
        if (api::in_detail()) api::verify(name, {&one, 1});
        group->submit(one, driver == api::Driver::background);
        return Work(one);
    }
    return launch_all(name, o.group, tensors.size(), driver,
                      [&](std::size_t i) { return api::prepare(describe, tensors[i], o); });
}

template <auto describe, class Options>
Work launch_lists(const char* name, const TensorList& outputs, const ConstTensorList& inputs, const Options& o,
                  api::Driver driver) {
    check_pairs(name, outputs.size(), inputs.size());
    return launch_all(name, o.group, inputs.size(), driver,
                      [&](std::size_t i) { return api::prepare(describe, outputs[i], inputs[i], o); });
}

template <auto describe, class Options>
Work launch_lists(const char* name, const std::vector<TensorList>& output_lists, const ConstTensorList& inputs,
                  const Options& o, api::Driver driver) {
    const int size = api::group_of(o.group, name)->size();
    if (static_cast<int>(output_lists.size()) != size) {
        throw InvalidArgument(
            fmt::format("{}: output_lists has {} lists: expected {}, one per rank", name, output_lists.size(), size));
    }
    for (const TensorList& list : output_lists) check_pairs(name, list.size(), inputs.size());
    return launch_all(name, o.group, inputs.size(), driver, [&](std::size_t i) {
        TensorList outputs;
        for (const TensorList& list : output_lists) outputs.push_back(list[i]);
        return api::prepare(describe, outputs, inputs[i], o);
    });
}

}  // namespace

// Each function of the table, in both forms.
#define TUTTI_OR_NONE
#define TUTTI_COALESCED_FUNCTION(name, collective, function, tensors, Options, ...)                                   \
    void name(TUTTI_PARAMETERS_##tensors(Options)) {                                                                  \
        if (api::is_outside(options.group, #name)) return;                                                            \
        launch_lists<api::describe::function>(#name, TUTTI_ARGUMENTS_##tensors(options), api::Driver::caller).wait(); \
    }                                                                                                                 \
    Work async::name(TUTTI_PARAMETERS_##tensors(Options)) {                                                           \
        if (api::is_outside(options.group, #name)) return {};                                                         \
        return launch_lists<api::describe::function>(#name, TUTTI_ARGUMENTS_##tensors(options),                       \
                                                     api::Driver::background);                                        \
    }
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

}  // namespace tutti
