// The body of ProcessGroupTutti::issue, for the files that define its operations.
#pragma once

#include "call_site/call_site.hpp"
#include "failure.hpp"
#include "process_group.hpp"
#include "staging.hpp"

#include <ATen/record_function.h>

#include <tutti/coalescing.hpp>
#include <tutti/collectives.hpp>
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

/// A function of tutti in both forms, and what PyTorch and the recorder call it.
template <class Blocking, class Asynchronous>
struct Function {
    const char* operation;  ///< the collective's name
    c10d::OpType type;
    Blocking blocking;
    Asynchronous asynchronous;

    constexpr Function as(c10d::OpType other) const { return {operation, other, blocking, asynchronous}; }
};
template <class Blocking, class Asynchronous>
Function(const char*, c10d::OpType, Blocking, Asynchronous) -> Function<Blocking, Asynchronous>;

/// By name, from the table of collectives. Those of several calls as one have no type of their own.
namespace functions {
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, options, torch, ...)               \
    inline constexpr Function name{#collective, c10d::OpType::torch,                            \
                                   [](const auto&... arguments) { tutti::name(arguments...); }, \
                                   [](const auto&... arguments) { return tutti::async::name(arguments...); }};
#define TUTTI_COALESCED_FUNCTION(name, collective, ...)                                         \
    inline constexpr Function name{#collective, c10d::OpType::COALESCED,                        \
                                   [](const auto&... arguments) { tutti::name(arguments...); }, \
                                   [](const auto&... arguments) { return tutti::async::name(arguments...); }};
#include <tutti/collectives.def>
}  // namespace functions

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

/// The same of one that writes its tensors in place, or that has outputs and inputs apart: `operation(copies)`,
/// `operation(outputs, inputs)`.
template <class Written, class Operation>
WorkPtr ProcessGroupTutti::on_host(Written& tensors, Operation operation) {
    return stage([&](Staging& staging) {
        auto copies = staging.out(tensors, Staging::Fill::yes);
        return operation(copies);
    });
}
template <class Written, class Read, class Operation>
WorkPtr ProcessGroupTutti::on_host(Written& outputs, Read& inputs, Operation operation) {
    return stage([&](Staging& staging) {
        auto outputs_on_host = staging.out(outputs, Staging::Fill::no);
        auto inputs_on_host = staging.in(inputs);
        return operation(outputs_on_host, inputs_on_host);
    });
}

inline Tensors list_of(const at::Tensor& tensor) {
    return {tensor};
}
inline const Tensors& list_of(const Tensors& tensors) {
    return tensors;
}
inline std::vector<Tensors> lists_of(const at::Tensor& tensor) {
    return {Tensors{tensor}};
}
inline std::vector<Tensors> lists_of(const Tensors& tensors) {
    return {tensors};
}
inline const std::vector<Tensors>& lists_of(const std::vector<Tensors>& lists) {
    return lists;
}
/// What issue() takes: the tensors that an operation writes and reads, for as long as its Work lives. They are copied
/// only where there is a Work.
template <class Outputs, class Inputs>
auto ProcessGroupTutti::keep(const Outputs& outputs, const Inputs& inputs) {
    return [&] { return Kept{lists_of(outputs), list_of(inputs)}; };
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

/// Of a function of the table. `theirs`, `ours`: the options of PyTorch's call and of tutti's.
template <class Function, class Theirs, class Ours>
ProcessGroupTutti::Call ProcessGroupTutti::call_of(const Function& function, const Theirs& theirs, const Ours& ours) {
    return {function.operation, function.type, theirs.asyncOp, ours.timeout};
}
template <class Function, class Ours, class Keep, class... Arguments>
WorkPtr ProcessGroupTutti::run_as(const Call& call, const Function& function, const Ours& ours, Keep keep,
                                  const Arguments&... arguments) {
    return issue(
        call, [&] { function.blocking(arguments..., ours); }, [&] { return function.asynchronous(arguments..., ours); },
        keep);
}
template <class Function, class Theirs, class Ours, class Keep, class... Arguments>
WorkPtr ProcessGroupTutti::run(const Function& function, const Theirs& theirs, const Ours& ours, Keep keep,
                               const Arguments&... arguments) {
    return run_as(call_of(function, theirs, ours), function, ours, keep, arguments...);
}

}  // namespace tutti::torch
