// The rest of the module's parts.
#pragma once

#include "python.hpp"

namespace tutti::python {

void bind_reduce_ops(nanobind::module_& m);
void bind_collectives(nanobind::module_& m);
void bind_quantized(nanobind::module_& m);
void bind_point_to_point(nanobind::module_& m);
void bind_plans(nanobind::module_& m);
void bind_probes(nanobind::module_& m);
void bind_neighbors(nanobind::module_& m);
void bind_windows(nanobind::module_& m);
void bind_step_functions(nanobind::module_& m);
void bind_resilient(nanobind::module_& m);
void bind_trace(nanobind::module_& m);
void bind_objects(nanobind::module_& m);
void bind_mesh(nanobind::module_& m);
void bind_atb(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_graph_values(nanobind::module_& m);
/// Python's part of the stacks on the pages.
void bind_stacks();

}  // namespace tutti::python
