// tutti.torch._backend: the backend for Python.
#include "call_site/call_site.hpp"
#include "failure.hpp"
#include "joining.hpp"
#include "process_group.hpp"
#include "recorder_module.hpp"
#include "signals.hpp"
#include "store.hpp"
#include "without_gil.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

namespace tutti::torch {
namespace {

using ReleaseGil = py::call_guard<py::gil_scoped_release>;
using BaseOptions = c10::intrusive_ptr<c10d::Backend::Options>;

template <class Group>
c10::intrusive_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     c10::intrusive_ptr<ProcessGroupTutti::Options> options) {
    TORCH_CHECK_VALUE(store, "ProcessGroupTutti: store is None; expected a torch.distributed.Store");
    std::string why;
    if (size <= 0 || rank < 0 || rank >= size) {
        why = c10::str("rank ", rank, " of ", size, " ranks; expected 0 <= rank < size");
    } else if (options->timeout.count() <= 0) {
        why = c10::str("timeout is ", options->timeout.count(), " ms; expected more than zero");
    }
    if (!why.empty()) {
        if (rank >= 0) {
            const WithoutGil guard;
            say_cannot_join(store, {rank, size, options->global_ranks_in_group, options->group_name}, why);
        }
        TORCH_CHECK_VALUE(false, "ProcessGroupTutti: ", why);
    }
    return c10::make_intrusive<Group>(store, rank, size, std::move(options));
}

/// The replacement of ProcessGroupGloo, with its constructors.
class InsteadOfGloo : public ProcessGroupTutti {
 public:
    using ProcessGroupTutti::ProcessGroupTutti;
};

TransportKind transport_of(const std::string& name) {
    if (name == "automatic") return TransportKind::automatic;
    if (name == "shm") return TransportKind::shm;
    if (name == "tcp") return TransportKind::tcp;
    TORCH_CHECK_VALUE(false, "Options.transport: \"", name, "\"; expected \"automatic\", \"shm\" or \"tcp\"");
}
const char* name_of(TransportKind transport) {
    return transport == TransportKind::shm ? "shm" : transport == TransportKind::tcp ? "tcp" : "automatic";
}
Determinism determinism_of(const std::string& name) {
    if (name == "fast") return Determinism::fast;
    if (name == "run_to_run") return Determinism::run_to_run;
    if (name == "layout_invariant") return Determinism::layout_invariant;
    TORCH_CHECK_VALUE(false, "Options.determinism: \"", name,
                      "\"; expected \"fast\", \"run_to_run\" or \"layout_invariant\"");
}
const char* name_of(Determinism determinism) {
    return determinism == Determinism::run_to_run         ? "run_to_run"
           : determinism == Determinism::layout_invariant ? "layout_invariant"
                                                          : "fast";
}

void set_devices(ProcessGroupTutti::Options& options, py::object devices) {
    options.devices_of_gloo = std::shared_ptr<void>(devices.release().ptr(), [](void* list) {
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire lock;
        Py_DECREF(static_cast<PyObject*>(list));
    });
}
// Gloo makes a device if the program gives none.
py::object devices(ProcessGroupTutti::Options& options) {
    if (!options.devices_of_gloo) {
        const py::object gloo = py::module_::import("tutti.torch._module").attr("backend")().attr("ProcessGroupGloo");
        py::list made;
        if (py::hasattr(gloo, "create_default_device")) made.append(gloo.attr("create_default_device")());
        set_devices(options, made);
    }
    return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(options.devices_of_gloo.get()));
}

// Folders of a package's Python code.
std::vector<std::string> folders_of(const char* package) {
    return py::cast<std::vector<std::string>>(py::list(py::module_::import(package).attr("__path__")));
}

// Options of gloo's own class, or of ours, for a group in gloo's place.
c10::intrusive_ptr<ProcessGroupTutti::Options> options_as_of_gloo(const py::object& given) {
    auto options = c10::make_intrusive<ProcessGroupTutti::Options>(*py::cast<BaseOptions>(given), "gloo");
    if (py::hasattr(given, "_threads")) options->threads = py::cast<int>(given.attr("_threads"));
    if (py::hasattr(given, "_devices")) set_devices(*options, given.attr("_devices"));
    return options;
}

// The options from the values of tutti.torch.quantized.
Quantization quantization_of(const py::tuple& how) {
    return {.type = py::cast<std::string>(how[0]),
            .block = py::cast<std::int64_t>(how[1]),
            .scales = py::cast<std::string>(how[2]),
            .scale = py::cast<std::optional<double>>(how[3]),
            .quantize_results = py::cast<bool>(how[4]),
            .rounding = py::cast<std::string>(how[5]),
            .seed = py::cast<std::uint64_t>(how[6]),
            .averages = py::cast<bool>(how[7]),
            .counts = py::cast<std::vector<std::int64_t>>(how[8])};
}

