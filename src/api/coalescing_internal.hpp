// Collected calls: the operations that a Coalescing scope (coalescing.hpp) collects and launches together, with one
// Work.
//
// Threads: a scope belongs to the thread that made it; any thread may call launch().
#pragma once

#include "api/call.hpp"

#include <functional>
#include <vector>

namespace tutti::api {

/// The number of scopes that this thread has open. Calls look for a scope only if it is not zero.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int open_scopes = 0;

/// Records the calls of its thread, on all groups, instead of running them: for the capture of a graph
/// (graph/capture.hpp).
class CallRecorder {
 public:
    CallRecorder() = default;
    virtual ~CallRecorder() = default;
    CallRecorder(const CallRecorder&) = delete;
    CallRecorder& operator=(const CallRecorder&) = delete;
    virtual void run(const PreparedOperation& call) = 0;
    virtual Work start(const PreparedOperation& call) = 0;
    /// Throws InvalidArgument: `call` cannot be recorded.
    [[noreturn]] virtual void refuse(const char* call) = 0;
};
/// The recorder of this thread, or null. open_scopes counts it as a scope.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local CallRecorder* call_recorder = nullptr;
inline void refuse_if_recorded(const char* call) {
    if (call_recorder != nullptr) call_recorder->refuse(call);
}

/// Whether a scope of this thread collects calls of the group.
bool is_collected(const Group& group) noexcept;
/// Hands the operation to the scope that collects its group's calls; false if there is none.
bool collect(const PreparedOperation& operation);

/// The thread that drives the operations: the caller, which waits at once, or a background thread.
enum class Driver { caller, background };
/// Starts the operations; packs short ones of one kind into one. Every operation reads its inputs before any of them
/// writes; if several write to the same memory, the result of the last remains. Throws InvalidArgument, before sending
/// anything, if operations overlap on a device other than the host.
Work launch(const char* name, const std::shared_ptr<Group>& group, const std::vector<PreparedOperation>& operations,
            Driver driver);

/// Gives operations whose memory overlaps separate copies of their tensors (overlap.cpp). Returns the functions that
/// write the results back, to be called in order once all operations have completed.
std::vector<std::function<void()>> set_apart(const char* name, const std::vector<PreparedOperation>& operations);

/// Whether the operation may be packed: one operation then does the work of several of its kind (pack.cpp).
bool may_be_packed(const Operation& operation);
/// The bytes of the operation in a pack; equal on all ranks.
std::uint64_t packed_bytes(const Operation& operation);
/// The kind, equal for all operations in one pack.
std::uint64_t kind_of(const Operation& operation);
PreparedOperation pack(const std::vector<PreparedOperation>& operations);
/// As pack(), for all_reduces that are not operations yet: making an operation for each short tensor takes longer than
/// reducing it. Null if a tensor exceeds `short_bytes`, all exceed `pack_bytes`, or they are not contiguous host memory
/// of one type.
PreparedOperation pack_all_reduce(const TensorList& tensors, const AllReduceOptions& options, std::uint64_t short_bytes,
                                  std::uint64_t pack_bytes);

}  // namespace tutti::api
