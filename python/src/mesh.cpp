// DeviceMesh.
#include "calls.hpp"
#include "groups.hpp"
#include "parts.hpp"

#include <tutti/device_mesh.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

// Nested lists of ranks, in row-major order.
void collect(nb::handle value, std::size_t depth, std::vector<int>& shape, std::vector<int>& ranks) {
    if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
        const int size = static_cast<int>(PySequence_Size(value.ptr()));
        if (depth == shape.size()) {
            if (!ranks.empty())
                throw InvalidArgument("DeviceMesh: mesh has rows of unequal shapes: expected equal ones");
            shape.push_back(size);
        }
        if (shape[depth] != size)
            throw InvalidArgument("DeviceMesh: mesh has rows of unequal shapes: expected equal ones");
        for (const nb::handle item : value) collect(item, depth + 1, shape, ranks);
        return;
    }
    if (depth != shape.size())
        throw InvalidArgument("DeviceMesh: mesh has rows of unequal shapes: expected equal ones");
    ranks.push_back(*rank_of(value, "DeviceMesh", "mesh"));
}

RankArray rank_array(nb::handle mesh) {
    if (PyList_Check(mesh.ptr()) || PyTuple_Check(mesh.ptr())) {
        std::vector<int> shape, ranks;
        collect(mesh, 0, shape, ranks);
        return RankArray::of(shape, ranks);
    }
    const Array array(mesh, Array::Access::read, "DeviceMesh", "mesh");
    return RankArray(ConstTensorView(array.view()));
}

std::vector<std::string> names_of(nb::handle names) {
    std::vector<std::string> result;
    if (names.is_none()) return result;
    if (!PyList_Check(names.ptr()) && !PyTuple_Check(names.ptr())) {
        throw_type_error("DeviceMesh", "mesh_dim_names", names, "a tuple of str");
    }
    for (const nb::handle name : names) {
        if (!PyUnicode_Check(name.ptr())) throw_type_error("DeviceMesh", "mesh_dim_names", name, "a tuple of str");
        result.push_back(nb::cast<std::string>(name));
    }
    return result;
}

}  // namespace

MeshDim dim_of(nb::handle dim, std::string& text, const DeviceMesh& mesh) {
    if (dim.is_none()) return {};
    if (PyUnicode_Check(dim.ptr())) {
        text = nb::cast<std::string>(dim);
        return std::string_view(text);
    }
    const int index = *rank_of(dim, "DeviceMesh", "mesh_dim");
    return index < 0 && index >= -mesh.ndim() ? index + mesh.ndim() : index;
}

namespace {

nb::object mesh_array(const DeviceMesh& mesh) {
    const RankArray array = mesh.mesh();
    std::vector<std::int64_t> sizes(array.shape().begin(), array.shape().end());
    const Tensor tensor = empty(int64, Extents(sizes));
    std::copy(array.ranks().begin(), array.ranks().end(), tensor.data<std::int64_t>());
    return to_numpy(tensor);
}

nb::tuple dim_names(const DeviceMesh& mesh) {
    nb::list names;
    for (const std::string& name : mesh.dim_names()) names.append(nb::str(name.c_str()));
    return nb::tuple(names);
}

DeviceMesh slice(const DeviceMesh& mesh, nb::handle key) {
    if (PyTuple_Check(key.ptr()) || PyList_Check(key.ptr())) return mesh[names_of(key)];
    std::string text;
    return mesh[dim_of(key, text, mesh)];
}

DeviceMesh from_group(nb::handle group, const std::string& device_type, nb::handle mesh, nb::handle names) {
    FromGroupOptions options{.dim_names = names_of(names)};
    if (!mesh.is_none()) options.mesh = rank_array(mesh);
    if (!PyList_Check(group.ptr()) && !PyTuple_Check(group.ptr())) {
        return DeviceMesh::from_group(group_of(group, "DeviceMesh.from_group"), kind_of_device(device_type), options);
    }
    std::vector<ProcessGroup> groups;
    for (const nb::handle one : group) groups.push_back(group_of(one, "DeviceMesh.from_group"));
    return DeviceMesh::from_group(groups, kind_of_device(device_type), options);
}

// `with mesh:` on this thread; scopes end in the reverse order.
thread_local std::vector<std::unique_ptr<DeviceMeshScope>> entered;

}  // namespace

