// Streams of a device's driver, where there is one: a program with a GPU, or with a library in the driver's place, may
// give its streams, and operations then come after what those hold already. Only cuLaunchHostFunc is needed of the
// driver: looked for among what the process has loaded, else in the file that TUTTI_CUDA_LIB names.
//
// Threads: any.
#pragma once

#include "interface.h"

#include <functional>

namespace tutti::nccl_library {

/// Whether operations in this stream are to run in its order: it is not null, and there is a driver.
bool is_ordered(ncclStream_t stream);

/// Runs `work` when the stream reaches it, on a thread of the driver's; what comes later waits for its end. `work`
/// throws nothing and calls no function of the driver. Throws Failure (unhandled CUDA error); `work` does not run then.
/// Not for streams that are captured.
void run_in_stream(ncclStream_t stream, std::function<void()> work);

/// The stream is being captured into a graph.
bool is_captured(ncclStream_t stream);
/// The same for such a stream: whenever the graph runs. `work` must live as long as the process.
void run_in_graph(ncclStream_t stream, const std::function<void()>& work);

/// The device of this thread; 0 where there is no driver, or it has no answer.
int current_device();

}  // namespace tutti::nccl_library
