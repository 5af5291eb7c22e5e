// Steps: a graph's nodes as they run, one after the other: plans of calls, copies around them, functions.
//
// Threads: one at a time.
#pragma once

#include "graph/bindings.hpp"
#include "graph/captured.hpp"

#include <tutti/plan.hpp>
#include <tutti/tensor.hpp>

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

namespace tutti::graph {

struct Move {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
};

struct Step {
    enum class Kind { call, start, wait, compute, copy };
    Kind kind = Kind::copy;
    Plan plan;
    Work work;                        ///< of a start step, until its wait
    Tensor scratch;                   ///< where the call's result goes if it cannot go to its place directly
    std::vector<Move> before, after;  ///< copies before and after the call
    const detail::CapturedCall* function = nullptr;
    ConstTensorList reads;
    TensorList writes;
    std::size_t started = 0;     ///< wait: index of the start step
    const void* site = nullptr;  ///< call site of the captured call, for the recorder; null: none

    void run(std::vector<Step>& all);
};

/// The steps of a graph from capture(), with its buffers where `bindings` places them, and its arena, if any, at
/// `arena`.
std::vector<Step> steps_of(const Graph& graph, const Bindings& bindings, std::byte* arena);

}  // namespace tutti::graph
