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
    Work work;                        ///< of a start, until it is waited for
    Tensor scratch;                   ///< where the call's result goes if it may not go to its place at once
    std::vector<Move> before, after;  ///< around the call
    const detail::CapturedCall* function = nullptr;
    ConstTensorList reads;
    TensorList writes;
    std::size_t started = 0;     ///< wait: the step that began it
    const void* site = nullptr;  ///< the captured call's, for records of this one; null: none

    void run(std::vector<Step>& all);
};

/// The steps of a graph that capture() made, with its buffers at those places, and its arena, if it has one, there.
std::vector<Step> steps_of(const Graph& graph, const Bindings& bindings, std::byte* arena);

}  // namespace tutti::graph
