// Halos, and neighbourhood collectives.
#include "api/halos.hpp"
#include "capi/common.hpp"
#include "capi/failure.hpp"
#include "capi/handles.hpp"
#include "group/group.hpp"

#include <tutti/neighbors.hpp>

#include <fmt/format.h>

namespace tutti::capi {
namespace {

Handles<tutti_neighbor_graph, NeighborGraph>& neighbor_graphs() {
    static auto& all = *new Handles<tutti_neighbor_graph, NeighborGraph>("neighbor graph");
    return all;
}

std::vector<api::LineHalo> halos_of(const char* f, const tutti_halo* halos, std::size_t count) {
    if (halos == nullptr && count > 0) refuse_null(f, "halos");
    std::vector<api::LineHalo> lines;
    for (std::size_t i = 0; i < count; ++i) {
        const tutti_halo& halo = halos[i];
        const int periodic = number_of(f, fmt::format("halos[{}].periodic", i).c_str(), halo.periodic, 0, 1);
        const ProcessGroup group = group_of(f, halo.group);
        lines.push_back(
            {halo.dim, HaloWidth(halo.low, halo.high), periodic == 1, (group ? group : default_group()).impl()});
    }
    return lines;
}

// Global ranks.
std::vector<int> ranks_of(const Common& o, const char* argument, const int* ranks, std::size_t count) {
    if (ranks == nullptr && count > 0) refuse_null(o.function, argument);
    std::vector<int> list(ranks, ranks + count);
    if (!o.group_ranks) return list;
    const ProcessGroup group = o.group ? o.group : default_group();
    for (int& rank : list) {
        if (rank != no_rank) rank = group.global_rank(rank);
    }
    return list;
}

NeighborGraph graph_of(const char* f, tutti_neighbor_graph* graph) {
    return neighbor_graphs().get(f, "graph", graph);
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_exchange_halos(const tutti_tensor* tensor, const tutti_halo* halos, size_t halo_count,
                                  const tutti_options* options) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        api::exchange_halos(tensor_of(f, "tensor", tensor), halos_of(f, halos, halo_count), o.timeout);
    });
}
tutti_status tutti_exchange_halos_async(const tutti_tensor* tensor, const tutti_halo* halos, size_t halo_count,
                                        const tutti_options* options, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        result =
            works().add(api::start_halos(tensor_of(f, "tensor", tensor), halos_of(f, halos, halo_count), o.timeout));
    });
}

tutti_status tutti_neighbor_graph_create(const int* sources, size_t source_count, const int* destinations,
                                         size_t destination_count, const tutti_options* options,
                                         tutti_neighbor_graph** graph) {
    return guarded(__func__, [&](const char* f) {
        tutti_neighbor_graph*& result = out(f, "graph", graph);
        const Common o(f, options);
        result = neighbor_graphs().add(NeighborGraph(ranks_of(o, "sources", sources, source_count),
                                                     ranks_of(o, "destinations", destinations, destination_count),
                                                     {.group = o.group, .timeout = o.timeout}));
    });
}
tutti_status tutti_neighbor_graph_free(tutti_neighbor_graph* graph) {
    if (graph == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { neighbor_graphs().take(f, "graph", graph); });
}

tutti_status tutti_neighbor_all_to_all(const tutti_tensor* outputs, size_t output_count, const tutti_tensor* inputs,
                                       size_t input_count, tutti_neighbor_graph* graph, const tutti_options* options) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        neighbor_all_to_all(tensors_of(f, "outputs", outputs, output_count),
                            const_tensors_of(f, "inputs", inputs, input_count), graph_of(f, graph),
                            {.timeout = o.timeout});
    });
}
tutti_status tutti_neighbor_all_to_all_async(const tutti_tensor* outputs, size_t output_count,
                                             const tutti_tensor* inputs, size_t input_count,
                                             tutti_neighbor_graph* graph, const tutti_options* options,
                                             tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        result = works().add(async::neighbor_all_to_all(tensors_of(f, "outputs", outputs, output_count),
                                                        const_tensors_of(f, "inputs", inputs, input_count),
                                                        graph_of(f, graph), {.timeout = o.timeout}));
    });
}

tutti_status tutti_neighbor_all_gather(const tutti_tensor* outputs, size_t output_count, const tutti_tensor* input,
                                       tutti_neighbor_graph* graph, const tutti_options* options) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        neighbor_all_gather(tensors_of(f, "outputs", outputs, output_count), tensor_of(f, "input", input),
                            graph_of(f, graph), {.timeout = o.timeout});
    });
}
tutti_status tutti_neighbor_all_gather_async(const tutti_tensor* outputs, size_t output_count,
                                             const tutti_tensor* input, tutti_neighbor_graph* graph,
                                             const tutti_options* options, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        result = works().add(async::neighbor_all_gather(tensors_of(f, "outputs", outputs, output_count),
                                                        tensor_of(f, "input", input), graph_of(f, graph),
                                                        {.timeout = o.timeout}));
    });
}

}  // extern "C"
