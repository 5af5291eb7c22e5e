// Collected calls: operations that are launched together, with one Work (coalescing.hpp).
//
// Threads: scopes belong to their thread; launch() may be called by any.
#pragma once

#include "api/call.hpp"

#include <functional>
#include <vector>

namespace tutti::api {

/// Scopes that this thread has open: where there are none, calls look no further.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int open_scopes = 0;

/// Takes the calls of its thread, on all groups, instead of running them: a graph's capture (graph/capture.hpp).
class CallRecorder {
 public:
    CallRecorder() = default;
    virtual ~CallRecorder() = default;
    CallRecorder(const CallRecorder&) = delete;
    CallRecorder& operator=(const CallRecorder&) = delete;
    virtual void run(const PreparedOperation& call) = 0;
    virtual Work start(const PreparedOperation& call) = 0;
    /// Throws InvalidArgument: that call cannot be taken.
    [[noreturn]] virtual void refuse(const char* call) = 0;
};
/// Where there is one, open_scopes counts it.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local CallRecorder* call_recorder = nullptr;
inline void refuse_if_recorded(const char* call) {
    if (call_recorder != nullptr) call_recorder->refuse(call);
}

/// Whether a scope of this thread collects the group's calls.
bool is_collected(const Group& group) noexcept;
/// Takes the operation for the scope that collects its group's calls; false: there is none.
bool collect(const PreparedOperation& operation);

/// The thread that makes progress: the caller, which waits at once, or another.
enum class Driver { caller, background };
/// Starts them, short ones of a kind in one. Each reads the values from before any of them wrote; where several write
/// to the same memory, the last one's result stays. Throws InvalidArgument, before sending anything, when they overlap
/// on another device than the host.
Work launch(const char* name, const std::shared_ptr<Group>& group, const std::vector<PreparedOperation>& operations,
            Driver driver);

/// Gives operations that overlap copies of their own. Returns the functions that write their results, in their order,
/// once all of them have ended (apart.cpp).
std::vector<std::function<void()>> set_apart(const char* name, const std::vector<PreparedOperation>& operations);

/// One operation for several of one kind (pack.cpp).
bool may_be_packed(const Operation& operation);
/// Of this rank's buffers and of the others' alike.
std::uint64_t packed_bytes(const Operation& operation);
/// The kind, equal for all operations in one pack.
std::uint64_t kind_of(const Operation& operation);
PreparedOperation pack(const std::vector<PreparedOperation>& operations);
/// The same for all_reduces that are not operations yet: to make operations of many short tensors takes longer than to
/// reduce them. Null where they do not fit into one pack of plain host memory.
PreparedOperation pack_all_reduce(const TensorList& tensors, const AllReduceOptions& options, std::uint64_t short_bytes,
                                  std::uint64_t pack_bytes);

}  // namespace tutti::api
