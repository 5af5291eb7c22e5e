// DeviceMesh: ranks in an n-dimensional array, with groups along its dimensions: torch.distributed.device_mesh.
//
//     auto mesh = tutti::init_device_mesh("cpu", {2, 4}, {.dim_names = {"dp", "tp"}});   // ranks 0 1 2 3 / 4 5 6 7
//     tutti::all_reduce(gradient, {.group = mesh.get_group("dp")});      // in columns: 0 4, 1 5, 2 6, 3 7
//     tutti::all_gather_into_tensor(full, shard, {.group = mesh["tp"]}); // in rows: 0 1 2 3, 4 5 6 7
//
// A mesh has no groups until a dimension is used. The first get_group, get_all_groups, or use as a `.group`, makes all
// groups of the dimension, in one short exchange, and so is collective: all ranks of the mesh take part, in the same
// order of dimensions. Later uses are local. If ranks use different dimensions, all of them call get_all_groups()
// first. A slice uses the groups of the mesh that it was taken from.
//
// All ranks make the same meshes. If they differ, all ranks get CollectiveMismatch, in init_device_mesh or at a
// dimension's first use; but the ranks of a mesh that leaves out ranks of the world find each other by its list of
// ranks, and get Timeout if their lists differ. Bad arguments are InvalidArgument.
//
// A mesh may leave out ranks of the world. These may make the mesh too: on them get_coordinate() is nullopt and groups
// are ProcessGroup::non_member(); the mesh's ranks do not wait for them.
//
// Threads: collective calls one at a time, as for groups; other calls from any thread. Copies refer to the same mesh.
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

namespace detail {
class MeshState;
}

/// An n-dimensional array of global ranks: {{0, 1}, {2, 3}}, a vector, or a tensor of integers of any shape and
/// strides, whose values it copies. Throws InvalidArgument for rows of unequal shapes and for elements that are no
/// integers.
class TUTTI_API RankArray {
 public:
    RankArray(int rank) : ranks_{rank} {}                  // NOLINT(google-explicit-constructor): an element
    RankArray(std::initializer_list<RankArray> rows);      // NOLINT(google-explicit-constructor)
    RankArray(const std::vector<std::vector<int>>& rows);  // NOLINT(google-explicit-constructor)
    template <class Array>
    requires(detail::ElementRange<Array> || detail::IsTensor<Array>)
        RankArray(const Array& array)  // NOLINT(google-explicit-constructor)
        : RankArray(from_view(array)) {}
    /// Ranks 0, 1, 2, … in row-major order.
    static RankArray row_major(std::vector<int> shape);
    /// `ranks` in row-major order, as many as the product of `shape`.
    static RankArray of(std::vector<int> shape, std::vector<int> ranks);

    const std::vector<int>& shape() const noexcept { return shape_; }
    const std::vector<int>& ranks() const noexcept { return ranks_; }  ///< in row-major order
    std::string to_string() const;                                     ///< "[[0, 1], [2, 3]]"
    friend bool operator==(const RankArray&, const RankArray&) = default;

 private:
    RankArray() = default;
    static RankArray from_view(const ConstTensorView& view);
    std::vector<int> shape_;
    std::vector<int> ranks_;
};

/// A dimension of a mesh, by index from 0 or by name; default: the only one of a 1-D mesh.
class MeshDim {
 public:
    MeshDim() = default;
    MeshDim(int index) : index_(index) {}                           // NOLINT(google-explicit-constructor)
    MeshDim(std::string_view name) : name_(name) {}                 // NOLINT(google-explicit-constructor)
    MeshDim(const std::string& name) : name_(name) {}               // NOLINT(google-explicit-constructor)
    MeshDim(const char* name) : MeshDim(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
    const std::optional<int>& index() const noexcept { return index_; }
    const std::optional<std::string_view>& name() const noexcept { return name_; }

 private:
    std::optional<int> index_;
    std::optional<std::string_view> name_;
};

struct MeshOptions {
    std::vector<std::string> dim_names{};  ///< none, or one for each dimension, each once
    InitOptions init{};                    ///< options of init_process_group, if there is no default group yet
    ProcessGroup world{};  ///< the mesh consists of ranks of this group's world; default: the default group
};

struct FromGroupOptions {
    std::optional<RankArray> mesh{};       ///< one group: default its ranks; several: required, one dimension for each
    std::vector<std::string> dim_names{};  ///< of several groups: required
    ProcessGroup world{};                  ///< used on ranks that are in none of the groups; default: the default group
};

class TUTTI_API DeviceMesh {
 public:
    /// A mesh of ranks of the world in any order, each at most once. `device_type`: "cpu", "cuda", "rocm", "npu" or
    /// "xpu", without an index (each rank chooses its device itself); the group of all ranks must serve it, and the
    /// mesh's groups have its backends. Initialises the default group where there is none; otherwise nothing is sent.
    DeviceMesh(std::string_view device_type, const RankArray& mesh, const MeshOptions& options = {});
    DeviceMesh(const DeviceMesh&) = default;
    DeviceMesh& operator=(const DeviceMesh&) = default;

