// Making meshes: init_device_mesh, from ranks, from groups; and the checks before a layout.
#include "api/agreement.hpp"
#include "api/arguments.hpp"
#include "api/mesh_state.hpp"
#include "core/assert.hpp"
#include "core/hash.hpp"
#include "core/per_thread.hpp"
#include "record/call_site.hpp"

#include <tutti/device_mesh.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti {
namespace {

using detail::MeshState;
using detail::World;
using Names = std::vector<std::string>;

// The fault; empty: none.
std::string fault_of_device(std::string_view type) {
    if (type.find(':') != std::string_view::npos) {
        return fmt::format("device_type \"{}\": expected \"{}\": a mesh has no device index, each rank chooses its own",
                           type, type.substr(0, type.find(':')));
    }
    try {
        (void)device_from_string(type);
        return {};
    } catch (const InvalidArgument&) {
        return fmt::format("device_type \"{}\": expected \"cpu\", \"cuda\", \"rocm\", \"npu\" or \"xpu\"", type);
    }
}

// A mesh's groups have the backends of the group of all ranks, or are existing groups.
std::string fault_of_backends(std::string_view type, const detail::Group& group) {
    if (group.serves(device_from_string(type).type)) return {};
    return fmt::format("device_type \"{}\": no backend of group \"{}\" serves it: expected one of {}", type,
                       group.name(), backend::to_string(group.backends().names()));
}

std::string fault_of_names(const Names& names, std::size_t ndim) {
    if (names.empty()) return {};
    if (names.size() != ndim)
        return fmt::format("dim_names has {} names: expected {}, one for each dimension", names.size(), ndim);
    for (auto name = names.begin(); name != names.end(); ++name) {
        if (name->empty()) return "dim_names has an empty name: expected text";
        if (std::find(names.begin(), name, *name) != name)
            return fmt::format("dim_names has \"{}\" twice: expected each name once", *name);
    }
    return {};
}

std::string fault_of_shape(const std::vector<int>& shape) {
    if (shape.empty()) return "mesh_shape is empty: expected at least one dimension";
    if (std::ranges::all_of(shape, [](int size) { return size >= 1; })) return {};
    return fmt::format("mesh_shape [{}]: expected sizes of at least 1", fmt::join(shape, ", "));
}

std::string fault_of_product(const std::vector<int>& shape, int world_size) {
    std::int64_t product = 1;
    for (const int size : shape) product = std::min<std::int64_t>(product * size, std::numeric_limits<int>::max());
    if (product == world_size) return {};
    return fmt::format("mesh_shape [{}]: has {} ranks: expected {}, the number of ranks", fmt::join(shape, ", "),
                       product, world_size);
}

std::string fault_of_ranks(const RankArray& mesh, int world_size) {
    std::vector<bool> seen(static_cast<std::size_t>(world_size));
    TUTTI_ASSERT(seen.size() == static_cast<std::size_t>(world_size));
    for (const int rank : mesh.ranks()) {
        if (rank < 0 || rank >= world_size)
            return fmt::format("mesh has {}: expected global ranks, 0 to {}", rank, world_size - 1);
        if (seen[static_cast<std::size_t>(rank)])
            return fmt::format("mesh has rank {} twice: expected each rank once", rank);
        seen[static_cast<std::size_t>(rank)] = true;
    }
    return {};
}

template <class... Faults>
std::string first_of(Faults... faults) {
    std::string first;
    ((first.empty() ? void(first = std::move(faults)) : void()), ...);
    return first;
}

void throw_if(const char* operation, const std::string& fault) {
    if (!fault.empty()) throw InvalidArgument(fmt::format("{}: {}", operation, fault));
}

bool has_world(const MeshOptions& o) {
    return o.world || o.world.is_non_member() || is_initialized();
}

std::shared_ptr<World> world_of(const char* operation, const MeshOptions& o) {
    if (!has_world(o)) init_process_group(o.init);
    return api::group_of(o.world, operation)->shared_world();
}

std::vector<std::size_t> all_dims(std::size_t ndim) {
    std::vector<std::size_t> dims(ndim);
    std::iota(dims.begin(), dims.end(), std::size_t{0});
    return dims;
}

void check_layout(const char* operation, std::string_view device_type, const RankArray& mesh, const Names& names) {
    throw_if(operation, fault_of_device(device_type));
    const bool some = !mesh.shape().empty() && !mesh.ranks().empty();
    throw_if(operation, some ? "" : "mesh is no array of ranks: expected at least one dimension and one rank");
    throw_if(operation, fault_of_names(names, mesh.shape().size()));
}

std::shared_ptr<MeshState> checked_state(const char* operation, const std::shared_ptr<World>& world,
                                         const RankArray& mesh, const Names& names, std::string_view device_type) {
    throw_if(operation, fault_of_ranks(mesh, world->size()));
    return std::make_shared<MeshState>(world, mesh, names, device_from_string(device_type).type);
}

}  // namespace

