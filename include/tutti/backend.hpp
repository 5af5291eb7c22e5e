// Backends: the parts that move the data of a group. "native" (shared memory and TCP) is built in; the program
// registers others, or a shared library does, which tutti finds by its name.
//
// A backend gets operations in their plainest form: for any arguments of the caller (lists, strides, objects,
// premul_sum) the backend sees buffers in one piece, counts in elements, ranks of the group. It completes each
// operation once, from any thread, at once or later. tutti does the rest: arguments, packing, Work, timeouts, the
// recorder, the detection of dead ranks.
//
// tutti loads a shared library libtutti-backend-NAME.so when a group asks for NAME: from a folder of TUTTI_BACKEND_PATH
// (folders separated by colons), or from tutti/backends beside libtutti.so, where tutti's own are: "gloo", "mpi",
// "hf_zmq" (also spelled "hf_barrier"), each if its library was there when tutti was built; "nccl" and its relatives,
// which look for theirs when they are loaded. It contains TUTTI_BACKEND_LIBRARY { Backend::register_backend(...); } and
// uses libtutti.so: programs with tutti linked statically register their backends themselves. tutti refuses a library
// for another version of this header (TUTTI_BACKEND_ABI), with a message. The library may also export the C function
// const char* tutti_backend_report(void), whose text "tutti doctor" prints. If that begins with "not here: " (a library
// that it needs is missing) is_backend_available() is false, and groups whose backend is left out go without it.
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
#define TUTTI_BACKEND_ABI 4

/// A collective has its number (tutti/collectives.hpp).
enum class BackendCall {
#define TUTTI_COLLECTIVE_KIND(name, number, ...) name = number,
#include <tutti/collectives.def>
    send = 256,
    receive,
};
TUTTI_API std::string_view to_string(BackendCall call) noexcept;
/// Empty for send and receive.
constexpr std::optional<Collective> collective_of(BackendCall call) noexcept {
    const auto number = static_cast<int>(call);
    if (number < 1 || number > collective_count) return std::nullopt;
    return static_cast<Collective>(number);
}

/// One operation. It and its buffers stay where they are until it is complete. Counts are elements of `dtype`.
struct BackendRequest {
    BackendCall call = BackendCall::barrier;
    std::string name;            ///< of the function that was called, for messages
    std::uint64_t sequence = 0;  ///< of collectives: equal on all ranks, and ascending in the order of calls
    Device device{};             ///< where the buffers are
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;  ///< premul_sum: only of buffers on a device
    /// Where values are combined: from rank 0 upwards (Determinism::layout_invariant).
    bool in_rank_order = false;
    int root = -1;          ///< broadcast, reduce, gather, scatter; send: the receiver; receive: the sender, -1: any
    std::uint64_t tag = 0;  ///< send, receive: matched with the other side's
    /// This rank's input. all_reduce, and reduce on its root: may be `output`. broadcast: null, the root's data is in
    /// its output. receive, barrier: null. On a device the own block may be in its place in the whole, where one side
    /// has the blocks of all ranks; otherwise input and output are apart.
    const void* input = nullptr;
    /// This rank's output; null where it gets nothing.
    void* output = nullptr;
    /// broadcast, all_reduce, reduce, send, receive: elements. gather, scatter: of one rank's block.
    std::uint64_t count = 0;
    /// Without a root, where one side has the blocks of all ranks: elements of each rank's block; the blocks lie one
    /// after the other, by rank.
    std::vector<std::uint64_t> counts;
    /// all_to_all: blocks to and from each rank, and where they begin.
    std::vector<std::uint64_t> send_counts, send_offsets, receive_counts, receive_offsets;
    std::chrono::milliseconds timeout{0};  ///< tutti watches it while it waits; a backend may, too
    /// For buffers on a device: the caller's stream. Its earlier work comes before the operation.
    Stream stream{};
    /// For buffers on a device and backends that take blocks: the address of each rank's block, by rank, if the blocks
    /// do not adjoin; `input` or `output` is null then, and an all_to_all's offsets mean nothing for that side.
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
};

/// The end of an operation on a device, as its streams see it.
class TUTTI_API DeviceEvent {
 public:
    virtual ~DeviceEvent();
    /// Work that enters `stream` from now on waits for the event. Does not block. Any thread.
    virtual void make_wait(Stream stream) = 0;
};

/// A backend's way to say that an operation is over: success() or failure(), once. Copies stand for the same operation.
/// Any thread.
class TUTTI_API BackendCompletion {
 public:
    explicit BackendCompletion(std::shared_ptr<detail::Operation> operation) : operation_(std::move(operation)) {}
    /// `source`: for a receive, the group rank of the sender.
    void success(int source = -1) const;
    void failure(std::exception_ptr error) const;
    /// Before success, for operations on a device: the operation is in a stream, and only the device's work remains.
    /// From now on Work::is_completed() is true and Work::wait() makes the current stream wait. `source` as above.
    void enqueued(std::shared_ptr<DeviceEvent> event, int source = -1) const;