void bind_mesh(nb::module_& m) {
    nb::class_<DeviceMesh>(
        m, "DeviceMesh",
        "Ranks in an n-dimensional array, with groups along its dimensions, made when they are first\n"
        "used: get_group and get_all_groups are collective then. A mesh of one dimension may be\n"
        "used wherever a group is expected.\n\n"
        "Example:\n"
        "    >>> mesh = dist.DeviceMesh(\"cpu\", [[0]], mesh_dim_names=(\"dp\", \"tp\"))\n"
        "    >>> mesh[\"tp\"].size(), mesh.get_local_rank(\"dp\")\n"
        "    (1, 0)")
        .def(
            "__init__",
            [](DeviceMesh* self, const std::string& device_type, nb::handle mesh, nb::handle names, bool) {
                const RankArray array = rank_array(mesh);
                const MeshOptions options{.dim_names = names_of(names)};
                const std::string kind = kind_of_device(device_type);
                new (self) DeviceMesh(without_gil([&] { return DeviceMesh(kind, array, options); }));
            },
            nb::arg("device_type"), nb::arg("mesh"), nb::kw_only(), nb::arg("mesh_dim_names") = nb::none(),
            nb::arg("_init_backend") = true,
            nb::sig("def __init__(self, device_type: str, mesh: typing.Any, *, "
                    "mesh_dim_names: tuple[str, ...] | None = None, _init_backend: bool = True) -> None"))
        .def_static("from_group", &from_group, nb::arg("group"), nb::arg("device_type"), nb::arg("mesh") = nb::none(),
                    nb::kw_only(), nb::arg("mesh_dim_names") = nb::none(),
                    nb::sig("def from_group(group: ProcessGroup | list[ProcessGroup], device_type: str, "
                            "mesh: typing.Any = None, *, mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh"),
                    "A mesh of one group's ranks, or with several groups along its dimensions.")
        .def_prop_ro("mesh", &mesh_array, nb::sig("def mesh(self) -> typing.Any"), "The global ranks: an array.")
        .def_prop_ro(
            "shape", [](const DeviceMesh& self) { return nb::tuple(nb::cast(self.shape())); },
            nb::sig("def shape(self) -> tuple[int, ...]"))
        .def_prop_ro("ndim", &DeviceMesh::ndim)
        .def_prop_ro(
            "device_type",
            [](const DeviceMesh& self) {
                return nb::module_::import_("tutti._streams").attr("torch_says")(self.device_type());
            },
            nb::sig("def device_type(self) -> str"))
        .def_prop_ro(
            "mesh_dim_names",
            [](const DeviceMesh& self) { return self.dim_names().empty() ? nb::object(nb::none()) : dim_names(self); },
            nb::sig("def mesh_dim_names(self) -> tuple[str, ...] | None"))
        .def(
            "size",
            [](const DeviceMesh& self, nb::handle dim) {
                std::string text;
                return dim.is_none() ? self.size() : self.size(dim_of(dim, text, self));
            },
            nb::arg("mesh_dim") = nb::none(), nb::sig("def size(self, mesh_dim: int | str | None = None) -> int"))
        .def(
            "get_group",
            [](const DeviceMesh& self, nb::handle dim) {
                std::string text;
                const MeshDim wanted = dim_of(dim, text, self);
                return group_object(without_gil([&] { return self.get_group(wanted); }));
            },
            nb::arg("mesh_dim") = nb::none(),
            nb::sig("def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup"),
            "This rank's group along a dimension; of a mesh of one dimension without `mesh_dim`.")
        .def(
            "get_all_groups",
            [](const DeviceMesh& self) {
                nb::list result;
                for (const ProcessGroup& group : without_gil([&] { return self.get_all_groups(); })) {
                    result.append(group_object(group));
                }
                return result;
            },
            nb::sig("def get_all_groups(self) -> list[ProcessGroup]"), "By dimension.")
        .def("get_coordinate", &DeviceMesh::get_coordinate,
             "This rank's index along each dimension; None: it is not in the mesh.")
        .def(
            "get_local_rank",
            [](const DeviceMesh& self, nb::handle dim) {
                std::string text;
                return self.get_local_rank(dim_of(dim, text, self));
            },
            nb::arg("mesh_dim") = nb::none(),
            nb::sig("def get_local_rank(self, mesh_dim: int | str | None = None) -> int"),
            "This rank's index along a dimension; -1: it is not in the mesh.")
        .def("get_rank", &DeviceMesh::get_rank, "The global rank.")
        .def("__getitem__", &slice, nb::arg("mesh_dim_names"),
             nb::sig("def __getitem__(self, mesh_dim_names: str | int | tuple[str, ...], /) -> DeviceMesh"),
             "The mesh of this rank's line along one dimension, or of several dimensions.")
        .def(
            "_flatten",
            [](const DeviceMesh& self, nb::handle name) {
                if (!name.is_none() && !PyUnicode_Check(name.ptr())) {
                    throw_type_error("DeviceMesh._flatten", "mesh_dim_name", name, "a str or None");
                }
                return self.flatten(name.is_none() ? std::string() : nb::cast<std::string>(name));
            },
            nb::arg("mesh_dim_name") = nb::none(),
            nb::sig("def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh"),
            "All ranks as one dimension.")
        .def(
            "__enter__",
            [](nb::object self) {
                entered.push_back(std::make_unique<DeviceMeshScope>(nb::cast<const DeviceMesh&>(self)));
                return self;
            },
            nb::sig("def __enter__(self) -> DeviceMesh"))
        .def(
            "__exit__", [](const DeviceMesh&, const nb::args&) { entered.pop_back(); },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def(
            "__eq__",
            [](const DeviceMesh& self, nb::handle other) {
                return nb::isinstance<DeviceMesh>(other) && self == nb::cast<const DeviceMesh&>(other);
            },
            nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](const DeviceMesh& self) { return nb::hash(nb::str(self.to_string().c_str())); })
        .def("__repr__", &DeviceMesh::to_string);

    m.def("init_device_mesh", [](const std::string& device_type, nb::handle shape, nb::handle names) {
        std::vector<int> sizes;
        if (!PyList_Check(shape.ptr()) && !PyTuple_Check(shape.ptr())) {
            throw_type_error("init_device_mesh", "mesh_shape", shape, "a tuple of sizes");
        }
        for (const nb::handle size : shape) sizes.push_back(*rank_of(size, "init_device_mesh", "mesh_shape"));
        const MeshOptions options{.dim_names = names_of(names)};
        const std::string kind = kind_of_device(device_type);
        return without_gil([&] { return init_device_mesh(kind, sizes, options); });
    });
    m.def("current_device_mesh", &current_device_mesh, "The mesh of the innermost `with mesh:` of this thread.");
}

}  // namespace tutti::python
