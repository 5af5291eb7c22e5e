// The reducer's end: buckets on their way, their results, parameters that nobody used, failures.
#include "core/assert.hpp"
#include "ddp/reducer.hpp"
#include "ddp/replicas.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/debug.hpp>
#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

// The tensor that a hook's future holds.
TensorView tensor_of(const Tensor& tensor) {
    return tensor.view();
}
TensorView tensor_of(const std::vector<TensorView>& list) {
    if (list.size() == 1) return list.front();
    throw InvalidArgument(fmt::format("the hook's future holds {} tensors: expected one", list.size()));
}

}  // namespace

// ---- The way

void Reducer::send_complete_buckets() {
    TUTTI_ASSERT(next_bucket_ <= buckets_.size());
    while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].awaited == 0 && !failure_)
        send(buckets_[next_bucket_++]);
}

void Reducer::send(Bucket& bucket) {
    TUTTI_ASSERT(bucket.awaited == 0 && !bucket.work && !bucket.hooked);
    TUTTI_ASSERT(!failure_);
    timing_.sending_begins();
    const auto now = [](const auto&) { return Clock::now(); };
    try {
        if (hook_) {
            bucket.hooked = hook_(hook_group_, bucket.shown);
            if (timing_.is_on())
                bucket.arrival = std::visit([&](const auto& future) { return future.then(now); }, *bucket.hooked);
        } else {
            const AllReduceOptions average{.op = ReduceOp::avg, .group = options_.group};
            bucket.work = bucket.on_device ? async::all_reduce_coalesced(bucket.shown.gradients_, average)
                                           : async::all_reduce(bucket.shown.buffer_.view(), average);
            if (timing_.is_on()) bucket.arrival = bucket.work->get_future().then(now);
        }
    } catch (...) {
        failure_ = std::current_exception();
    }
}

void Reducer::receive(Bucket& bucket) {
    TUTTI_ASSERT(bucket.hooked || bucket.work);
    if (bucket.hooked)
        take_hooked(bucket);
    else
        bucket.work->wait();
    if (options_.gradient_as_bucket_view || bucket.on_device) return;
    for (const std::size_t i : bucket.members) {
        if (states_[i] == Gradient::ready) copy(*gradients_[i], in_bucket(i));
    }
}

// Puts the hook's result into the bucket's buffer if it is elsewhere.
void Reducer::take_hooked(Bucket& bucket) {
    TUTTI_ASSERT(bucket.hooked.has_value());
    if (bucket.on_device) return std::visit([](const auto& future) { (void)future.wait(); }, *bucket.hooked);
    const TensorView result = std::visit([](const auto& future) { return tensor_of(future.wait()); }, *bucket.hooked);
    const TensorView& buffer = bucket.shown.buffer_.view();
    if (result.dtype() != buffer.dtype() || result.element_count() != buffer.element_count() ||
        result.device() != buffer.device()) {
        throw InvalidArgument(fmt::format("{}: the hook made {} on {} of bucket {}: expected {} elements of {} on {}",
                                          title("finish"), result.to_string(), to_string(result.device()),
                                          bucket.shown.index(), buffer.element_count(), to_string(buffer.dtype()),
                                          to_string(buffer.device())));
    }
    if (result.data() != buffer.data()) copy(buffer, result);
}

void Reducer::note_arrivals() {
    TUTTI_ASSERT(next_bucket_ == buckets_.size());
    if (!timing_.is_on()) return;
    for (const Bucket& bucket : buckets_) timing_.arrived(bucket.arrival->wait());
}

// ---- Parameters without a gradient

// The gradient counts as zeros; unless one was added up in no_sync(), which is still to be averaged.
void Reducer::leave_out(std::size_t i) {
    TUTTI_ASSERT(states_[i] == Gradient::awaited);
    if (usage_.is_used_here(i)) {
        fill(i);
        return mark(i, Gradient::ready);
    }
    using Keep = ddp::Usage::Keep;
    usage_.leave_out(i, in_bucket(i), options_.gradient_as_bucket_view ? Keep::yes : Keep::no);
    mark(i, Gradient::unused);
}

