// MeshState: the state that all slices of a mesh share: its layout, and the groups made of it.
//
// Threads: any. One thread at a time makes a group, at its first use, and holds no lock while ranks wait for each
// other. Invariant: an existing axis keeps its index, its dimensions and its name.
#pragma once

#include "api/mesh_layout.hpp"
#include "group/group.hpp"

#include <tutti/device_mesh.hpp>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::detail {

/// A direction of the mesh with its groups: one dimension, or several that flatten() has merged.
struct MeshAxis {
    std::string name{};  // "": none was given
    MeshLayout::Dims dims;
    ProcessGroup group{};  // null: not made yet
};

class MeshState {
 public:
    /// `mesh` has ranks of the world, each at most once; `names`: one for each dimension, or none.
    MeshState(std::shared_ptr<World> world, RankArray mesh, const std::vector<std::string>& names,
              Device::Type device_type);

    const MeshLayout& layout() const noexcept { return layout_; }
    const World& world() const noexcept { return *world_; }
    const std::string& device_type() const noexcept { return device_type_; }

    /// The first axes are the mesh's own dimensions.
    const MeshAxis& axis(std::size_t index) const;
    std::optional<std::size_t> find(std::string_view name) const;
    /// The index of the axis `name` of these dimensions, which is added if it is new. Throws InvalidArgument if another
    /// axis has that name.
    std::size_t flatten(const std::string& name, const MeshLayout::Dims& dims);

    /// This rank's group along an axis; made by all ranks of the mesh at its first use.
    ProcessGroup group(std::size_t axis);
    /// Sets an axis's group that exists already.
    void set_group(std::size_t axis, const ProcessGroup& group);
    /// Sets the group of all ranks of the mesh, in any order, that exists already.
    void set_members(const ProcessGroup& members) { members_ = members; }

 private:
    std::shared_ptr<Group> members();
    ProcessGroup make(const MeshAxis& axis);

    const std::shared_ptr<World> world_;
    const MeshLayout layout_;
    const std::string device_type_;
    ProcessGroup members_;

    mutable std::mutex mutex_;
    std::deque<MeshAxis> axes_;
};

}  // namespace tutti::detail
