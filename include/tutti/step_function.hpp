// User functions inside a collective: the `call` steps of a schedule that the user wrote as a text (TUTTI_SCHEDULE).
//
// Threads: any. The functions themselves run on whichever thread progresses the group, one call of a group at a time.
#pragma once

#include <tutti/export.hpp>
#include <tutti/tensor.hpp>

#include <functional>
#include <span>
#include <string>

namespace tutti {

/// target   out: a vector in host memory that shares no memory with the sources.
/// sources  in: one for "call", one or more for "call_combine"; each has as many elements as the target, of its own
///          dtype. If a text of count 1 runs for a call of 1000 elements, the function gets all 1000 at once.
///
/// The function runs under the group's lock: it must not call tutti, and should not take long, since all other
/// operations of the group wait meanwhile. If it throws anything, or calls a tutti function that waits for the group,
/// the operation fails with Aborted on all ranks, with the exception's message, and the group cannot be used any more.
using StepFunction = std::function<void(const TensorView& target, std::span<const ConstTensorView> sources)>;

/// Registers a function under the name with which the texts in TUTTI_SCHEDULE call it ("calls NAME", then "call NAME
/// TARGET SOURCE" or "call_combine NAME TARGET SOURCE..."; docs/guides/write-a-schedule.md). Every rank registers its
/// functions before it joins a group: a rank that lacks a function of a text cannot join; the error names the function.
/// Functions stay registered for the life of the process; several groups may run a function at the same time, on
/// different threads. Functions of one name must do the same on all ranks; tutti does not check this.
/// Threads: any.
/// Throws InvalidArgument for a name that is empty or taken, or contains white space or '#', and for an empty function.
TUTTI_API void register_step_function(std::string name, StepFunction function);

}  // namespace tutti
