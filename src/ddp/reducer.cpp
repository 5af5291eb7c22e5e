// The reducer's beginning: buckets, and the calls of an iteration up to the last gradient. sending.cpp has the rest.
#include "ddp/reducer.hpp"

#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "core/log.hpp"
#include "ddp/replicas.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::detail {
namespace {

ProcessGroup checked_group(const DistributedDataParallelOptions& o) {
    if (o.group.is_non_member()) {
        throw InvalidArgument(ddp::title(o) + ": group is one that this rank is not in: expected a group of this rank");
    }
    return o.group ? o.group : default_group();
}

ddp::Buckets assigned(const std::vector<NamedParameter>& parameters, const std::vector<std::size_t>& order,
                      std::size_t cap) {
    TUTTI_ASSERT(order.size() == parameters.size());
    std::vector<ddp::Gradient> gradients;
    for (const NamedParameter& p : parameters)
        gradients.push_back({p.tensor.dtype(), p.tensor.byte_count(), p.tensor.device()});
    return ddp::assign_buckets(gradients, order, {std::min(ddp::first_bucket_cap_bytes, cap), cap});
}

}  // namespace

// ---- The object

Reducer::Reducer(std::vector<NamedParameter> parameters, DistributedDataParallelOptions options)
    : parameters_(std::move(parameters)),
      options_(std::move(options)),
      usage_(parameters_.size(), options_.find_unused_parameters ? ddp::Usage::Shared::yes : ddp::Usage::Shared::no) {
    options_.group = checked_group(options_);
    ddp::compare_replicas(options_.group, parameters_, options_, ddp::fault_of(parameters_, options_));
    std::vector<TensorView> all;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        by_name_.emplace(parameters_[i].name, i);
        all.push_back(parameters_[i].tensor);
        gradients_.push_back(parameters_[i].gradient);
    }
    for (const NamedBuffer& buffer : options_.buffers) all.push_back(buffer.tensor);
    ddp::broadcast_from_first(options_.group, all);
    places_.resize(parameters_.size());
    // Backward passes go from the last layer to the first.
    std::vector<std::size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    make_buckets(assigned(parameters_, order, options_.bucket_cap_bytes));
    // Then an iteration need not tell the place of each gradient.
    if (options_.find_unused_parameters) rebuilding_ = Rebuilding::done;
    TUTTI_ASSERT(!buckets_.empty() && gradients_.size() == parameters_.size());
    ddp::report_initialized(options_.group, parameters_, options_, bucket_bytes());
}

Reducer::~Reducer() {
    const auto keep = [](const auto& future, const Tensor& memory) {
        if (!future.done()) future.add_done_callback([memory](const auto&) {});
    };
    for (const Bucket& bucket : buckets_) {
        if (bucket.work && *bucket.work && !bucket.work->is_completed())
            keep(bucket.work->get_future(), bucket.shown.buffer());
        if (bucket.hooked) std::visit([&](const auto& future) { keep(future, bucket.shown.buffer()); }, *bucket.hooked);
    }
}

void Reducer::register_comm_hook(ProcessGroup state, CommHook hook) {
    const std::string begin = title("register_comm_hook");
    if (!hook) throw InvalidArgument(begin + ": hook is empty: expected a function");
    if (state.is_non_member())
        throw InvalidArgument(begin + ": state is a group that this rank is not in: expected a group of this rank");
    if (hook_) throw InvalidArgument(begin + ": there is a hook already: expected one call at most");
    if (phase_ != Phase::idle)
        throw InvalidArgument(begin + ": an iteration is open: expected it before forward() or after finish()");
    hook_ = std::move(hook);
    hook_group_ = state ? std::move(state) : options_.group;
}

TensorView Reducer::gradient(std::size_t parameter) const {
    checked_index("gradient", parameter);
    if (options_.gradient_as_bucket_view) return in_bucket(parameter);
    if (parameters_[parameter].gradient) return *parameters_[parameter].gradient;
    throw InvalidArgument(
        fmt::format("{}: {} has none: expected one in the constructor", title("gradient"), described(parameter)));
}

ddp::Buckets Reducer::buckets() const {
    ddp::Buckets all;
    for (const Bucket& bucket : buckets_) all.push_back(bucket.members);
    return all;
}

std::vector<std::size_t> Reducer::bucket_bytes() const {
    std::vector<std::size_t> bytes;
    for (const Bucket& bucket : buckets_) {
        bytes.push_back(0);
        for (const std::size_t i : bucket.members) bytes.back() += parameters_[i].tensor.byte_count();
    }
    return bytes;
}

std::size_t Reducer::checked_index(const char* method, std::size_t parameter) const {
    if (parameter < parameters_.size()) return parameter;
    throw InvalidArgument(
        fmt::format("{}: parameter {}: expected 0 to {}", title(method), parameter, parameters_.size() - 1));
}