// Used elsewhere: the average. Nowhere: as it was.
void Reducer::settle_left_out() {
    if (!usage_.receive()) return;
    for (const ddp::Usage::LeftOut& unused : usage_.left_out()) {
        const std::size_t i = unused.parameter;
        const bool used = usage_.is_used_anywhere(i);
        if (options_.gradient_as_bucket_view) {
            if (!used) copy(in_bucket(i), unused.kept);
        } else if (used) {
            copy(*gradients_[i], in_bucket(i));
        }
    }
}

std::vector<std::size_t> Reducer::awaited() const {
    TUTTI_ASSERT(states_.size() == parameters_.size());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < states_.size(); ++i) {
        if (states_[i] == Gradient::awaited) missing.push_back(i);
    }
    return missing;
}

// ---- The end

void Reducer::finish() {
    if (phase_ != Phase::open)
        throw InvalidArgument(title("finish") + ": no iteration is open: expected forward() before");
    if (!synchronizes_) return void(phase_ = Phase::idle);
    if (!options_.find_unused_parameters && !awaited().empty()) fail_unfinished();
    try {
        reduce_all();
    } catch (const DistBackendError&) {
        // Every rank learns of the failure, and the group ends by it if it has to.
        broken_ = true;
        phase_ = Phase::idle;
        throw;
    } catch (const std::exception& error) {
        end_group(error.what());
        throw;
    } catch (...) {
        end_group("a hook has thrown something");
        throw;
    }
    std::size_t unused_bytes = 0;
    for (const auto& unused : usage_.left_out()) unused_bytes += parameters_[unused.parameter].tensor.byte_count();
    timing_.end(options_.group, options_, unused_bytes);
    usage_.clear();
    for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = parameters_[i].gradient;
    if (rebuilding_ == Rebuilding::awaits_order) {
        first_order_ = order_;
        rebuilding_ = Rebuilding::due;
    }
    phase_ = Phase::idle;
}

void Reducer::reduce_all() {
    TUTTI_ASSERT(phase_ == Phase::open && synchronizes_);
    timing_.backward_begins();
    timing_.all_are_computed();
    for (const std::size_t i : awaited()) leave_out(i);
    send_complete_buckets();
    if (failure_) std::rethrow_exception(failure_);
    TUTTI_ASSERT(next_bucket_ == buckets_.size() && awaited().empty());
    usage_.send(options_.group);  // after all buckets: it takes no part in their order
    for (Bucket& bucket : buckets_) receive(bucket);
    settle_left_out();
    note_arrivals();
}

// Ranks that miss nothing wait for this one, so the group ends. The sentences are torch's.
void Reducer::fail_unfinished() {
    const int rank = options_.group.rank();
    const std::vector<std::size_t> missing = awaited();
    std::string text =
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that "
        "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
        "passing `find_unused_parameters=True` (.find_unused_parameters = true) to DistributedDataParallel, and by "
        "making "
        "sure all `forward` function outputs participate in calculating loss. If you already have done so: each "
        "parameter "
        "needs ready() before finish().";
    if (get_debug_level() != DebugLevel::off) {
        std::vector<std::string_view> names;
        for (const std::size_t i : missing) names.push_back(parameters_[i].name);
        text += fmt::format("\nParameters which did not receive grad for rank {}: {}", rank, fmt::join(names, ", "));
    } else {
        text +=
            " TORCH_DISTRIBUTED_DEBUG=INFO (or TUTTI_DISTRIBUTED_DEBUG) adds the names of the parameters that did not "
            "receive grad.";
    }
    text +=
        fmt::format("\nParameter indices which did not receive grad for rank {}: {}", rank, fmt::join(missing, ", "));
    end_group(text);
    throw InvalidArgument(text, {.operation = "DistributedDataParallel", .group = options_.group.name(), .rank = rank});
}

void Reducer::end_group(const std::string& reason) {
    broken_ = true;
    phase_ = Phase::idle;
    try {
        options_.group.abort(fmt::format("{}: rank {}: {}", ddp::title(options_),
                                         options_.group.global_rank(options_.group.rank()), reason));
    } catch (const DistError&) {
        // It has ended.
    }
}

}  // namespace tutti::detail