DeviceMesh::DeviceMesh(std::string_view device_type, const RankArray& mesh, const MeshOptions& o)
    : axes_(all_dims(mesh.shape().size())) {
    const record::CallSite site;
    check_layout("DeviceMesh", device_type, mesh, o.dim_names);
    const std::shared_ptr<World> world = world_of("DeviceMesh", o);
    if (const auto all = detail::group_of_all(*world)) throw_if("DeviceMesh", fault_of_backends(device_type, *all));
    state_ = checked_state("DeviceMesh", world, mesh, o.dim_names, device_type);
    TUTTI_ASSERT(state_ != nullptr && axes_.size() == mesh.shape().size());
}

DeviceMesh init_device_mesh(std::string_view device_type, const std::vector<int>& shape, const MeshOptions& o) {
    const record::CallSite site;
    constexpr const char* operation = "init_device_mesh";
    std::string fault =
        first_of(fault_of_device(device_type), fault_of_shape(shape), fault_of_names(o.dim_names, shape.size()));
    if (!has_world(o)) throw_if(operation, fault);
    const std::shared_ptr<World> world = world_of(operation, o);
    const auto all = detail::group_of_all(*world);
    if (!all) throw_if(operation, "the group of all ranks is gone: expected a world that is in use");
    // A rank with a fault takes part in the comparison: the others wait for it.
    const std::string mine = fmt::format("a mesh of shape [{}] on \"{}\" with dim_names ({})", fmt::join(shape, ", "),
                                         device_type, fmt::join(o.dim_names, ", "));
    api::agree(all, {.operation = operation,
                     .making = group::Making::mesh,
                     .digest = fnv1a(mine),
                     .in_words = [&] { return mine; },
                     .expected = "the same mesh"});
    throw_if(operation, first_of(std::move(fault), fault_of_product(shape, world->size())));
    throw_if(operation, fault_of_backends(device_type, *all));
    return {std::make_shared<MeshState>(world, RankArray::row_major(shape), o.dim_names,
                                        device_from_string(device_type).type),
            all_dims(shape.size())};
}

namespace {

// The world of groups of which this rank may be in none.
std::shared_ptr<World> world_of(const std::vector<ProcessGroup>& groups, const ProcessGroup& fallback) {
    std::shared_ptr<World> world;
    for (const ProcessGroup& group : groups) {
        if (!group) continue;
        if (world && group.impl()->shared_world() != world)
            throw InvalidArgument("DeviceMesh.from_group: groups of two worlds: expected groups of one");
        world = group.impl()->shared_world();
    }
    return world ? world : api::group_of(fallback, "DeviceMesh.from_group")->shared_world();
}

void check_groups(const std::vector<ProcessGroup>& groups, const MeshState& state) {
    TUTTI_ASSERT(state.layout().mesh().shape().size() == groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (state.layout().inside() && !groups[i]) {
            throw InvalidArgument(fmt::format(
                "DeviceMesh.from_group: group {}: this rank is in the mesh, but not in the group: expected a "
                "group of which it is a member",
                i));
        }
        if (!state.layout().inside() && groups[i]) {
            throw InvalidArgument(fmt::format(
                "DeviceMesh.from_group: group {}: this rank is in the group, but not in the mesh: expected a "
                "group of ranks of the mesh",
                i));
        }
        if (!state.layout().inside()) continue;
        const std::vector<int> ranks = groups[i].ranks(), expected = state.layout().ranks_along({i});
        if (ranks != expected) {
            throw InvalidArgument(
                fmt::format("DeviceMesh.from_group: group {} \"{}\" has ranks [{}]: expected [{}], this "
                            "rank's line along dimension {} of the mesh",
                            i, groups[i].name(), fmt::join(ranks, ", "), fmt::join(expected, ", "), i));
        }
    }
}

}  // namespace

