#include "api/mesh_state.hpp"

#include "api/agreement.hpp"
#include "core/assert.hpp"
#include "core/hash.hpp"

#include <tutti/error.hpp>
#include <tutti/groups.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::detail {
namespace {

std::string in_words(const MeshAxis& axis, const RankArray& mesh) {
    constexpr std::size_t many = 64;  // ranks: longer lists say nothing to a reader
    const std::string ranks = mesh.ranks().size() <= many
                                  ? mesh.to_string()
                                  : fmt::format("{} ranks from {} on", mesh.ranks().size(), mesh.ranks().front());
    return fmt::format("groups along dimension{} {}{} of a mesh of shape [{}], {}", axis.dims.size() == 1 ? "" : "s",
                       fmt::join(axis.dims, ", "), axis.name.empty() ? "" : fmt::format(" \"{}\"", axis.name),
                       fmt::join(mesh.shape(), ", "), ranks);
}

}  // namespace

MeshState::MeshState(std::shared_ptr<World> world, RankArray mesh, const std::vector<std::string>& names,
                     Device::Type device_type)
    : world_(std::move(world)), layout_(std::move(mesh), world_->rank()), device_type_(name_of(device_type)) {
    TUTTI_ASSERT(names.empty() || names.size() == layout_.mesh().shape().size());
    for (std::size_t d = 0; d < layout_.mesh().shape().size(); ++d)
        axes_.push_back({.name = names.empty() ? "" : names[d], .dims = {d}});
}

const MeshAxis& MeshState::axis(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    TUTTI_ASSERT(index < axes_.size());
    return axes_[index];
}

std::optional<std::size_t> MeshState::find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(axes_, name, &MeshAxis::name);
    if (name.empty() || found == axes_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - axes_.begin());
}

std::size_t MeshState::flatten(const std::string& name, const MeshLayout::Dims& dims) {
    const std::lock_guard lock(mutex_);
    TUTTI_ASSERT(!name.empty() && !dims.empty());
    const auto found = std::ranges::find(axes_, name, &MeshAxis::name);
    if (found == axes_.end()) {
        axes_.push_back({.name = name, .dims = dims});
        return axes_.size() - 1;
    }
    if (found->dims != dims) {
        throw InvalidArgument(
            fmt::format("DeviceMesh.flatten: name \"{}\": is the name of dimension{} [{}] of the mesh, "
                        "not of [{}]: expected another name",
                        name, found->dims.size() == 1 ? "" : "s", fmt::join(found->dims, ", "), fmt::join(dims, ", ")));
    }
    return static_cast<std::size_t>(found - axes_.begin());
}

ProcessGroup MeshState::group(std::size_t index) {
    if (!layout_.inside()) return ProcessGroup::non_member();
    const MeshAxis& wanted = axis(index);
    {
        const std::lock_guard lock(mutex_);
        if (wanted.group) return wanted.group;
    }
    const ProcessGroup made = make(wanted);
    set_group(index, made);
    return made;
}

void MeshState::set_group(std::size_t index, const ProcessGroup& group) {
    const std::lock_guard lock(mutex_);
    TUTTI_ASSERT(index < axes_.size());
    axes_[index].group = group;
}

std::shared_ptr<Group> MeshState::members() {
    if (members_) return members_.impl();
    const auto world = group_of_all(*world_);
    if (!world) throw InvalidArgument("DeviceMesh: the group of all ranks is gone: expected a world that is in use");
    if (layout_.mesh().ranks().size() == static_cast<std::size_t>(world_->size())) return world;
    members_ = new_group(layout_.mesh().ranks(), {.timeout = world->timeout(),
                                                  .use_local_synchronization = true,
                                                  .group_desc = "mesh",
                                                  .world = ProcessGroup(world)});
    return members_.impl();
}

ProcessGroup MeshState::make(const MeshAxis& axis) {
    const std::shared_ptr<Group> all = members();
    const RankArray& mesh = layout_.mesh();
    const MeshLayout::Lines lines = layout_.lines_along(axis.dims);
    TUTTI_ASSERT(lines.own < lines.ranks.size());
    const auto count = static_cast<std::uint32_t>(lines.ranks.size());
    std::uint64_t bytes = 0;
    for (const std::vector<int>& ranks : lines.ranks)
        bytes = std::max(bytes, GroupMemory::part_bytes(world_->layout().host_of, ranks));

    // Ranks that all take part count by themselves, once they know that they count alike; others ask the store.
    GroupPlace first;
    if (!all->ranks().are_all() && all->rank() == 0) first = world_->groups().next_place_in_store(count, bytes);
    std::uint64_t digest = api::digest(mesh.shape(), api::digest(mesh.ranks(), fnv1a(axis.name)));
    for (const std::size_t d : axis.dims) digest = fnv1a(std::to_string(d) + ",", digest);
    const auto theirs = api::agree(all,
                                   {.operation = "DeviceMesh.get_group",
                                    .making = group::Making::mesh,
                                    .digest = digest,
                                    .in_words = [&] { return in_words(axis, mesh); },
                                    .expected = "the same meshes, and one order of using their dimensions,"},
                                   {first.index, first.offset});
    first = all->ranks().are_all() ? world_->groups().next_place(count, bytes)
                                   : GroupPlace{static_cast<std::uint32_t>(theirs[0]), theirs[1]};

    const auto index = static_cast<std::uint32_t>(first.index + lines.own);
    TUTTI_ASSERT(index >= first.index && count > 0);
    std::string description = axis.name;
    if (description.empty()) description = fmt::format("mesh_dim_{}", fmt::join(axis.dims, "_"));
    return ProcessGroup(Group::of_some(world_, {{index, first.offset + lines.own * bytes},
                                                lines.ranks[lines.own],
                                                fmt::format("{}_{}", description, index),
                                                description,
                                                all->timeout(),
                                                all->backends().names(),
                                                all->backends().options(),
                                                all->backends().device(),
                                                all}));
}

}  // namespace tutti::detail
