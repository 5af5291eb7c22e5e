// torch.distributed's functions for C++: the default group, collectives, point to point.
//
// Each operation has two forms: tutti::NAME blocks and returns its result; tutti::async::NAME returns a Work. Common to
// all:
//   - a default-constructed `group` is the default group; a zero timeout is the group's.
//   - buffers: host memory of any shape, strides and size (also empty, also more than 2^31 elements), or contiguous
//     memory of a device that the group serves. Dtype and element counts must agree between ranks; shapes need not.
//   - roots and peers: `src`/`dst` are global ranks, `group_src`/`group_dst` ranks in the group; never both.
//   - threads: any, but collectives of a group in the same order on all ranks (process_group.hpp).
//   - errors: InvalidArgument before any traffic; CollectiveMismatch, PeerLost, Timeout, Aborted: on every rank, and
//     the group is unusable afterwards.
//   - when ranks disagree (another operation, dtype, count, root), the call in which a rank waits for another throws
//     CollectiveMismatch, with both ranks' calls. A rank that waits for no other, such as the root of a short
//     broadcast, gets the error later: in a call that waits, or that runs out of room for data that others have not
//     read, or when it leaves the group; the message names the first call that differed.
// Follows torch.distributed; each deviation is noted at its place.
#pragma once

#include <tutti/available.hpp>
#include <tutti/collective_forms.hpp>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/stream.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <any>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

using std::chrono::milliseconds;

// ---- The default group --------------------------------------------------------------------------------------------

struct InitOptions {
    /// A name (backend.hpp), or "device:name,device:name": an operation's backend is that of its tensors' device. "":
    /// native for host memory, and for each kind of device in the machine its usual backend, where that can be used
    /// (nccl for cuda, rccl for rocm, hccl for npu, xccl for xpu); with a device_id, a backend that serves its kind.
    /// Must be equal on all ranks.
    std::string backend{};
    std::string init_method{};  ///< env:// (default), tcp://host:port, file:///path; ?rank=R&world_size=N allowed
    std::optional<milliseconds> timeout{};  ///< default 30 min; 10 min where nccl or a relative serves all tensors
    int world_size = -1;
    int rank = -1;
    Store store{};             ///< instead of init_method; needs rank and world_size
    std::string group_name{};  ///< accepted, ignored
    TransportKind transport = TransportKind::automatic;
    Determinism determinism = Determinism::fast;
    std::any pg_options{};  ///< for the constructor of a registered backend
    /// The device of this rank. If set, the group connects all ranks during initialisation, so that errors show early.
    std::optional<Device> device_id{};
};

/// Makes the default group; returns when all ranks have joined. Call it from one thread of a process.
TUTTI_API void init_process_group(const InitOptions& options = {});
/// Leaves a group (empty: the default group), as ProcessGroup::destroy. Afterwards init_process_group may be called
/// again.
TUTTI_API void destroy_process_group(ProcessGroup group = {});
TUTTI_API bool is_initialized() noexcept;
TUTTI_API ProcessGroup default_group();
TUTTI_API void set_default_group(ProcessGroup group);
TUTTI_API int get_rank(ProcessGroup group = {});
TUTTI_API int get_world_size(ProcessGroup group = {});
TUTTI_API std::string get_backend(ProcessGroup group = {});
/// Whether a launcher has set TORCHELASTIC_RUN_ID.
TUTTI_API bool is_torchelastic_launched() noexcept;

// ---- Options ------------------------------------------------------------------------------------------------------