std::size_t Reducer::index_of(const char* method, std::string_view name) const {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < std::min<std::size_t>(parameters_.size(), 8); ++i) names.push_back(parameters_[i].name);
    throw InvalidArgument(fmt::format("{}: there is no parameter \"{}\": expected one of {}{}", title(method), name,
                                      fmt::join(names, ", "), names.size() < parameters_.size() ? ", ..." : ""));
}

std::string Reducer::described(std::size_t parameter) const {
    TUTTI_ASSERT(parameter < parameters_.size());
    return fmt::format("parameter {} (\"{}\")", parameter, parameters_[parameter].name);
}
std::string Reducer::title(const char* method) const {
    return ddp::title(options_, method);
}

// ---- The buckets

void Reducer::make_buckets(const ddp::Buckets& buckets) {
    TUTTI_ASSERT(!buckets.empty() && places_.size() == parameters_.size());
    const std::vector<Bucket> before = std::exchange(buckets_, {});
    const std::vector<Place> places_before = places_;
    for (const std::vector<std::size_t>& members : buckets) {
        Bucket& bucket = buckets_.emplace_back();
        TUTTI_ASSERT(!members.empty());
        bucket.members = members;
        const DType dtype = parameters_[members.front()].tensor.dtype();
        bucket.on_device = parameters_[members.front()].tensor.device().type != Device::Type::cpu;
        std::int64_t count = 0;
        for (const std::size_t i : members) count += parameters_[i].tensor.element_count();
        GradBucket& shown = bucket.shown;
        shown.index_ = buckets_.size() - 1;
        shown.is_last_ = buckets_.size() == buckets.size();
        if (bucket.on_device) {  // the gradients stay where they are
            for (const std::size_t i : members) {
                places_[i] = {shown.index_, shown.gradients_.size()};
                shown.parameters_.push_back(parameters_[i].tensor);
                shown.gradients_.push_back(parameters_[i].gradient.value_or(parameters_[i].tensor));
            }
            continue;
        }
        shown.buffer_ = zeros(dtype, Extents::of(count));
        auto* at = static_cast<std::byte*>(shown.buffer_.raw_data());
        for (const std::size_t i : members) {
            places_[i] = {shown.index_, shown.gradients_.size()};
            shown.parameters_.push_back(parameters_[i].tensor);
            shown.gradients_.emplace_back(at, parameters_[i].tensor.shape(), dtype);
            at += parameters_[i].tensor.byte_count();
        }
    }
    TUTTI_ASSERT(buckets_.size() == buckets.size());
    if (before.empty() || !options_.gradient_as_bucket_view) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        copy(in_bucket(i), before[places_before[i].bucket].shown.gradients_[places_before[i].position]);
}

// Rank 0's order counts: each rank may have its own.
void Reducer::adopt_order_of_first_rank() {
    TUTTI_ASSERT(phase_ == Phase::idle);
    if (rebuilding_ != Rebuilding::due) return;
    std::vector<std::uint64_t> order(first_order_.begin(), first_order_.end());
    const api::HostBytes own;
    async::broadcast(order, {.group = options_.group, .group_src = 0}).wait();
    rebuilding_ = Rebuilding::done;
    const ddp::Buckets wanted =
        assigned(parameters_, std::vector<std::size_t>(order.begin(), order.end()), options_.bucket_cap_bytes);
    if (wanted == buckets()) return;
    make_buckets(wanted);
    TUTTI_DEBUG("[Rank {}]: DDP has rebuilt its buckets, bucket_sizes: {}", options_.group.rank(),
                fmt::join(bucket_bytes(), ", "));
}

TensorView Reducer::in_bucket(std::size_t parameter) const {
    TUTTI_ASSERT(parameter < places_.size() && places_[parameter].bucket < buckets_.size());
    TUTTI_ASSERT(places_[parameter].position < buckets_[places_[parameter].bucket].shown.gradients_.size());
    const Place& place = places_[parameter];
    return buckets_[place.bucket].shown.gradients_[place.position];
}

// ---- An iteration

void Reducer::check_may_begin() {
    if (broken_) {
        throw InvalidArgument(title("forward") +
                              ": an iteration has failed: expected a new object, of a group that can be used");
    }
    if (phase_ == Phase::idle || order_.empty()) return;
    if (synchronizes_ && !options_.find_unused_parameters && !awaited().empty()) fail_unfinished();
    throw InvalidArgument(title("forward") + ": the last iteration has not been finished: expected finish() before");
}