DeviceMesh DeviceMesh::from_group(const ProcessGroup& group, std::string_view device_type, const FromGroupOptions& o) {
    const record::CallSite site;
    if (!group && !group.is_non_member())
        throw InvalidArgument("DeviceMesh.from_group: group is empty: expected a group");
    if (!group && !o.mesh) {
        throw InvalidArgument(
            "DeviceMesh.from_group: this rank is not in the group: expected a member, or the group's ranks as mesh");
    }
    FromGroupOptions all = o;
    if (!all.mesh) all.mesh = RankArray(group.ranks());
    if (all.mesh->shape().size() != 1) {
        throw InvalidArgument(fmt::format("DeviceMesh.from_group: mesh has {} dimensions: expected one, for one group",
                                          all.mesh->shape().size()));
    }
    return from_group(std::vector<ProcessGroup>{group}, device_type, all);
}

DeviceMesh DeviceMesh::from_group(const std::vector<ProcessGroup>& groups, std::string_view device_type,
                                  const FromGroupOptions& o) {
    constexpr const char* operation = "DeviceMesh.from_group";
    const record::CallSite site;
    throw_if(operation, groups.empty() ? "groups is empty: expected at least one group" : "");
    for (const ProcessGroup& group : groups)
        throw_if(operation, group || group.is_non_member() ? "" : "groups has an empty handle: expected groups");
    if (groups.size() == 1 && !o.mesh) return from_group(groups[0], device_type, o);
    throw_if(operation, o.mesh ? "" : "mesh is missing: several groups need mesh and dim_names");
    if (groups.size() > 1 && o.dim_names.empty())
        throw_if(operation, "dim_names is missing: several groups need mesh and dim_names");
    if (o.mesh->shape().size() != groups.size()) {
        throw_if(operation, fmt::format("mesh has {} dimensions: expected {}, one for each group",
                                        o.mesh->shape().size(), groups.size()));
    }
    check_layout(operation, device_type, *o.mesh, o.dim_names);
    for (const ProcessGroup& group : groups)
        if (group) throw_if(operation, fault_of_backends(device_type, *group.impl()));
    const auto state = checked_state(operation, world_of(groups, o.world), *o.mesh, o.dim_names, device_type);
    TUTTI_ASSERT(state != nullptr);
    check_groups(groups, *state);
    for (std::size_t i = 0; i < groups.size(); ++i) state->set_group(i, groups[i]);
    if (groups.size() == 1) state->set_members(groups[0]);
    return {state, all_dims(groups.size())};
}

// ---- The current one

namespace {
/// Those of a thread's scopes, the innermost last.
struct CurrentMeshes {
    std::vector<DeviceMesh> all;
};
std::vector<DeviceMesh>& current_meshes() {
    return PerThread<CurrentMeshes>::get().all;
}
}  // namespace

DeviceMeshScope::DeviceMeshScope(const DeviceMesh& mesh) {
    current_meshes().push_back(mesh);
}
DeviceMeshScope::~DeviceMeshScope() {
    TUTTI_ASSERT(!current_meshes().empty());
    current_meshes().pop_back();
}
DeviceMesh current_device_mesh() {
    const std::vector<DeviceMesh>& current = current_meshes();
    if (current.empty()) throw InvalidArgument("current_device_mesh: there is none: expected a DeviceMeshScope");
    return current.back();
}

}  // namespace tutti
