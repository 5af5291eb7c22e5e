// DeviceMesh: a mesh's description of itself, its groups and its slices.
#include <tutti/device_mesh.hpp>

#include "api/mesh_state.hpp"
#include "core/assert.hpp"
#include "record/call_site.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti {
namespace {

// "a 2-D mesh (dp, tp)"
std::string in_words(const DeviceMesh& mesh) {
    const auto names = mesh.dim_names();
    return fmt::format("a {}-D mesh{}", mesh.ndim(), names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", ")));
}

}  // namespace

std::size_t DeviceMesh::axis_named(std::string_view name) const {
    for (const std::size_t axis : axes_) {
        if (!name.empty() && state_->axis(axis).name == name) return axis;
    }
    throw InvalidArgument(fmt::format("DeviceMesh: dimension \"{}\": expected one of {}", name, in_words(*this)));
}

std::size_t DeviceMesh::axis(const char* operation, MeshDim dim) const {
    if (dim.name()) return axis_named(*dim.name());
    if (dim.index()) {
        if (*dim.index() >= 0 && *dim.index() < ndim()) return axes_[static_cast<std::size_t>(*dim.index())];
        throw InvalidArgument(fmt::format("{}: dimension {}: expected 0 to {} of {}", operation, *dim.index(),
                                          ndim() - 1, in_words(*this)));
    }
    if (ndim() == 1) return axes_.front();
    throw InvalidArgument(
        fmt::format("{}: no dimension is given: expected one of {}, by name or index", operation, in_words(*this)));
}

std::vector<std::size_t> DeviceMesh::dims() const {
    std::vector<std::size_t> dims;
    for (const std::size_t axis : axes_) {
        const auto& more = state_->axis(axis).dims;
        dims.insert(dims.end(), more.begin(), more.end());
    }
    TUTTI_ASSERT(std::ranges::all_of(dims, [&](std::size_t d) { return d < state_->layout().mesh().shape().size(); }));
    return dims;
}

// ---- Description

RankArray DeviceMesh::mesh() const {
    return RankArray::of(shape(), state_->layout().ranks_along(dims()));
}
std::vector<int> DeviceMesh::shape() const {
    std::vector<int> shape;
    for (const std::size_t axis : axes_) shape.push_back(state_->layout().size_along(state_->axis(axis).dims));
    return shape;
}
int DeviceMesh::size() const {
    int size = 1;
    for (const std::size_t axis : axes_) size *= state_->layout().size_along(state_->axis(axis).dims);
    TUTTI_ASSERT(size >= 1);
    return size;
}
int DeviceMesh::size(MeshDim dim) const {
    return state_->layout().size_along(state_->axis(axis("DeviceMesh.size", dim)).dims);
}
std::vector<std::string> DeviceMesh::dim_names() const {
    std::vector<std::string> names;
    for (const std::size_t axis : axes_) {
        if (!state_->axis(axis).name.empty()) names.push_back(state_->axis(axis).name);
    }
    return names;
}
const std::string& DeviceMesh::device_type() const {
    return state_->device_type();
}
std::string DeviceMesh::to_string() const {
    const auto names = dim_names();
    return fmt::format("DeviceMesh(\"{}\", {}{})", device_type(), mesh().to_string(),
                       names.empty() ? "" : fmt::format(", dim_names = ({})", fmt::join(names, ", ")));
}
bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
    return a.device_type() == b.device_type() && a.dim_names() == b.dim_names() && a.mesh() == b.mesh();
}

// ---- This rank in it

std::optional<std::vector<int>> DeviceMesh::get_coordinate() const {
    if (!state_->layout().inside()) return std::nullopt;
    std::vector<int> coordinate;
    for (const std::size_t axis : axes_) coordinate.push_back(state_->layout().index_along(state_->axis(axis).dims));
    TUTTI_ASSERT(coordinate.size() == axes_.size());
    return coordinate;
}
int DeviceMesh::get_local_rank(MeshDim dim) const {
    const std::size_t along = axis("DeviceMesh.get_local_rank", dim);
    return state_->layout().inside() ? state_->layout().index_along(state_->axis(along).dims) : -1;
}
int DeviceMesh::get_rank() const {
    return state_->world().rank();
}

// ---- Groups

ProcessGroup DeviceMesh::get_group(MeshDim dim) const {
    const record::CallSite site;
    return state_->group(axis("DeviceMesh.get_group", dim));
}
std::vector<ProcessGroup> DeviceMesh::get_all_groups() const {
    const record::CallSite site;
    std::vector<ProcessGroup> groups;
    for (const std::size_t axis : axes_) groups.push_back(state_->group(axis));
    return groups;
}

// ---- Slices

DeviceMesh DeviceMesh::operator[](MeshDim dim) const {
    // A name may also be one that flatten() has made of dimensions that are all in this mesh.
    if (dim.name()) {
        if (const auto known = state_->find(*dim.name())) return slice({*known});
    }
    return slice({axis("DeviceMesh", dim)});
}
DeviceMesh DeviceMesh::operator[](std::initializer_list<std::string_view> names) const {
    return (*this)[std::vector<std::string>(names.begin(), names.end())];
}
DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& names) const {
    if (names.empty()) throw InvalidArgument("DeviceMesh: no names of dimensions are given: expected at least one");
    std::vector<std::size_t> axes;
    for (const std::string& name : names) {
        const auto known = state_->find(name);
        axes.push_back(known ? *known : axis_named(name));
    }
    return slice(std::move(axes));
}

DeviceMesh DeviceMesh::slice(std::vector<std::size_t> axes) const {
    const std::vector<std::size_t> own = dims();
    std::vector<std::size_t> used;
    for (const std::size_t axis : axes) {
        const auto& taken = state_->axis(axis);
        for (const std::size_t dim : taken.dims) {
            if (std::ranges::find(own, dim) == own.end()) {
                throw InvalidArgument(
                    fmt::format("DeviceMesh: dimension \"{}\": expected one of {}", taken.name, in_words(*this)));
            }
            if (std::ranges::find(used, dim) != used.end()) {
                throw InvalidArgument(fmt::format(
                    "DeviceMesh: dimension \"{}\" has what another one has: expected each dimension once", taken.name));
            }
            used.push_back(dim);
        }
    }
    return {state_, std::move(axes)};
}

DeviceMesh DeviceMesh::flatten(std::string name) const {
    const auto names = dim_names();
    if (name.empty()) name = fmt::format("{}", fmt::join(names, "_"));
    if (name.empty()) {
        throw InvalidArgument(
            fmt::format("DeviceMesh.flatten: no name is given: expected one for {} without names", in_words(*this)));
    }
    return {state_, {state_->flatten(name, dims())}};
}

}  // namespace tutti
