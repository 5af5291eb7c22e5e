// Backends: the components that move the data of a group. "native" (shared memory and TCP) is built in; others are
// registered by the program, or by a shared library that tutti finds by its name.
//
// A backend gets operations in their plainest form: whatever the caller passes (lists, strides, objects, premul_sum),
// the backend sees contiguous buffers, counts in elements and ranks of the group. It completes each operation once,
// from any thread, at once or later. tutti does the rest: arguments, packing, Work, timeouts, the recorder, the
// detection of dead ranks.
//
// tutti loads a shared library libtutti-backend-NAME.so when a group asks for NAME: from a folder of TUTTI_BACKEND_PATH
// (folders separated by colons), or from tutti/backends beside libtutti.so, where tutti's own are: "gloo", "mpi",
// "hf_zmq" (also spelled "hf_barrier"), each if its library was there when tutti was built; "nccl" and the vendors'
// libraries like it, which look for the vendor's library when they are loaded. A backend library contains
// TUTTI_BACKEND_LIBRARY { Backend::register_backend(...); } and uses libtutti.so; a program that links tutti statically
// registers its backends itself. tutti refuses, with a message, a library that was built for another version of this
// header (TUTTI_BACKEND_ABI). The library may also export the C function const char* tutti_backend_report(void), whose
// text "tutti doctor" prints. If the text begins with "not here: " (a library that the backend needs is missing),
// is_backend_available() is false, and groups that name no backend do not use it.
//
// Threads: Backend's functions, any; CustomBackend says which threads call a backend.
// Follows torch.distributed.Backend.
#pragma once

#include <tutti/collectives.hpp>
#include <tutti/dtype.hpp>
#include <tutti/export.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/store.hpp>
#include <tutti/stream.hpp>
#include <tutti/tensor.hpp>

#include <any>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

namespace detail {
class Operation;
}
struct DistributedBackendOptions;

/// The version of this header; tutti loads no libraries of another version.
#define TUTTI_BACKEND_ABI 6

/// A collective has the number that tutti/collectives.hpp gives it.
enum class BackendCall {
#define TUTTI_COLLECTIVE_KIND(name, number, ...) name = number,
#include <tutti/collectives.def>
    send = 256,
    receive,
};
TUTTI_API std::string_view to_string(BackendCall call) noexcept;
/// The collective of a call; nullopt for send and receive.
constexpr std::optional<Collective> collective_of(BackendCall call) noexcept {
    const auto number = static_cast<int>(call);
    if (number < 1 || number > collective_count) return std::nullopt;
    return static_cast<Collective>(number);
}

/// One operation. The request and its buffers stay in place until it is complete. Counts are elements of `dtype`.
struct BackendRequest {
    BackendCall call = BackendCall::barrier;
    std::string name;            ///< name of the called function, for messages
    std::uint64_t sequence = 0;  ///< of a collective: equal on all ranks, ascending in the order of calls
    Device device{};             ///< where the buffers are
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;  ///< premul_sum: for device buffers only
    /// A reduction combines the ranks' values in rank order, from rank 0 up (Determinism::layout_invariant).
    bool in_rank_order = false;
    int root = -1;          ///< collectives with a root; send: the receiver; receive: the sender, -1: any
    std::uint64_t tag = 0;  ///< send, receive: a receive takes only a message with its tag
    /// This rank's input. all_reduce, and reduce on its root: may be `output`. broadcast: null, the root's data is in
    /// its output. receive, barrier: null. On a device this rank's block may lie at its place in the buffer of all
    /// blocks (all_gather and reduce_scatter in place); otherwise input and output do not overlap.
    const void* input = nullptr;
    /// This rank's output; null if it gets no result.
    void* output = nullptr;
    /// broadcast, all_reduce, reduce, send, receive: elements. gather, scatter: elements of one rank's block.
    std::uint64_t count = 0;
    /// all_gather, reduce_scatter: elements of each rank's block; the blocks lie one after the other, in rank order.
    std::vector<std::uint64_t> counts;
    /// all_to_all, gather_v, scatter_v: the lengths of the blocks to and from each rank, and their offsets in `input`
    /// and `output`. With a root all blocks are empty but those between it and this rank.
    std::vector<std::uint64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    std::chrono::milliseconds timeout{0};  ///< tutti enforces it while a rank waits; a backend may enforce it, too
    /// For buffers on a device: the caller's stream. The operation starts after all earlier work in this stream.
    Stream stream{};
    /// For buffers on a device and backends that take blocks: if the blocks are not contiguous, the address of each
    /// rank's block, by rank; `input` or `output` is null then, and an all_to_all's offsets are unused for that side.
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
};

