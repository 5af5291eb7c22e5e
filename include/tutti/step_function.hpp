// User functions inside a collective: the steps `call` of a schedule that the user wrote as a text (TUTTI_SCHEDULE).
//
// Threads: any. The functions themselves run on whichever thread progresses the group, one call of a group at a time.
#pragma once

#include <tutti/export.hpp>
#include <tutti/tensor.hpp>

#include <functional>
#include <span>
#include <string>

namespace tutti {

/// target   out: a vector in host memory, which shares no memory with the sources.
/// sources  in: one for "call", one or more for "call_combine", each of as many elements as the target, of its own
/// dtype. A text of count 1 that runs for a call of 1000 elements gives a function all 1000 at once.
///
/// It runs under the group's lock: it must not call tutti, and should not take long, as all other operations of the
/// group wait meanwhile. If it throws anything, or calls a function of tutti's that waits for the group, the operation
/// fails with Aborted on all ranks, with the exception's message, and the group cannot be used any more.
using StepFunction = std::function<void(const TensorView& target, std::span<const ConstTensorView> sources)>;

/// Gives a function the name by which the texts in TUTTI_SCHEDULE call it ("calls NAME", then "call NAME TARGET SOURCE"
/// or "call_combine NAME TARGET SOURCE..."; docs/guides/write-a-schedule.md). Every rank registers its functions before
/// it joins a group: a rank that lacks one of a text's functions cannot join, and says which. A name and its function
/// stay for the life of the process; several groups may run the function at the same time, on different threads.
/// Between ranks nothing compares functions of one name: they have to do the same.
/// Threads: any.
/// Throws InvalidArgument for a name that is empty or taken, or contains white space or '#', and for an empty function.
TUTTI_API void register_step_function(std::string name, StepFunction function);

}  // namespace tutti
