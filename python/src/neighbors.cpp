// Exchange between neighbours: halos, graphs of neighbours and their collectives, and plans of these.
#include "groups.hpp"
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/neighbors.hpp>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <new>
#include <string>

namespace tutti::python {
namespace {

std::optional<int> neighbor(int rank) {
    return rank == no_rank ? std::nullopt : std::optional(rank);
}

std::pair<std::optional<int>, std::optional<int>> neighbors_along(const DeviceMesh& mesh, nb::handle mesh_dim,
                                                                  nb::handle periodic, nb::handle distance) {
    constexpr const char* name = "mesh_neighbors";
    std::string text;
    const MeshNeighbors beside = mesh_neighbors(
        mesh, dim_of(mesh_dim, text, mesh),
        {.periodic = flag_of(periodic, name, "periodic"), .distance = integer_of(distance, name, "distance")});
    return {neighbor(beside.low), neighbor(beside.high)};
}

// A list or tuple of ranks; None in it: no neighbour.
std::vector<int> neighbor_list(nb::handle list, const char* name, const char* argument) {
    if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr()))
        throw_type_error(name, argument, list, "a list of ranks");
    std::vector<int> ranks;
    for (const nb::handle rank : list) ranks.push_back(rank_of(rank, name, argument).value_or(no_rank));
    return ranks;
}

// Each halo: (dim, (low, high), mesh_dim, periodic). `texts` holds the names.
std::vector<Halo> halos_of(nb::handle list, const TensorView& view, const DeviceMesh& mesh,
                           std::deque<std::string>& texts) {
    constexpr const char* name = "exchange_halos";
    std::vector<Halo> halos;
    for (const nb::handle halo : list) {
        int dim = integer_of(halo[0], name, "dim");
        const int dims = static_cast<int>(view.shape().size());
        if (dim < 0 && dim >= -dims) dim += dims;
        const nb::object width = halo[1];
        halos.push_back({.dim = dim,
                         .width = HaloWidth(integer_of(width[0], name, "width"), integer_of(width[1], name, "width")),
                         .mesh_dim = dim_of(halo[2], texts.emplace_back(), mesh),
                         .periodic = flag_of(halo[3], name, "periodic")});
    }
    return halos;
}

/// `way`: how the call is made (plans.hpp).
template <class Way>
auto call_halos(Way way, nb::handle tensor, const DeviceMesh& mesh, nb::handle list, nb::handle timeout) {
    const char* const name = Way::name("plan.exchange_halos");
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    std::deque<std::string> texts;
    const std::vector<Halo> halos = halos_of(list, view, mesh, texts);
    const HaloOptions options{.timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), one(tensor), [&] { exchange_halos(view, mesh, halos, options); },
        [&] { return async::exchange_halos(view, mesh, halos, options); },
        [&] { return plan::exchange_halos(view, mesh, halos, options); });
}

template <class List>
List views_of(nb::handle list, Array::Access access, const char* name, const char* argument,
              std::vector<Array>& arrays) {
    if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr()))
        throw_type_error(name, argument, list, "a list of arrays");
    List views;
    for (const nb::handle tensor : list) views.push_back(arrays.emplace_back(tensor, access, name, argument).view());
    return views;
}

template <class Way>
auto call_all_to_all(Way way, nb::handle output_list, nb::handle input_list, const NeighborGraph& graph,
                     nb::handle timeout) {
    const char* const name = Way::name("plan.neighbor_all_to_all");
    std::vector<Array> arrays;
    const auto outputs = views_of<TensorList>(output_list, writes, name, "output_list", arrays);
    const auto inputs = views_of<ConstTensorList>(input_list, reads, name, "input_list", arrays);
    const NeighborOptions options{.timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), nb::list(output_list), [&] { neighbor_all_to_all(outputs, inputs, graph, options); },
        [&] { return async::neighbor_all_to_all(outputs, inputs, graph, options); },
        [&] { return plan::neighbor_all_to_all(outputs, inputs, graph, options); });
}

template <class Way>
auto call_all_gather(Way way, nb::handle output_list, nb::handle input, const NeighborGraph& graph,
                     nb::handle timeout) {
    const char* const name = Way::name("plan.neighbor_all_gather");
    std::vector<Array> arrays;
    const auto outputs = views_of<TensorList>(output_list, writes, name, "output_list", arrays);
    const ConstTensorView sent = arrays.emplace_back(input, reads, name, "input").view();
    const NeighborOptions options{.timeout = timeout_of(timeout, name)};
    return way(
        std::move(arrays), nb::list(output_list), [&] { neighbor_all_gather(outputs, sent, graph, options); },
        [&] { return async::neighbor_all_gather(outputs, sent, graph, options); },
        [&] { return plan::neighbor_all_gather(outputs, sent, graph, options); });
}