void Reducer::forward() {
    check_may_begin();
    phase_ = Phase::idle;
    const bool synchronizes = *no_sync_scopes_ == 0;
    if (synchronizes) {
        adopt_order_of_first_rank();
        std::vector<TensorView> views;
        for (const NamedBuffer& buffer : options_.buffers) views.push_back(buffer.tensor);
        if (options_.broadcast_buffers) ddp::broadcast_from_first(options_.group, views);
    }
    ++iteration_;
    synchronizes_ = synchronizes;
    states_.assign(parameters_.size(), Gradient::awaited);
    order_.clear();
    usage_.begin_iteration();
    next_bucket_ = 0;
    for (Bucket& bucket : buckets_) {
        bucket.awaited = bucket.members.size();
        bucket.work.reset();
        bucket.hooked.reset();
        bucket.arrival.reset();
    }
    timing_.begin(synchronizes && ddp::Statistics::wants(iteration_));
    phase_ = Phase::open;
}

void Reducer::prepare_for_backward(const std::vector<std::size_t>& unused) {
    const std::string begin = title("prepare_for_backward");
    if (phase_ != Phase::open) throw InvalidArgument(begin + ": no iteration is open: expected forward() before");
    if (!unused.empty() && !options_.find_unused_parameters) {
        throw InvalidArgument(fmt::format(
            "{}: unused has {} parameters: expected none, as find_unused_parameters is false", begin, unused.size()));
    }
    for (std::size_t k = 0; k < unused.size(); ++k) {
        const std::size_t i = checked_index("prepare_for_backward", unused[k]);
        const bool twice = std::find(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(k), i) !=
                           unused.begin() + static_cast<std::ptrdiff_t>(k);
        if (states_[i] != Gradient::awaited || twice)
            throw InvalidArgument(
                fmt::format("{}: {} is ready, or unused, already: expected each parameter once", begin, described(i)));
    }
    timing_.backward_begins();
    if (!synchronizes_) return;
    for (const std::size_t i : unused) leave_out(i);
    send_complete_buckets();
}

void Reducer::ready(std::size_t i, const TensorView* elsewhere) {
    TUTTI_ASSERT(i < parameters_.size());
    const auto refuse = [&](const std::string& why) {
        throw InvalidArgument(fmt::format("{}: {}{}", title("ready"), described(i), why));
    };
    if (phase_ != Phase::open) refuse(": no iteration is open: expected forward() before");
    if (states_[i] == Gradient::ready) refuse(" is ready already in this iteration: expected it once");
    if (states_[i] == Gradient::unused) refuse(" was said to be unused in this iteration: expected no gradient");
    const TensorView& parameter = parameters_[i].tensor;
    if (elsewhere != nullptr && (elsewhere->dtype() != parameter.dtype() || elsewhere->shape() != parameter.shape() ||
                                 elsewhere->device() != parameter.device())) {
        refuse(fmt::format(": its gradient is {} on {}: expected {} on {}, as the parameter", elsewhere->to_string(),
                           to_string(elsewhere->device()), parameter.to_string(), to_string(parameter.device())));
    }
    if (elsewhere == nullptr && !parameters_[i].gradient && !options_.gradient_as_bucket_view)
        refuse(" has no gradient: expected one in the constructor, or in this call");
    if (elsewhere != nullptr && elsewhere->device().type != Device::Type::cpu && !elsewhere->contiguous())
        refuse(fmt::format(": its gradient on {} is not in one piece: expected contiguous memory",
                           to_string(elsewhere->device())));
    timing_.backward_begins();
    if (elsewhere != nullptr && options_.gradient_as_bucket_view)
        copy(in_bucket(i), *elsewhere);
    else
        gradients_[i] = elsewhere != nullptr ? std::optional(*elsewhere) : parameters_[i].gradient;
    order_.push_back(i);
    TUTTI_ASSERT(order_.size() <= parameters_.size());
    usage_.note(i);
    if (order_.size() == parameters_.size()) timing_.all_are_computed();
    if (!synchronizes_) return void(states_[i] = Gradient::ready);
    fill(i);
    mark(i, Gradient::ready);
    send_complete_buckets();
}

// Into its bucket.
void Reducer::fill(std::size_t i) {
    TUTTI_ASSERT(i < places_.size() && (gradients_[i] || options_.gradient_as_bucket_view));
    Bucket& bucket = buckets_[places_[i].bucket];
    if (bucket.on_device)
        bucket.shown.gradients_[places_[i].position] = *gradients_[i];
    else if (!options_.gradient_as_bucket_view)
        copy(in_bucket(i), *gradients_[i]);
}

void Reducer::mark(std::size_t i, Gradient state) {
    TUTTI_ASSERT(state != Gradient::awaited && states_[i] == Gradient::awaited);
    TUTTI_ASSERT(buckets_[places_[i].bucket].awaited > 0);
    states_[i] = state;
    --buckets_[places_[i].bucket].awaited;
}

}  // namespace tutti::detail
