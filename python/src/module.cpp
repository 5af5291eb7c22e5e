// tutti._core: the C++ library for Python. Private; the package tutti gives its functions names and defaults.
#include "arrays.hpp"
#include "backends.hpp"
#include "call_site/call_site.hpp"
#include "errors.hpp"
#include "groups.hpp"
#include "parts.hpp"
#include "stores.hpp"
#include "work.hpp"

#include <tutti/version.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python.hpp"

NB_MODULE(_core, m) {
    using namespace tutti::python;
    m.doc() = "The C++ library; private. Use the package tutti.";
    m.attr("version") = tutti::version();
    nanobind::set_leak_warnings(false);  // groups and works may live until the process ends
    // Not imported: the generator of the types' stub loads this module alone.
    const nanobind::dict modules = nanobind::module_::import_("sys").attr("modules");
    if (modules.contains("tutti")) {
        set_packages(nanobind::cast<std::vector<std::string>>(nanobind::list(modules["tutti"].attr("__path__"))));
    }
    bind_errors(m);
    bind_stores(m);
    bind_work(m);
    bind_groups(m);
    bind_reduce_ops(m);
    bind_collectives(m);
    bind_quantized(m);
    bind_point_to_point(m);
    bind_plans(m);
    bind_probes(m);
    bind_windows(m);
    bind_step_functions(m);
    bind_resilient(m);
    bind_objects(m);
    bind_trace(m);
    bind_mesh(m);
    bind_neighbors(m);
    bind_atb(m);
    bind_graph(m);
    bind_backends(m);
    bind_stacks();
}