void make_graph(NeighborGraph* self, nb::handle sources, nb::handle destinations, nb::handle group,
                nb::handle timeout) {
    constexpr const char* name = "NeighborGraph";
    std::vector<int> from = neighbor_list(sources, name, "sources"),
                     to = neighbor_list(destinations, name, "destinations");
    const NeighborGraphOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    new (self) NeighborGraph(without_gil([&] { return NeighborGraph(std::move(from), std::move(to), options); }));
}

nb::typed<nb::list, std::optional<int>> list_of_ranks(const std::vector<int>& ranks) {
    nb::typed<nb::list, std::optional<int>> list;
    for (const int rank : ranks) list.append(neighbor(rank));
    return list;
}

}  // namespace

void bind_neighbors(nb::module_& m) {
    nb::class_<NeighborGraph>(
        m, "NeighborGraph",
        "Which ranks send to which. All ranks of the group make it; each lists the global ranks from which\n"
        "it receives, and those to which it sends. A rank may be listed several times (its messages match in\n"
        "the order of the lists) and may list itself; None stands for no rank. CollectiveMismatch on all\n"
        "ranks if the lists of two of them differ; the group stays usable.\n\n"
        "Example:\n"
        "    >>> me = dist.get_rank()\n"
        "    >>> graph = dist.NeighborGraph(sources=[me], destinations=[me])\n"
        "    >>> came = np.zeros(2)\n"
        "    >>> dist.neighbor_all_to_all([came], [np.ones(2)], graph)\n"
        "    >>> came\n"
        "    array([1., 1.])")
        .def("__init__", &make_graph,
             nb::sig("def __init__(self, sources: collections.abc.Sequence[int | None], destinations: "
                     "collections.abc.Sequence[int | None], group: ProcessGroup | DeviceMesh | None = None, *, "
                     "timeout: datetime.timedelta | None = None) -> None"),
             nb::arg("sources"), nb::arg("destinations"), nb::arg("group") = nb::none(), nb::kw_only(),
             nb::arg("timeout") = nb::none())
        .def_prop_ro("sources", [](const NeighborGraph& self) { return list_of_ranks(self.sources()); })
        .def_prop_ro("destinations", [](const NeighborGraph& self) { return list_of_ranks(self.destinations()); });
    m.def("mesh_neighbors", &neighbors_along);
    using Shape = nb::typed<nb::tuple, int, nb::ellipsis>;
    m.def("balanced_mesh_shape", [](nb::handle ranks, nb::handle shape) -> Shape {
        constexpr const char* name = "balanced_mesh_shape";
        std::vector<int> sizes;
        for (const std::int64_t size : shape_of(shape, name)) sizes.push_back(static_cast<int>(size));
        return Shape(nb::tuple(nb::cast(balanced_mesh_shape(integer_of(ranks, name, "ranks"), sizes))));
    });
    m.def("exchange_halos",
          [](nb::handle tensor, const DeviceMesh& mesh, nb::handle list, nb::handle async_op, nb::handle timeout) {
              return call_halos(now(async_op, "exchange_halos"), tensor, mesh, list, timeout);
          });
    m.def("plan_exchange_halos", [](nb::handle tensor, const DeviceMesh& mesh, nb::handle list, nb::handle timeout) {
        return call_halos(Later{}, tensor, mesh, list, timeout);
    });
    m.def("neighbor_all_to_all", [](nb::handle outputs, nb::handle inputs, const NeighborGraph& graph,
                                    nb::handle async_op, nb::handle timeout) {
        return call_all_to_all(now(async_op, "neighbor_all_to_all"), outputs, inputs, graph, timeout);
    });
    m.def("plan_neighbor_all_to_all",
          [](nb::handle outputs, nb::handle inputs, const NeighborGraph& graph, nb::handle timeout) {
              return call_all_to_all(Later{}, outputs, inputs, graph, timeout);
          });
    m.def("neighbor_all_gather", [](nb::handle outputs, nb::handle input, const NeighborGraph& graph,
                                    nb::handle async_op, nb::handle timeout) {
        return call_all_gather(now(async_op, "neighbor_all_gather"), outputs, input, graph, timeout);
    });
    m.def("plan_neighbor_all_gather",
          [](nb::handle outputs, nb::handle input, const NeighborGraph& graph, nb::handle timeout) {
              return call_all_gather(Later{}, outputs, input, graph, timeout);
          });
}

}  // namespace tutti::python