template <class Function>
c10::intrusive_ptr<TorchStore> make_store(Function make) {
    return c10::make_intrusive<TorchStore>(make());
}

}  // namespace
}  // namespace tutti::torch

PYBIND11_MODULE(_backend, module) {
    using namespace tutti::torch;
    using tutti::Milliseconds;
    module.doc() = "The backend of tutti.torch, built for one version of PyTorch.";
    module.attr("torch_version") = TUTTI_TORCH_VERSION;
    std::vector<std::string> folders = folders_of("torch");
    for (std::string& folder : folders_of("tutti")) folders.push_back(std::move(folder));
    tutti::python::set_packages(std::move(folders));
    const py::module_ c10d = py::module_::import("torch._C._distributed_c10d");

    py::class_<ProcessGroupTutti, c10::intrusive_ptr<ProcessGroupTutti>> group(
        module, "ProcessGroupTutti", c10d.attr("Backend"),
        "The ranks of one group. Made by all of its ranks; returns when all have come.");
    using Options = ProcessGroupTutti::Options;
    py::class_<Options, c10::intrusive_ptr<Options>>(
        group, "Options", c10d.attr("Backend").attr("Options"),
        "For init_process_group(pg_options=...). timeout: of every operation that gives none. transport: "
        "\"automatic\", "
        "\"shm\" or \"tcp\". determinism: \"fast\", \"run_to_run\" or \"layout_invariant\". listen_host: the address "
        "to "
        "listen on; empty: TUTTI_HOST, else the one that reaches the store.")
        .def(py::init([](Milliseconds timeout, const std::string& transport, const std::string& determinism,
                         const std::string& listen_host) {
                 auto options = c10::make_intrusive<Options>(timeout);
                 options->transport = transport_of(transport);
                 options->determinism = determinism_of(determinism);
                 options->listen_host = listen_host;
                 return options;
             }),
             py::kw_only(), py::arg("timeout") = kBackendDefaultTimeout, py::arg("transport") = "automatic",
             py::arg("determinism") = "fast", py::arg("listen_host") = "")
        .def_property(
            "transport", [](const Options& self) { return name_of(self.transport); },
            [](Options& self, const std::string& name) { self.transport = transport_of(name); })
        .def_property(
            "determinism", [](const Options& self) { return name_of(self.determinism); },
            [](Options& self, const std::string& name) { self.determinism = determinism_of(name); })
        .def_readwrite("listen_host", &Options::listen_host)
        .def_readwrite("_threads", &Options::threads, "gloo's; without effect")
        .def_property("_devices", &devices, &set_devices, "gloo's; without effect")
        .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
        .def("__deepcopy__", [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });
    group.def_property_readonly("options", &ProcessGroupTutti::options);
    group.def("empty_symmetric", &ProcessGroupTutti::empty_symmetric, py::arg("sizes"), py::arg("dtype"), ReleaseGil(),
              "See tutti.torch.empty_symmetric.");
    py::class_<TorchQuantizedReducer>(module, "QuantizedReducer")
        .def(py::init([](const py::tuple& how) { return TorchQuantizedReducer(quantization_of(how)); }), py::arg("how"))
        .def("residual", &TorchQuantizedReducer::residual, py::arg("bucket"))
        .def("reset", &TorchQuantizedReducer::reset);
    group.def(
        "quantized",
        [](ProcessGroupTutti& self, const std::string& operation, const at::Tensor& output, const at::Tensor& input,
           const py::tuple& how, bool async_op) {
            const Quantization quantization = quantization_of(how);
            const py::gil_scoped_release release;
            return self.quantized(operation, output, input, quantization, async_op);
        },
        py::arg("operation"), py::arg("output"), py::arg("input"), py::arg("how"), py::arg("async_op"),
        "See tutti.torch.quantized_all_reduce.");
    group.def("quantized_by", &ProcessGroupTutti::quantized_by, py::arg("reducer"), py::arg("tensor"),
              py::arg("bucket"), py::arg("async_op"), ReleaseGil(), "See tutti.torch.QuantizedReducer.");
    group.def("predicted_us", &ProcessGroupTutti::predicted_us, py::arg("collective"), py::arg("bytes"), ReleaseGil(),
              "Microseconds that a collective (\"all_reduce\") of so many bytes takes, by the numbers of the machine; "
              "equal on all ranks.");
    group.def(
        "pieces",
        [](const ProcessGroupTutti& self) {
            std::vector<Pieces::Told> told;
            {
                const py::gil_scoped_release release;
                told = self.pieces();
            }
            py::list list;
            for (const Pieces::Told& one : told)
                list.append(py::dict(py::arg("program") = one.program, py::arg("captured") = one.captured,
                                     py::arg("changes") = one.changes, py::arg("optimised") = one.optimised,
                                     py::arg("replays") = one.replays));
            return list;
        },
        "The pieces of compiled graphs that this group has replayed, as texts; see tutti.graph.explain.");
    group.def("_set_default_timeout", &ProcessGroupTutti::setTimeout, py::arg("timeout"), ReleaseGil(),
              "Of operations that are called from now on.");
    group.def("get_error", &ProcessGroupTutti::getError, ReleaseGil(), "torch's ErrorType of what failed first.");
    group.def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const BaseOptions& options,
                          const std::string& name) {
                  return make_group<ProcessGroupTutti>(store, rank, size, c10::make_intrusive<Options>(*options, name));
              }),
              py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("name") = "tutti",
              ReleaseGil());
    group.def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout) {
                  return make_group<ProcessGroupTutti>(store, rank, size, c10::make_intrusive<Options>(timeout));
              }),
              py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kBackendDefaultTimeout,
              ReleaseGil());

    py::class_<InsteadOfGloo, c10::intrusive_ptr<InsteadOfGloo>, ProcessGroupTutti>(module, "ProcessGroupGloo")
        .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const BaseOptions& options) {
                 auto own = options_as_of_gloo(py::cast(options));
                 const py::gil_scoped_release release;
                 return make_group<InsteadOfGloo>(store, rank, size, std::move(own));
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
        .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
                         bool enable_reconfigure) {
                 auto own = c10::make_intrusive<Options>(timeout, "gloo");
#ifdef C10D_BACKEND_HAS_RECONFIGURE
                 own->enable_reconfigure = enable_reconfigure;
#else
                 TORCH_CHECK_VALUE(!enable_reconfigure,
                                   "ProcessGroupGloo: enable_reconfigure is True; expected False, "
                                   "since this PyTorch has no reconfigure (2.14 has)");
#endif
                 const py::tuple meant = py::module_::import("tutti.torch.gloo").attr("meant")();
                 own->group_name = py::cast<std::string>(meant[0]);
                 own->global_ranks_in_group = py::cast<std::vector<std::uint64_t>>(meant[1]);
                 const py::gil_scoped_release release;
                 return make_group<InsteadOfGloo>(store, rank, size, std::move(own));
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kBackendDefaultTimeout,
             py::arg("enable_reconfigure") = false);

    py::class_<TorchStore, c10::intrusive_ptr<TorchStore>>(
        module, "Store", c10d.attr("Store"), py::dynamic_attr(),
        "A torch.distributed.Store that keeps its data in a store of tutti's.")
        .def("describe", [](const TorchStore& self) { return self.store().describe(); });
    module.def("leave_all", &ProcessGroupTutti::leave_all, ReleaseGil());
    run_signal_handlers_in_waits();
    bind_recorder(module);
    module.def(
        "hash_store",
        [](Milliseconds timeout) {
            return translating_of_store([&] { return make_store([&] { return tutti::HashStore(timeout); }); });
        },
        py::arg("timeout"), ReleaseGil());
    module.def(
        "file_store",
        [](const std::string& path, int world_size, Milliseconds timeout) {
            return translating_of_store(
                [&] { return make_store([&] { return tutti::FileStore(path, world_size, timeout); }); });
        },
        py::arg("path"), py::arg("world_size"), py::arg("timeout"), ReleaseGil());
    module.def(
        "tcp_store",
        [](const std::string& host, std::uint16_t port, std::optional<int> world_size, bool is_master,
           Milliseconds timeout, bool wait_for_workers, bool multi_tenant, std::optional<int> listen_fd) {
            return translating_of_store([&] {
                tutti::TCPStore store({.host = host,
                                       .port = port,
                                       .world_size = world_size,
                                       .is_master = is_master,
                                       .timeout = timeout,
                                       .wait_for_workers = wait_for_workers,
                                       .multi_tenant = multi_tenant,
                                       .master_listen_fd = listen_fd.value_or(-1)});
                return std::make_pair(c10::make_intrusive<TorchStore>(store), store.port());
            });
        },
        py::arg("host"), py::arg("port"), py::arg("world_size"), py::arg("is_master"), py::arg("timeout"),
        py::arg("wait_for_workers"), py::arg("multi_tenant"), py::arg("master_listen_fd"), ReleaseGil());
}
