// Exchange between neighbours: halos of the blocks of an array, and MPI's neighbourhood collectives.
//
//     auto mesh = tutti::init_device_mesh("cpu", tutti::balanced_mesh_shape(ranks, {0, 0}));
//     tutti::exchange_halos(block, mesh, {{.dim = 0}, {.dim = 1, .periodic = true}});
//
//     tutti::NeighborGraph graph({left, right}, {left, right});
//     tutti::neighbor_all_to_all({from_left, from_right}, {to_left, to_right}, graph);
//
// Each function has three forms: tutti::NAME blocks; tutti::async::NAME returns a Work, and the tensors must stay alive
// and untouched until it is complete; tutti::plan::NAME returns a Plan (plan.hpp), for calls that are repeated on the
// same tensors. Ranks may mix the forms of one call.
//
// The calls are messages between neighbours only: a rank waits for its neighbours, and for no other rank. They match
// neither send and recv of the program nor each other: halos have a group for each dimension of the mesh, and each
// graph has a channel of its own. Ranks make the calls along one dimension, or on one graph, in the same order.
//
// Tensors are in host memory, of any shape and strides, in groups of tutti's own backend (native) or of a registered
// transport. A tensor that is not in one piece is packed once by its sender; the receiver writes its elements to their
// places as they arrive, without a copy of the whole. Scopes of Coalescing do not collect these calls; a graph's
// capture refuses them.
// errors   InvalidArgument before anything is sent. If neighbours disagree about a message (function, dtype, count,
//          widths, dimension, periodicity): CollectiveMismatch on all ranks, with both sides. PeerLost, Timeout,
//          Aborted: on all ranks, as of all operations; the group is unusable afterwards.
// threads  any; calls along one dimension or on one graph one after the other.
// follows  MPI 4.1, chapter 8 (process topologies) and 8.6 (neighbourhood collectives)
#pragma once

#include <tutti/device_mesh.hpp>
#include <tutti/distributed.hpp>
#include <tutti/export.hpp>
#include <tutti/plan.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti {

// ---- Ranks beside each other ----------------------------------------------------------------------------------------

/// Global ranks beside this one; no_rank (distributed.hpp): there is none, as beyond the end of a dimension.
struct MeshNeighbors {
    int low = no_rank;
    int high = no_rank;
    friend bool operator==(const MeshNeighbors&, const MeshNeighbors&) = default;
};
struct MeshNeighborsOptions {
    bool periodic = false;  ///< the first and the last rank are neighbours
    int distance = 1;       ///< how many steps away
};
/// The ranks `distance` steps below and above this one along a dimension (MPI_Cart_shift). Local. On a rank outside the
/// mesh both are no_rank. Throws InvalidArgument for a distance below 1.
TUTTI_API MeshNeighbors mesh_neighbors(const DeviceMesh& mesh, MeshDim dim = {},
                                       const MeshNeighborsOptions& options = {});

/// A shape for a mesh of `ranks` ranks, as near to a cube as possible, sizes in descending order (MPI_Dims_create).
/// Entries of `shape` that are not 0 stay as they are: balanced_mesh_shape(12, {0, 0}) is {4, 3}, of {0, 2} it is
/// {6, 2}. Local. Throws InvalidArgument if the given sizes do not divide the number of ranks, or if none is 0 and
/// their product is another number.
TUTTI_API std::vector<int> balanced_mesh_shape(int ranks, std::vector<int> shape);

// ---- Halos ----------------------------------------------------------------------------------------------------------

/// Numbers of cells on both sides; they may differ, and be 0.
struct HaloWidth {
    HaloWidth(std::int64_t both) : low(both), high(both) {}  // NOLINT(google-explicit-constructor): a width
    HaloWidth(std::int64_t below, std::int64_t above) : low(below), high(above) {}
    std::int64_t low;
    std::int64_t high;
};

/// The halos along one dimension of a tensor.
struct Halo {
    int dim = 0;          ///< of the tensor
    HaloWidth width = 1;  ///< equal on all ranks along the dimension
    /// The dimension of the mesh along which the array is divided. Default: of a 1-D mesh its only one, else the one
    /// with the index `dim`.
    MeshDim mesh_dim{};
    /// The last rank's high neighbour is the first rank. Otherwise the halos beyond the ends of the array keep their
    /// values. It belongs to the call, since arrays with different boundaries may lie on one mesh.
    bool periodic = false;
};

struct HaloOptions {
    milliseconds timeout{0};  ///< of the messages along each dimension
};

