// The body of ProcessGroupTutti::issue, for the files that define its operations.
#pragma once

#include "failure.hpp"
#include "process_group.hpp"

#include <ATen/record_function.h>

namespace tutti::torch {

/// The calls between startCoalescing() and endCoalescing().
struct ProcessGroupTutti::Coalesced {
    explicit Coalesced(const ProcessGroup& group) : scope({.group = group}) {}
    Coalescing scope;
    Kept kept;
};

template <class Blocking, class Asynchronous, class Keep>
WorkPtr ProcessGroupTutti::issue(const Call& call, Blocking blocking, Asynchronous asynchronous, Keep keep) {
    if (call.counted) sequence_.fetch_add(1, std::memory_order_relaxed);
    try {
        if (coalescing_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id()) [[unlikely]] {
            Kept kept = keep();
            blocking();  // only noted down, until endCoalescing
            for (Tensors& list : kept.outputs) {
                Tensors& all = coalesced_->kept.outputs.front();
                all.insert(all.end(), list.begin(), list.end());
            }
            Tensors& all = coalesced_->kept.inputs;
            all.insert(all.end(), kept.inputs.begin(), kept.inputs.end());
            return {};
        }
        WorkFacts facts = facts_of(call);
        if (!call.async_op && !facts.title && !Recorder::is_on()) {
            blocking();
            return {};
        }
        Kept kept = keep();
        if (Recorder::is_on()) facts.recorded = record(call, facts, kept);
        tutti::Work handle = asynchronous();
        failures_.watch(handle);
        auto work =
            c10::make_intrusive<TorchWork>(facts, std::move(handle), std::move(kept.outputs), std::move(kept.inputs));
        if (call.async_op) return work;
        work->wait();
        return {};
    } catch (const InvalidArgument&) {
        std::rethrow_exception(translated(std::current_exception()));
    } catch (const DistError&) {
        failures_.note(std::current_exception());
        std::rethrow_exception(translated(std::current_exception()));
    }
}

}  // namespace tutti::torch
