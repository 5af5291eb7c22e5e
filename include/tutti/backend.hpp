// Backends: who moves the data of a group. "native" (shared memory and TCP) is built in; others are registered, by the
// program or by a shared library that is found by its name.
//
// A backend gets operations in their plainest form: whatever a caller passes (lists, strides, objects, premul_sum), the
// backend sees buffers in one piece, counts in elements, ranks of the group. It completes each operation once, from
// any thread, at once or later. The rest is tutti's: arguments, packing, Work, timeouts, the recorder, who has died.
//
// A shared library libtutti-backend-NAME.so is loaded when a group asks for NAME: from a folder of TUTTI_BACKEND_PATH
// (folders separated by colons), or from tutti/backends beside libtutti.so, where tutti's own are: "gloo", "mpi",
// "hf_zmq" (also spelled "hf_barrier"), each if its library was there when tutti was built; "nccl" and its relatives,
// which look for theirs when they are loaded. It contains TUTTI_BACKEND_LIBRARY { Backend::register_backend(...); } and
// uses libtutti.so: programs that have tutti linked statically register theirs themselves. A library that was built
// for another version of this header (TUTTI_BACKEND_ABI) is refused with a sentence. It may also export the C function
// const char* tutti_backend_report(void), what "tutti doctor" says about it. Where that begins with "not here: " (a
// library that it needs is missing) is_backend_available() is false, and groups whose backend is left out go without
// it.
//
// Threads: Backend's functions, any. What a backend must bear is said at CustomBackend.
// Follows torch.distributed.Backend.
#pragma once

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

/// Of this header; libraries of another version are not loaded.
#define TUTTI_BACKEND_ABI 3

enum class BackendCall {
    broadcast = 1,
    all_reduce,
    reduce,
    all_gather,
    gather,
    scatter,
    reduce_scatter,
    all_to_all,
    barrier,
    send,
    receive,
};
TUTTI_API std::string_view to_string(BackendCall call) noexcept;

/// One operation. It and its buffers stay where they are until it is complete. Counts are elements of `dtype`.
struct BackendRequest {
    BackendCall call = BackendCall::barrier;
    std::string name;            ///< of the function that was called, for messages
    std::uint64_t sequence = 0;  ///< of collectives: equal on all ranks, and ascending in the order of calls
    Device device{};             ///< where the buffers are
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;  ///< premul_sum: only of buffers on a device
    /// all_reduce, reduce, reduce_scatter: values are to be combined from rank 0 upwards
    /// (Determinism::layout_invariant).
    bool in_rank_order = false;
    int root = -1;          ///< broadcast, reduce, gather, scatter; send: to whom; receive: from whom, -1: any
    std::uint64_t tag = 0;  ///< send, receive: matched with the other side's
    /// What this rank gives. all_reduce, and reduce on its root: may be `output`. broadcast: null, the root's data is
    /// in its output. receive, barrier: null. On a device the own block may be in its place in the whole (all_gather,
    /// gather, reduce_scatter, scatter); otherwise input and output are apart.
    const void* input = nullptr;
    /// What it gets; null where it gets nothing.
    void* output = nullptr;
    /// broadcast, all_reduce, reduce, send, receive: elements. gather, scatter: of one rank's block.
    std::uint64_t count = 0;
    /// all_gather, reduce_scatter: elements of each rank's block; the blocks lie one after the other, by rank.
    std::vector<std::uint64_t> counts;
    /// all_to_all: blocks to and from each rank, and where they begin.
    std::vector<std::uint64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    std::chrono::milliseconds timeout{0};  ///< tutti watches it while it waits; a backend may, too
    /// Of buffers on a device: the caller's stream. What it holds already comes before the operation.
    Stream stream{};
    /// Of buffers on a device, for backends that take blocks: where each rank's block is, by rank, where they do not
    /// adjoin; `input` or `output` is null then, and an all_to_all's offsets mean nothing for that side.
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
};

/// The end of an operation on a device, as its streams see it.
class TUTTI_API DeviceEvent {
 public:
    virtual ~DeviceEvent();
    /// What comes into `stream` from now on waits for it. Does not block. Any thread.
    virtual void make_wait(Stream stream) = 0;
};

/// How a backend says that an operation is over: one of the two, once. Copies stand for the same operation. Any thread.
class TUTTI_API BackendCompletion {
 public:
    explicit BackendCompletion(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}
    /// `source`: of a receive, the group rank of the sender.
    void success(int source = -1) const;
    void failure(std::exception_ptr error) const;
    /// Before success, of operations on a device: it is in a stream, and only the device's work is left to be done.
    /// From now on Work::is_completed() is true and Work::wait() makes the current stream wait. `source` as above.
    void enqueued(std::shared_ptr<DeviceEvent> event, int source = -1) const;

 private:
    std::shared_ptr<detail::Operation> operation_;
};