/// Fills the halos of this rank's block with the cells of its neighbours that lie next to it. Along a dimension:
///
///     │ low halo: the low neighbour's last inner cells │ inner cells │ high halo: the high neighbour's first ones │
///
/// view     this rank's block with its halos: `width.low` cells before and `width.high` cells behind the inner cells,
///          along each dimension of `halos`. Other sizes are equal on all ranks along the dimension; the number of
///          inner cells may differ.
/// halos    exchanged one after the other, in this order, each over the whole extent of the other dimensions. So after
///          the call the corners hold the cells of diagonal neighbours, too. Ranks have to list equal dimensions in
///          equal order; if neighbours differ in the first four: CollectiveMismatch.
/// errors   InvalidArgument: a dimension that the tensor does not have, or that is listed twice; a negative width;
///          fewer inner cells than a halo has, as a neighbour would need cells of the next but one.
/// cost     one message to each neighbour along a dimension, and one from it; along a dimension with one rank, copies.
///          The first use of a dimension makes its group, which is collective (device_mesh.hpp). A plan's run()
///          allocates nothing after its first runs.
/// A rank outside the mesh does nothing.
TUTTI_API void exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                              const HaloOptions& options = {});

// ---- Neighbourhood collectives --------------------------------------------------------------------------------------

namespace detail {
class NeighborGraphState;
}

struct NeighborGraphOptions {
    ProcessGroup group{};
    milliseconds timeout{0};  ///< of making the graph
};

/// Which ranks send to which: MPI_Dist_graph_create_adjacent. Copies refer to the same graph.
class TUTTI_API NeighborGraph {
 public:
    /// No graph: calls throw InvalidArgument.
    NeighborGraph() = default;
    /// Collective: all ranks of the group make the graph. Each lists the global ranks from which it receives, and those
    /// to which it sends. A rank may be listed several times: its messages then match in the order of the lists. It may
    /// list itself. An entry no_rank stands for no rank: nothing is sent or received, and its tensor stays as it
    /// is.
    /// errors   CollectiveMismatch, on all ranks: a rank lists another as a destination more or less often than that
    ///          one lists it as a source; the message names the pairs. InvalidArgument: a rank that is not in the
    ///          group.
    /// cost     one all_to_all of 4 bytes for each rank, one all_reduce of 4 bytes; calls on the graph need no further
    /// check.
    NeighborGraph(std::vector<int> sources, std::vector<int> destinations, const NeighborGraphOptions& options = {});

    explicit operator bool() const noexcept { return state_ != nullptr; }
    /// Global ranks, as they were given.
    const std::vector<int>& sources() const;
    const std::vector<int>& destinations() const;
    ProcessGroup group() const;
    const std::shared_ptr<detail::NeighborGraphState>& state() const noexcept { return state_; }

 private:
    std::shared_ptr<detail::NeighborGraphState> state_;
};

struct NeighborOptions {
    milliseconds timeout{0};
};

/// Sends inputs[i] to destination i of the graph, and receives outputs[j] from source j (MPI_Neighbor_alltoallw).
/// Counts may differ between neighbours, and be 0; a pair of ranks must agree about dtype and count. Outputs must
/// overlap neither each other nor inputs.
///
/// cost   one message for each entry of the lists; an entry that is this rank itself is a copy
TUTTI_API void neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                                   const NeighborGraph& graph, const NeighborOptions& options = {});
/// Sends `input` to all destinations of the graph, and receives output_list[j] from source j (MPI_Neighbor_allgatherv).
/// Counts may differ between ranks.
TUTTI_API void neighbor_all_gather(const TensorList& output_list, ConstTensorView input, const NeighborGraph& graph,
                                   const NeighborOptions& options = {});

// ---- Asynchronous, and planned --------------------------------------------------------------------------------------

namespace async {
[[nodiscard]] TUTTI_API Work exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                                            const HaloOptions& options = {});
[[nodiscard]] TUTTI_API Work neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                                                 const NeighborGraph& graph, const NeighborOptions& options = {});
[[nodiscard]] TUTTI_API Work neighbor_all_gather(const TensorList& output_list, ConstTensorView input,
                                                 const NeighborGraph& graph, const NeighborOptions& options = {});
}  // namespace async

namespace plan {
/// Collective where the plain call is: at the first use of a dimension. Throws InvalidArgument on a rank outside the
/// mesh.
[[nodiscard]] TUTTI_API Plan exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                                            const HaloOptions& options = {});
[[nodiscard]] TUTTI_API Plan neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                                                 const NeighborGraph& graph, const NeighborOptions& options = {});
[[nodiscard]] TUTTI_API Plan neighbor_all_gather(const TensorList& output_list, ConstTensorView input,
                                                 const NeighborGraph& graph, const NeighborOptions& options = {});
}  // namespace plan

}  // namespace tutti