    /// A 1-D mesh of a group's ranks, in its order. Local.
    static DeviceMesh from_group(const ProcessGroup& group, std::string_view device_type,
                                 const FromGroupOptions& options = {});
    /// A mesh with groups[i] along dimension i: the ranks that differ from this one at most in coordinate i. Local.
    static DeviceMesh from_group(const std::vector<ProcessGroup>& groups, std::string_view device_type,
                                 const FromGroupOptions& options);

    /// The global ranks.
    RankArray mesh() const;
    std::vector<int> shape() const;
    int ndim() const noexcept { return static_cast<int>(axes_.size()); }
    int size() const;  ///< number of ranks
    int size(MeshDim dim) const;
    std::vector<std::string> dim_names() const;  ///< empty: none were given
    const std::string& device_type() const;

    /// This rank's group along a dimension; its rank there is get_local_rank(dim). Collective at its first use.
    ProcessGroup get_group(MeshDim dim = {}) const;
    /// This rank's groups, by dimension. Collective at its first use.
    std::vector<ProcessGroup> get_all_groups() const;
    /// The group of a 1-D mesh: {.group = mesh["tp"]}. Collective at its first use.
    operator ProcessGroup() const { return get_group(); }  // NOLINT(google-explicit-constructor)
    /// This rank's index along each dimension; nullopt: it is not in the mesh.
    std::optional<std::vector<int>> get_coordinate() const;
    int get_local_rank(MeshDim dim = {}) const;  ///< -1: this rank is not in the mesh
    int get_rank() const;                        ///< the global rank

    /// The 1-D mesh of this rank's line along a dimension; `dim` may also be one that flatten() has made. Local.
    DeviceMesh operator[](MeshDim dim) const;
    /// The mesh of the named dimensions, in the order given, with the ranks that have this rank's coordinates in all
    /// other dimensions; on a rank outside this mesh, those with coordinates 0. Local.
    DeviceMesh operator[](std::initializer_list<std::string_view> names) const;
    DeviceMesh operator[](const std::vector<std::string>& names) const;
    /// All ranks as one dimension, in row-major order; local. If this is a slice, its root mesh can be indexed by the
    /// name from now on. Default: the dimensions' names joined by _. Throws InvalidArgument for a name already in use.
    DeviceMesh flatten(std::string name = {}) const;

    /// DeviceMesh("cpu", [[0, 1], [2, 3]], dim_names = (dp, tp))
    std::string to_string() const;
    /// Whether device type, ranks, shape and names are equal.
    friend TUTTI_API bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
    DeviceMesh(std::shared_ptr<detail::MeshState> state, std::vector<std::size_t> axes)
        : state_(std::move(state)), axes_(std::move(axes)) {}
    friend DeviceMesh init_device_mesh(std::string_view, const std::vector<int>&, const MeshOptions&);
    std::size_t axis(const char* operation, MeshDim dim) const;
    std::size_t axis_named(std::string_view name) const;
    std::vector<std::size_t> dims() const;  // root mesh's
    DeviceMesh slice(std::vector<std::size_t> axes) const;

    std::shared_ptr<detail::MeshState> state_;
    std::vector<std::size_t> axes_;  // of the state
};

/// A mesh of all ranks, in row-major order: the product of `mesh_shape` is the number of ranks. Initialises the default
/// group where there is none. Returns when all ranks have called it: they exchange 24 bytes a rank.
TUTTI_API DeviceMesh init_device_mesh(std::string_view device_type, const std::vector<int>& mesh_shape,
                                      const MeshOptions& options = {});

/// A scope in which `mesh` is the thread's current mesh, as Python's `with mesh:`. Scopes end in the reverse order.
class TUTTI_API DeviceMeshScope {
 public:
    explicit DeviceMeshScope(const DeviceMesh& mesh);
    ~DeviceMeshScope();
    DeviceMeshScope(const DeviceMeshScope&) = delete;
    DeviceMeshScope& operator=(const DeviceMeshScope&) = delete;
};
/// The mesh of the innermost scope of this thread; throws InvalidArgument outside of any.
TUTTI_API DeviceMesh current_device_mesh();

}  // namespace tutti