 private:
    std::shared_ptr<detail::Operation> operation_;
};

/// The interface that third parties implement: the operations of one rank in one group.
class TUTTI_API CustomBackend {
 public:
    virtual ~CustomBackend() = default;
    /// Begins the operation; may also complete it before it returns. The threads that issue operations call it, one at
    /// a time and in the order of issue, which is the same on all ranks for collectives. An exception fails the
    /// operation. It must not wait for something that only a later call brings: asynchronous operations are issued
    /// together, and a receive may come before its send.
    virtual void run(const BackendRequest& request, BackendCompletion completion) = 0;
    /// Around calls of run() for operations that are launched together (Coalescing, the _coalesced collectives): these
    /// may begin at end_group(). One thread makes the calls, under the same conditions as run(). An exception of
    /// end_group() fails all of the operations that are not complete.
    virtual void begin_group() {}
    virtual void end_group() {}
    /// Whether requests may have `inputs` and `outputs`. Otherwise tensors of a list on a device must adjoin.
    virtual bool takes_blocks() const { return false; }
    /// Makes a backend for a group of some of this one's ranks; all of this one's ranks call it. `part` describes the
    /// new group; null on ranks outside it. `pg_options` are those of the new group. Returns null on all ranks, at
    /// once, if it cannot make any: tutti then makes the part's backend as if it had no parent.
    virtual bool can_split() const { return false; }
    virtual std::shared_ptr<CustomBackend> split(const DistributedBackendOptions* part, const std::any& pg_options);
    /// Makes a backend for the ranks of this one's group that are left, as the group has failed or goes on without
    /// some; all of them call it. `rest` describes their new group; `left_out` are the others' ranks in the old one.
    /// Operations under way here end first, as by abort(). Returns null on all ranks if it cannot make any: tutti then
    /// makes the new one as if there had been no other.
    virtual std::shared_ptr<CustomBackend> shrink(const DistributedBackendOptions& rest,
                                                  const std::vector<int>& left_out, const std::any& pg_options);
    /// The group ends without a failure; abort() follows. Waits until the operations that have completed here are sure
    /// to reach the other ranks, even if this process ends, except ranks that have left or failed.
    virtual void leave() noexcept {}
    /// Ends the operations under way, with failures: when it returns, the backend touches no buffer any more. Later
    /// operations fail. Any thread, also while run() runs, and more than once. The group's end calls it too, after
    /// leave().
    virtual void abort(const std::string& reason) noexcept = 0;
};

/// The arguments of a backend's constructor.
struct DistributedBackendOptions {
    Store store{};  ///< for this backend of this group alone
    int group_rank = -1;
    int group_size = -1;
    std::chrono::milliseconds timeout{0};
    std::string group_id{};                    ///< the group's name
    std::vector<int> global_ranks_in_group{};  ///< by group rank
    std::optional<Device> device{};            ///< init_process_group's device_id: connections are made at once
};

/// The name of a known backend, in lower case, in the spelling of its registration.
class TUTTI_API Backend {
 public:
    using Plain = std::function<std::shared_ptr<CustomBackend>(Store, int rank, int world_size,
                                                               std::chrono::milliseconds timeout)>;
    using Extended =
        std::function<std::shared_ptr<CustomBackend>(const DistributedBackendOptions&, const std::any& pg_options)>;

    static const Backend NATIVE, GLOO, NCCL, UCC, MPI, XCCL;
    /// The value of a field that is not set yet; not for use.
    static const Backend UNDEFINED;

    /// Any case. Throws InvalidArgument, with the known names, for one that is neither built in, nor torch's, nor
    /// registered, nor in a library; DistBackendError for a library that cannot be loaded.
    explicit Backend(std::string_view name);
    const std::string& name() const noexcept { return name_; }
    operator const std::string&() const noexcept { return name_; }  // NOLINT(google-explicit-constructor)
    friend bool operator==(const Backend& a, const Backend& b) noexcept { return a.name_ == b.name_; }
    friend bool operator==(const Backend& a, std::string_view b) noexcept { return a.name_ == b; }

    /// From now on groups may name it. `func` makes one for each group, on each rank. `devices`: the kinds that it
    /// serves.
    /// Throws InvalidArgument for a name that is taken or no word of letters, digits, '-' and '_'.
    static void register_backend(std::string_view name, Plain func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    static void register_backend(std::string_view name, Extended func,
                                 const std::vector<Device::Type>& devices = {Device::Type::cpu, Device::Type::cuda});
    /// A registered or built-in backend, by torch's upper-case name: attribute("GLOO"), attribute("MINE").
    static Backend attribute(std::string_view upper_case_name);
    /// Names that groups can use now, "native" first.
    static std::vector<std::string> available();

 private:
    Backend() = default;
    struct Known {};
    Backend(Known, std::string name) : name_(std::move(name)) {}
    std::string name_;
};

/// Whether a group could use the backend now: it is built in, registered, or in a library that can be loaded. Loads it.
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