/// An event on a device, like a cudaEvent_t: it fires when an operation has ended.
class TUTTI_API DeviceEvent {
 public:
    virtual ~DeviceEvent();
    /// Makes work that is enqueued in `stream` from now on wait for the event. Does not block. Any thread.
    virtual void make_wait(Stream stream) = 0;
};

/// A backend reports the end of an operation here: it calls success() or failure() once. Copies refer to the same
/// operation. Any thread.
class TUTTI_API BackendCompletion {
 public:
    explicit BackendCompletion(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}
    /// `source`: for a receive, the group rank of the sender.
    void success(int source = -1) const;
    void failure(std::exception_ptr error) const;
    /// Call this before success(), for operations on a device only: the operation is enqueued in a stream, and only the
    /// device's work remains. From now on Work::is_completed() is true and Work::wait() makes the current stream wait.
    /// `source` as above.
    void enqueued(std::shared_ptr<DeviceEvent> event, int source = -1) const;

 private:
    std::shared_ptr<detail::Operation> operation_;
};

/// The interface that third parties implement: the operations of one rank in one group.
class TUTTI_API CustomBackend {
 public:
    virtual ~CustomBackend() = default;
    /// Begins the operation; may also complete it before returning. The threads that issue operations call run(), one
    /// at a time and in the order of issue, which for collectives is the same on all ranks. An exception fails the
    /// operation. run() must not block on anything that only a later call of run() starts: asynchronous operations are
    /// issued together, and a receive may be issued before its send.
    virtual void run(const BackendRequest& request, BackendCompletion completion) = 0;
    /// tutti calls these around the run() calls of operations that it launches together (Coalescing, the _coalesced
    /// collectives), like ncclGroupStart and ncclGroupEnd: the backend may delay the operations until end_group(). One
    /// thread makes all of these calls, under the same conditions as run(). An exception from end_group() fails all of
    /// the operations that are not complete.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// Whether requests may have `inputs` and `outputs`. If false, the tensors of a list on a device must lie one after
    /// the other.
    virtual bool takes_blocks() const { return false; }
    /// can_split(): whether split() is implemented. split() makes the backend of a subgroup; all ranks of this backend
    /// call it. `part` describes the subgroup; null on ranks outside it. `pg_options` are the subgroup's. Returns null
    /// on all ranks, at once, if it cannot make any: tutti then makes the subgroup's backend as if it had no parent.
    virtual bool can_split() const { return false; }
    virtual std::shared_ptr<CustomBackend> split(const DistributedBackendOptions* part, const std::any& pg_options);
    /// Makes the backend of the remaining ranks when this group has failed, or continues without some ranks; all
    /// remaining ranks call it. `rest` describes their new group; `left_out` are the other ranks, by their numbers in
    /// this group. The implementation first ends the operations in flight here, as abort() does. Returns null on all
    /// ranks if it cannot make any: tutti then makes a backend from scratch.
    virtual std::shared_ptr<CustomBackend> shrink(const DistributedBackendOptions& rest,
                                                  const std::vector<int>& left_out, const std::any& pg_options);
    /// The group ends without a failure; a call of abort() follows. Waits until the data of completed operations are
    /// certain to reach the other ranks (except those that have left or failed) even if this process ends.
    virtual void leave() noexcept {}
    /// Fails the operations in flight; when it returns, the backend accesses no buffer any more. Later operations fail.
    /// May be called from any thread, also during run(), and more than once. Also called when the group ends, after
    /// leave().
    virtual void abort(const std::string& reason) noexcept = 0;
    /// As abort(), when the group's last handle has gone without destroy() and nothing is in flight on this rank. Other
    /// ranks may still be in their last operation, so a backend whose abort() tells them should not do so here.
    virtual void drop(const std::string& reason) noexcept { abort(reason); }
};