/// What third parties implement: the operations of one rank in one group.
class TUTTI_API CustomBackend {
 public:
    virtual ~CustomBackend() = default;
    /// Begins it; may also complete it before it returns. Called by the threads that issue operations, one at a time
    /// and in the order of their issue, which is the same on all ranks for collectives. What it throws fails the
    /// operation. Must not wait for something that only a later call brings: asynchronous operations are issued
    /// together, and a receive may come before its send.
    virtual void run(const BackendRequest& request, BackendCompletion completion) = 0;
    /// Around calls of run() for operations that are launched together (Coalescing, the _coalesced collectives): they
    /// may begin at end_group(). By one thread, under the same conditions as run(). What end_group() throws fails all
    /// of them that are not complete.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// Whether requests may have `inputs` and `outputs`. Otherwise tensors of a list on a device must adjoin.
    virtual bool takes_blocks() const { return false; }
    /// A backend for a group of some of this one's ranks, made by all of these together: `part` says which; null on the
    /// others' ranks. `pg_options` are those of the new group. Returns null on all ranks, at once, where it cannot make
    /// any: the part's backend is then made as if it had no parent.
    virtual bool can_split() const { return false; }
    virtual std::shared_ptr<CustomBackend> split(const DistributedBackendOptions* part, const std::any& pg_options);
    /// A backend for those ranks of this one's group that are left, as the group has failed or goes on without some:
    /// made by all of them together. `rest` says which group they are now; `left_out`: the ranks, in the old one, of
    /// the others. Operations under way here end first, as by abort(). Returns null on all ranks where it cannot make
    /// any: the new one is then made as if there had been no other.
    virtual std::shared_ptr<CustomBackend> shrink(const DistributedBackendOptions& rest,
                                                  const std::vector<int>& left_out, const std::any& pg_options);
    /// The group is destroyed in peace; abort() follows. Waits until operations that have completed here reach the
    /// other ranks, even if this process ends, as far as these have not left or failed.
    virtual void leave() noexcept {}
    /// Ends what is under way, with failures: when it returns, no buffer is touched any more. Later operations fail.
    /// Any thread, also while run() runs, and more than once. Also called when the group is destroyed, after leave().
    virtual void abort(const std::string& reason) noexcept = 0;
};

/// What a backend is made from.
struct DistributedBackendOptions {
    Store store{};  ///< for this backend of this group alone
    int group_rank = -1;
    int group_size = -1;
    std::chrono::milliseconds timeout{0};
    std::string group_id{};                    ///< the group's name
    std::vector<int> global_ranks_in_group{};  ///< by group rank
    std::optional<Device> device{};            ///< init_process_group's device_id: connections are made at once
};

/// The name of a backend: lower case, known, the one of its spellings that it is registered with.
class TUTTI_API Backend {
 public:
    using Plain = std::function<std::shared_ptr<CustomBackend>(Store, int rank, int world_size,
                                                               std::chrono::milliseconds timeout)>;
    using Extended =
        std::function<std::shared_ptr<CustomBackend>(const DistributedBackendOptions&, const std::any& pg_options)>;

    static const Backend NATIVE, GLOO, NCCL, UCC, MPI, XCCL;
    /// A value of fields that have none yet; not for use.
    static const Backend UNDEFINED;

    /// Any case. Throws InvalidArgument, with the known names, for one that is neither built in, nor torch's, nor
    /// registered, nor in a library; DistBackendError for a library that cannot be loaded.
    explicit Backend(std::string_view name);
    const std::string& name() const noexcept { return name_; }
    operator const std::string&() const noexcept { return name_; }  // NOLINT(google-explicit-constructor)
    friend bool operator==(const Backend& a, const Backend& b) noexcept { return a.name_ == b.name_; }
    friend bool operator==(const Backend& a, std::string_view b) noexcept { return a.name_ == b; }

    /// From now on groups may name it. `func` makes one for each group, on each rank. `devices`: what it serves.
    /// Throws InvalidArgument for a name that is taken or no word of letters, digits, '-' and '_'.
    static void register_backend(std::string_view name, Plain func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    static void register_backend(std::string_view name, Extended func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    /// One that is registered or built in, in upper case as torch writes it: attribute("GLOO"), attribute("MINE").
    static Backend attribute(std::string_view upper_case_name);
    /// Names that groups can use now, "native" first.
    static std::vector<std::string> available();

 private:
    Backend() = default;
    struct Known {};
    Backend(Known, std::string name) : name_(std::move(name)) {}
    std::string name_;
};

/// Whether a group could use it now: it is built in, registered, or in a library that can be loaded. Loads it.
TUTTI_API bool is_backend_available(std::string_view name);
TUTTI_API bool is_mpi_available();
TUTTI_API bool is_nccl_available();
TUTTI_API bool is_gloo_available();
TUTTI_API bool is_ucc_available();
TUTTI_API bool is_xccl_available();

/// For backends: output[i] = inputs[0][i] op inputs[1][i] op …, from left to right, with the rounding of native groups
/// (float32 inside for short types, once at the end). avg divides by the number of inputs. `output` may be one of the
/// inputs. Throws InvalidArgument where op is not defined for dtype, or without inputs.
TUTTI_API void combine(ReduceOp op, DType dtype, void* output, std::span<const void* const> inputs,
                       std::uint64_t count);

/// Begins the function that a backend library runs when it is loaded.
#define TUTTI_BACKEND_LIBRARY                                                   \
    extern "C" __attribute__((visibility("default"))) int tutti_backend_abi() { \
        return TUTTI_BACKEND_ABI;                                               \
    }                                                                           \
    extern "C" __attribute__((visibility("default"))) void tutti_backend_library()

}  // namespace tutti
