// The body of ProcessGroupTutti::issue, for the files that define its operations.
#pragma once

#include "call_site/call_site.hpp"
#include "failure.hpp"
#include "process_group.hpp"
#include "staging.hpp"

#include <ATen/record_function.h>

#include <tutti/trace.hpp>

namespace tutti::torch {

/// The calls between startCoalescing() and endCoalescing().
struct ProcessGroupTutti::Coalesced {
    explicit Coalesced(const ProcessGroup& group) : scope({.group = group}) {}
    Coalescing scope;
    Kept kept;
    std::vector<std::shared_ptr<Staging>> stagings;
};

inline ProcessGroupTutti::Coalesced* ProcessGroupTutti::coalesced() const {
    if (collecting_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(coalescing_mutex_);
    const auto own = coalesced_.find(std::this_thread::get_id());
    return own == coalesced_.end() ? nullptr : own->second.get();
}

/// Carries out an operation on host copies of its tensors: `operation(staging)` makes the copies and issues the call.
template <class Operation>
WorkPtr ProcessGroupTutti::stage(Operation operation) {
    auto staging = std::make_shared<Staging>();
    const WorkPtr work = operation(*staging);
    if (Coalesced* together = coalesced()) {
        together->stagings.push_back(std::move(staging));
        return {};
    }
    if (!work) {
        staging->copy_back();
        return {};
    }
    auto host = c10::dynamic_intrusive_pointer_cast<TorchWork>(work);
    TORCH_INTERNAL_ASSERT(host, "every operation of ProcessGroupTutti returns a TorchWork");
    return c10::make_intrusive<StagedWork>(std::move(host), std::vector{std::move(staging)});
}

template <class Blocking, class Asynchronous, class Keep>
WorkPtr ProcessGroupTutti::issue(const Call& call, Blocking blocking, Asynchronous asynchronous, Keep keep) {
    if (call.counted) sequence_.fetch_add(1, std::memory_order_relaxed);
    const CallSiteScope site(python::call_site());
    try {
        if (Coalesced* together = coalesced()) [[unlikely]] {
            Kept kept = keep();
            blocking();  // only collected, until endCoalescing
            for (Tensors& list : kept.outputs) {
                Tensors& all = together->kept.outputs.front();
                all.insert(all.end(), list.begin(), list.end());
            }
            Tensors& all = together->kept.inputs;
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
        std::rethrow_exception(translated(std::current_exception(), {rank_, call.operation}));
    } catch (const DistError&) {
        failures_.note(std::current_exception());
        std::rethrow_exception(translated(std::current_exception(), {rank_, call.operation}));
    }
}

}  // namespace tutti::torch