/// `stream`, in all options: for tensors on a device, the stream with which the operation is ordered: the operation
/// runs after the work already in it, and before work added later. Empty: the thread's current stream (stream.hpp).
struct CollectiveOptions {
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
struct AllReduceOptions {
    ReduceOp op = ReduceOp::sum;
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
using ReduceScatterOptions = AllReduceOptions;
struct BroadcastOptions {
    std::optional<int> src{};  ///< exactly one of src and group_src
    ProcessGroup group{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
    Stream stream{};
};
struct ReduceOptions {
    std::optional<int> dst{};  ///< exactly one of dst and group_dst
    ReduceOp op = ReduceOp::sum;
    ProcessGroup group{};
    std::optional<int> group_dst{};
    milliseconds timeout{0};
    Stream stream{};
};
struct GatherOptions {
    std::optional<int> dst{};  ///< default: global rank 0
    ProcessGroup group{};
    std::optional<int> group_dst{};
    milliseconds timeout{0};
    Stream stream{};
};
struct ScatterOptions {
    std::optional<int> src{};  ///< default: global rank 0
    ProcessGroup group{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
    Stream stream{};
};
struct AllToAllSingleOptions {
    std::vector<std::int64_t> output_split_sizes{};  ///< along dimension 0, one per member; empty: even
    std::vector<std::int64_t> input_split_sizes{};
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
/// Sizes along dimension 0, one per rank. Empty: even sizes; but the blocking call, outside of Coalescing, then learns
/// the sizes of all ranks by an additional small all_gather.
struct AllGatherVOptions {
    std::vector<std::int64_t> output_split_sizes{};
    /// The row of `output` at which each rank's rows begin; empty: they lie one after the other. Ranks may differ in
    /// it.
    std::vector<std::int64_t> output_offsets{};
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
struct ReduceScatterVOptions {
    std::vector<std::int64_t> input_split_sizes{};
    ReduceOp op = ReduceOp::sum;
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
using AllGatherUnevenOptions = AllGatherVOptions;
using ReduceScatterUnevenOptions = ReduceScatterVOptions;
/// Blocks of gather_v on the root, one from each rank, in elements of the flattened output. Ignored on other ranks.
struct GatherVOptions {
    std::vector<std::int64_t> receive_counts{};   ///< from each rank; empty: equal blocks that cover the output
    std::vector<std::int64_t> receive_offsets{};  ///< where they go in the output; empty: one after the other
    std::optional<int> dst{};                     ///< default: global rank 0
    ProcessGroup group{};
    std::optional<int> group_dst{};
    milliseconds timeout{0};
    Stream stream{};
};
/// Blocks of scatter_v on the root, one for each rank, in elements of the flattened input. Ignored on other ranks.
struct ScatterVOptions {
    std::vector<std::int64_t> send_counts{};   ///< to each rank; empty: equal blocks that cover the input
    std::vector<std::int64_t> send_offsets{};  ///< where they begin in the input; empty: one after the other
    std::optional<int> src{};                  ///< default: global rank 0
    ProcessGroup group{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
    Stream stream{};
};
/// Blocks of all_to_all_v, one for each rank of the group, in elements of the flattened tensors.
struct AllToAllVOptions {
    std::vector<std::int64_t> send_counts{};      ///< to each rank; empty: equal blocks that cover the input
    std::vector<std::int64_t> send_offsets{};     ///< where they begin in the input; empty: one after the other
    std::vector<std::int64_t> receive_counts{};   ///< from each rank; empty: equal blocks that cover the output
    std::vector<std::int64_t> receive_offsets{};  ///< where they go in the output; empty: one after the other
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
struct BarrierOptions {
    ProcessGroup group{};
    /// In a group that serves devices the barrier runs on the first of these, after the earlier work in its stream.
    /// Default: the device on which the group runs its barriers. A group for host memory ignores them.
    std::vector<int> device_ids{};
    milliseconds timeout{0};
    Stream stream{};
};
struct SendOptions {
    int tag = 0;  ///< a receive takes only messages with its own tag
    ProcessGroup group{};
    milliseconds timeout{0};
    Stream stream{};
};
struct RecvOptions {
    std::optional<int> src{};  ///< neither src nor group_src: from any rank
    int tag = 0;
    ProcessGroup group{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
    Stream stream{};
};
struct SendrecvOptions {
    int send_tag = 0;
    int recv_tag = 0;
    ProcessGroup group{};
    std::optional<int> group_dst{};  ///< instead of dst
    std::optional<int> group_src{};  ///< instead of src
    milliseconds timeout{0};
    Stream stream{};
};

template <class T>
detail::LeftOut::operator const T&() const {
    static const T& none = *new T{};  // never destroyed: programs also call in destructors of static objects
    return none;
}

// ---- Collectives, blocking ----------------------------------------------------------------------------------------

/// Copies the root's `tensor` into every rank's. Equal dtype and element count on all ranks.
TUTTI_API void broadcast(TensorView tensor, const BroadcastOptions& options);
/// Combines `tensor` over all ranks, element by element, in place; all ranks get the same bits. Equal dtype and element
/// count on all ranks.
TUTTI_API void all_reduce(TensorView tensor, const AllReduceOptions& options = {});
/// As all_reduce, but only the root's `tensor` gets the result; the others' stay unchanged.
TUTTI_API void reduce(TensorView tensor, const ReduceOptions& options);
/// Prefix reduction (MPI_Scan): `tensor` becomes the combination of the tensors of ranks 0 to this one, element by
/// element, in place and in rank order. Equal dtype and element count on all ranks.
/// errors   InvalidArgument, before any traffic: an operator that is not defined for the dtype, or avg (each rank would
///          have another divisor: use sum, and divide by rank + 1). CollectiveMismatch: as all_reduce.
/// cost     log2(n) messages of the whole tensor, one after the other; a long tensor: n - 1 messages, in segments that
///          overlap
/// source   Hillis, Steele (1986); Sanders, Träff (2006)
TUTTI_API void scan(TensorView tensor, const AllReduceOptions& options = {});
/// As scan, without this rank's own values (MPI_Exscan): `tensor` becomes the combination of the tensors of the ranks
/// before this one. Rank 0 has none before it, and its tensor stays unchanged.
TUTTI_API void exscan(TensorView tensor, const AllReduceOptions& options = {});
/// output_list[i] becomes rank i's `tensor`; counts may differ between ranks.
TUTTI_API void all_gather(const TensorList& output_list, ConstTensorView tensor, const CollectiveOptions& options = {});
/// `output` becomes all inputs, one after the other in rank order (concatenated or stacked: `output` has size() times
/// the elements of `input`). Equal counts.
TUTTI_API void all_gather_into_tensor(TensorView output, ConstTensorView input, const CollectiveOptions& options = {});
/// On the root, gather_list[i] becomes rank i's `tensor`; on other ranks gather_list must be empty. Equal counts.
TUTTI_API void gather(ConstTensorView tensor, const TensorList& gather_list = {}, const GatherOptions& options = {});
/// `tensor` becomes the root's scatter_list[rank]; on other ranks scatter_list must be empty. Equal counts.
TUTTI_API void scatter(TensorView tensor, const ConstTensorList& scatter_list = {}, const ScatterOptions& options = {});
/// `output` becomes the combination of all ranks' input_list[rank], where `rank` is this one; counts may differ between
/// entries.
TUTTI_API void reduce_scatter(TensorView output, const ConstTensorList& input_list,
                              const ReduceScatterOptions& options = {});
/// As reduce_scatter with one input of size() equal blocks.
TUTTI_API void reduce_scatter_tensor(TensorView output, ConstTensorView input,
                                     const ReduceScatterOptions& options = {});
/// As all_gather_into_tensor, but the input of rank i has output_split_sizes[i] rows (along dimension 0), zero allowed;
/// the list is the same on all ranks. With output_offsets the rows of rank i begin at row output_offsets[i] of
/// `output`, and rows that no rank fills keep their values.
///
/// errors   InvalidArgument, before any traffic: sizes that do not add up to the rows of `output` (without offsets);
///          not one entry for each rank; an input with another number of rows than its entry; with offsets, rows that
///          leave `output`, and rows of two ranks that overlap. CollectiveMismatch: ranks pass different sizes.
/// cost     with offsets the result is copied once more, from a temporary of its size.
/// follows  MPI_Allgatherv (MPI 4.1, 6.7)
/// Its former name, all_gather_into_tensor_uneven, stays, in all forms.
TUTTI_API void all_gather_v(TensorView output, ConstTensorView input, const AllGatherVOptions& options = {});
/// As reduce_scatter_tensor, but the block of rank i has input_split_sizes[i] rows (along dimension 0); the list is the
/// same on all ranks.
/// errors   as all_gather_v without offsets, with `input` and `output` exchanged.
/// follows  MPI_Reduce_scatter (MPI 4.1, 6.10.2)
/// Its former name, reduce_scatter_tensor_uneven, stays, in all forms.
TUTTI_API void reduce_scatter_v(TensorView output, ConstTensorView input, const ReduceScatterVOptions& options = {});
/// On the root, the receive_counts[i] elements at receive_offsets[i] of `output` become rank i's `input`; other
/// elements of `output` keep their values. Shapes do not matter, only elements; blocks may be empty. Only the root's
/// `output`, counts and offsets count: each other rank knows the length of its own `input` alone. On the root, `input`
/// may be its block of `output`.
///
/// errors   InvalidArgument on the root, before any traffic: a negative count or offset, not one entry for each rank, a
///          block that reaches beyond `output`, blocks that overlap (with both ranks), an input of another length than
///          its own entry. The other ranks wait for the root then, until they time out. CollectiveMismatch on every
///          rank, with both counts: a rank sends another count than the root expects.
/// cost     each block goes straight to the root: a tree would need ranks that know the lengths of others' blocks.
///          Ranks of the root's host leave short blocks in their slots and go on. Empty blocks cost nothing between
///          hosts.
/// follows  MPI_Gatherv (MPI 4.1, 6.5); displacements count from the tensor's first element.
TUTTI_API void gather_v(ConstTensorView input, const TensorView& output = {}, const GatherVOptions& options = {});
/// `output` becomes the send_counts[rank] elements at send_offsets[rank] of the root's `input`. Only the root's
/// `input`, counts and offsets count: each other rank knows the length of its own `output` alone. Blocks of `input` may
/// overlap, which MPI forbids only for its symmetry with MPI_Gatherv. On the root, `output` may be its block of
/// `input`.
///
/// errors, cost   as gather_v, with `input` and `output` exchanged; blocks of a host go through the root's slot if all
///                of them fit into it
/// follows        MPI_Scatterv (MPI 4.1, 6.6)
TUTTI_API void scatter_v(TensorView output, const ConstTensorView& input = {}, const ScatterVOptions& options = {});
/// Sends block i of `input` (split along dimension 0) to rank i; `output` gets the blocks in rank order.
TUTTI_API void all_to_all_single(TensorView output, ConstTensorView input, const AllToAllSingleOptions& options = {});
/// input_list[i] goes to rank i, output_list[j] comes from rank j; sizes match pairwise.
TUTTI_API void all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                          const CollectiveOptions& options = {});
/// Sends to each rank a block from anywhere in `input`, and puts each rank's block anywhere into `output`. Shapes do
/// not matter, only elements. Blocks may lie in any order, have gaps between them, and be empty; blocks of the input
/// may overlap; the offset of an empty block does not matter. Elements of `output` that no block covers keep their
/// values. Values move straight between the two tensors, without a copy that brings blocks together.
///
/// errors   InvalidArgument, before any traffic: a negative count or offset, not one entry for each rank, a block that
///          reaches beyond its tensor, blocks that overlap in `output`. CollectiveMismatch on every rank, with both
///          counts: a rank sends another count than its peer expects.
/// cost     each rank sends and receives only its blocks; an empty block between ranks of several hosts costs nothing.
/// follows  MPI_Alltoallv (MPI 4.0, 6.8); displacements count from the tensor's first element.
TUTTI_API void all_to_all_v(TensorView output, ConstTensorView input, const AllToAllVOptions& options = {});
/// Returns when every rank has entered.
TUTTI_API void barrier(const BarrierOptions& options = {});

struct MonitoredBarrierOptions {
    ProcessGroup group{};
    milliseconds timeout{0};
    bool wait_all_ranks = false;  ///< the error names all missing ranks, not only the first
};
/// A barrier that names the ranks that did not enter it in time: DistBackendError "Rank R failed to pass
/// monitoredBarrier in M ms" (with wait_all_ranks "Ranks R, S failed …") on rank 0, an error that names rank 0 on the
/// others.
TUTTI_API void monitored_barrier(const MonitoredBarrierOptions& options = {});

// ---- Point to point -----------------------------------------------------------------------------------------------

/// Sends to global rank `dst`, which must be another rank (isend may send to its own). Returns when the caller may
/// write to `tensor` again.
TUTTI_API void send(ConstTensorView tensor, int dst, const SendOptions& options = {});
TUTTI_API void send_to_group_rank(ConstTensorView tensor, int group_dst, const SendOptions& options = {});
/// Receives into `tensor`; returns the global rank of the sender. Dtype and count must be the sender's.
TUTTI_API int recv(TensorView tensor, const RecvOptions& options = {});
[[nodiscard]] TUTTI_API Work isend(ConstTensorView tensor, int dst, const SendOptions& options = {});
[[nodiscard]] TUTTI_API Work irecv(TensorView tensor, const RecvOptions& options = {});

/// As a rank in sendrecv and its relatives: there is nobody on this side, so nothing is sent, or received, and the
/// tensor of the side is not looked at (MPI_PROC_NULL). The end of a line of ranks passes it on its open side.
inline constexpr int no_rank = -2;
/// Sends one tensor and receives another at once, so that ranks which exchange in a circle do not wait for each other.
/// Both are ordinary messages: send, recv and the others may be on the other side, and dtypes and counts of the two may
/// differ. The tensors may overlap: the values that leave are those from before the call.
///
/// dst      global rank of the receiver, this rank too, or no_rank; exactly one of dst and options.group_dst
/// src      global rank of the sender, this rank too, or no_rank; neither src nor options.group_src: any rank
/// returns  the global rank of the sender; no_rank where that is the source
/// errors   as send and recv
/// cost     that of a send and a recv, which overlap
/// source   MPI 4.1, 3.10
TUTTI_API int sendrecv(ConstTensorView send_tensor, std::optional<int> dst, TensorView recv_tensor,
                       std::optional<int> src, const SendrecvOptions& options = {});
/// The same without waiting: one Work for both sides. Its source_rank() is the sender's.
[[nodiscard]] TUTTI_API Work isendrecv(ConstTensorView send_tensor, std::optional<int> dst, TensorView recv_tensor,
                                       std::optional<int> src, const SendrecvOptions& options = {});
/// As sendrecv, in one tensor: its values leave, and the sender's take their place. Host memory only.
///
/// A tensor of up to 256 KB is one message. A longer one goes in messages of 256 KB, one after the other, so its two
/// peers must call sendrecv_replace too (with a plain send or recv of all of it: CollectiveMismatch).
/// memory   at most 256 KB, whatever the length; a tensor that is not contiguous is packed, which takes its size
TUTTI_API int sendrecv_replace(TensorView tensor, std::optional<int> dst, std::optional<int> src,
                               const SendrecvOptions& options = {});

/// One operation of a batch.
struct TUTTI_API P2POp {
    enum class Kind { isend, irecv };
    Kind kind = Kind::isend;
    TensorView tensor;          ///< isend only reads it
    std::optional<int> peer{};  ///< global rank; irecv without peer and group_peer: any rank
    ProcessGroup group{};
    int tag = 0;
    std::optional<int> group_peer{};
};
struct P2POptions {
    ProcessGroup group{};
    int tag = 0;
};
TUTTI_API P2POp isend_op(ConstTensorView tensor, int peer, const P2POptions& options = {});
TUTTI_API P2POp irecv_op(TensorView tensor, int peer, const P2POptions& options = {});
/// Starts all operations; returns one Work for each, in order.
[[nodiscard]] TUTTI_API std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations);

// ---- Collectives, asynchronous ------------------------------------------------------------------------------------

/// The blocking functions above, with the same parameters, made from the table of collectives: async::all_reduce, …
/// Each returns at once. Buffers must stay alive and untouched until the Work is complete.
namespace async {

#define TUTTI_OR_NONE = {}
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) \
    [[nodiscard]] TUTTI_API Work name(TUTTI_PARAMETERS_##tensors(Options));
#define TUTTI_FORMER_FUNCTION(former, name, tensors, Options)               \
    [[nodiscard]] inline Work former(TUTTI_PARAMETERS_##tensors(Options)) { \
        return async::name(TUTTI_ARGUMENTS_##tensors(options));             \
    }
#include <tutti/collectives.def>

}  // namespace async
#define TUTTI_FORMER_FUNCTION(former, name, tensors, Options) \
    inline void former(TUTTI_PARAMETERS_##tensors(Options)) { \
        tutti::name(TUTTI_ARGUMENTS_##tensors(options));      \
    }
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

}  // namespace tutti