/// The arguments of a backend's constructor.
struct DistributedBackendOptions {
    Store store{};  ///< used by this group's backend only
    int group_rank = -1;
    int group_size = -1;
    std::chrono::milliseconds timeout{0};
    std::string group_id{};                    ///< the group's name
    std::vector<int> global_ranks_in_group{};  ///< global rank of each group rank
    std::optional<Device> device{};  ///< init_process_group's device_id: connect at once, not at the first call
};

/// The name of a known backend, in lower case, as it was registered.
class TUTTI_API Backend {
 public:
    using Plain = std::function<std::shared_ptr<CustomBackend>(Store, int rank, int world_size,
                                                               std::chrono::milliseconds timeout)>;
    using Extended =
        std::function<std::shared_ptr<CustomBackend>(const DistributedBackendOptions&, const std::any& pg_options)>;

    static const Backend NATIVE, GLOO, NCCL, UCC, MPI, XCCL;
    /// The value of a field that is not set yet; do not pass it.
    static const Backend UNDEFINED;

    /// `name` in upper or lower case. Throws InvalidArgument, with the known names, if it is neither built in, nor
    /// torch's, nor registered, nor in a library; DistBackendError if its library cannot be loaded.
    explicit Backend(std::string_view name);
    const std::string& name() const noexcept { return name_; }
    operator const std::string&() const noexcept { return name_; }  // NOLINT(google-explicit-constructor)
    friend bool operator==(const Backend& a, const Backend& b) noexcept { return a.name_ == b.name_; }
    friend bool operator==(const Backend& a, std::string_view b) noexcept { return a.name_ == b; }

    /// Registers a backend, which groups may name from now on. `func` makes one for each group, on each rank.
    /// `devices`: the kinds of devices that it serves. Throws InvalidArgument for a name that is taken, or that has
    /// characters other than letters, digits, '-' and '_'. Any thread.
    static void register_backend(std::string_view name, Plain func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    static void register_backend(std::string_view name, Extended func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    /// A registered or built-in backend, by torch's upper-case name: attribute("GLOO"), attribute("MINE").
    static Backend attribute(std::string_view upper_case_name);
    /// The names of the backends that groups can use now, "native" first.
    static std::vector<std::string> available();

 private:
    Backend() = default;
    struct Known {};
    Backend(Known, std::string name) : name_(std::move(name)) {}
    std::string name_;
};

/// Whether a group could use the backend now: it is built in, registered, or in a library that can be loaded. Loads
/// this library.
TUTTI_API bool is_backend_available(std::string_view name);
TUTTI_API bool is_mpi_available();
TUTTI_API bool is_nccl_available();
TUTTI_API bool is_gloo_available();
TUTTI_API bool is_ucc_available();
TUTTI_API bool is_xccl_available();

/// For backends: output[i] = inputs[0][i] op inputs[1][i] op …, from left to right, rounded as in native groups
/// (short types: computed in float32, rounded once). avg divides by the number of inputs. `output` may be one of the
/// inputs. Throws InvalidArgument where op is not defined for dtype, or without inputs.
TUTTI_API void combine(ReduceOp op, DType dtype, void* output, std::span<const void* const> inputs,
                       std::uint64_t count);

/// Begins the definition of the function that a backend library runs when it is loaded.
#define TUTTI_BACKEND_LIBRARY                                                   \
    extern "C" __attribute__((visibility("default"))) int tutti_backend_abi() { \
        return TUTTI_BACKEND_ABI;                                               \
    }                                                                           \
    extern "C" __attribute__((visibility("default"))) void tutti_backend_library()

}  // namespace tutti
