#include "backends.hpp"

#include "calls.hpp"
#include "groups.hpp"
#include "stores.hpp"

#include <tutti/backend.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

std::uint64_t total(const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}
std::uint64_t end_of(const std::vector<std::uint64_t>& offsets, const std::vector<std::uint64_t>& counts) {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) end = std::max(end, offsets[i] + counts[i]);
    return end;
}

// A request with the place of its rank, from which the lengths of its buffers follow.
struct Request {
    const BackendRequest* request;
    int rank, size;

    nb::object array(const void* data, std::uint64_t count) const {
        if (data == nullptr) return nb::none();
        return to_numpy(
            Tensor(TensorView(const_cast<void*>(data), Extents::of(static_cast<std::int64_t>(count)), request->dtype),
                   nullptr));
    }
    std::uint64_t mine() const { return request->counts.at(static_cast<std::size_t>(rank)); }
    nb::object input() const {
        switch (request->call) {
            case BackendCall::all_gather: return array(request->input, mine());
            case BackendCall::scatter: return array(request->input, request->count * static_cast<std::uint64_t>(size));
            case BackendCall::reduce_scatter: return array(request->input, total(request->counts));
            case BackendCall::all_to_all:
                return array(request->input, end_of(request->send_offsets, request->send_counts));
            default: return array(request->input, request->count);
        }
    }
    nb::object output() const {
        switch (request->call) {
            case BackendCall::all_gather: return array(request->output, total(request->counts));
            case BackendCall::gather: return array(request->output, request->count * static_cast<std::uint64_t>(size));
            case BackendCall::reduce_scatter: return array(request->output, mine());
            case BackendCall::all_to_all:
                return array(request->output, end_of(request->receive_offsets, request->receive_counts));
            default: return array(request->output, request->count);
        }
    }
};

// A backend whose run(request, completion) and abort(reason) are Python's.
class PythonBackend : public CustomBackend {
 public:
    PythonBackend(nb::object backend, int rank, int size)
        : backend_(std::any_cast<std::shared_ptr<PyObject>>(shared_object(backend))), rank_(rank), size_(size) {}

    void run(const BackendRequest& request, BackendCompletion completion) override {
        const nb::gil_scoped_acquire lock;
        try {
            nb::handle(backend_.get()).attr("run")(Request{&request, rank_, size_}, completion);
        } catch (const nb::python_error& error) {
            throw DistBackendError(fmt::format("{}: the backend raised {}", request.name, error.what()));
        }
    }
    void abort(const std::string& reason) noexcept override {
        const nb::gil_scoped_acquire lock;
        try {
            if (nb::hasattr(backend_.get(), "abort")) nb::handle(backend_.get()).attr("abort")(reason);
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("abort of a backend");
        } catch (...) {
        }
    }

 private:
    std::shared_ptr<PyObject> backend_;
    int rank_, size_;
};

template <class F>
std::shared_ptr<CustomBackend> make_backend(int rank, int size, F call) {
    const nb::gil_scoped_acquire lock;
    try {
        nb::object made = call();
        if (!nb::hasattr(made, "run")) {
            throw DistBackendError(
                fmt::format("a backend's function returned {}: expected an object with "
                            "run(request, completion) and abort(reason)",
                            class_name(made)));
        }
        return std::make_shared<PythonBackend>(std::move(made), rank, size);
    } catch (const nb::python_error& error) {
        throw DistBackendError(fmt::format("a backend's function raised {}", error.what()));
    }
}

nb::handle object_in(const std::any& options) {
    const auto* held = std::any_cast<std::shared_ptr<PyObject>>(&options);
    return held == nullptr ? nb::handle(Py_None) : nb::handle(held->get());
}

void register_backend(const std::string& name, nb::handle func, bool extended_api,
                      const std::vector<std::string>& devices) {
    std::vector<Device::Type> types;
    for (const std::string& device : devices) {
        types.push_back(device_of(nb::str(device.c_str()), "Backend.register_backend").type);
    }
    const auto function = std::any_cast<std::shared_ptr<PyObject>>(shared_object(func));
    if (extended_api) {
        Backend::register_backend(
            name,
            [function](const DistributedBackendOptions& options, const std::any& pg_options) {
                return make_backend(options.group_rank, options.group_size,
                                    [&] { return nb::handle(function.get())(options, object_in(pg_options)); });
            },
            types);
    } else {
        Backend::register_backend(
            name,
            [function](Store store, int rank, int size, milliseconds timeout) {
                return make_backend(rank, size,
                                    [&] { return nb::handle(function.get())(store, rank, size, timedelta(timeout)); });
            },
            types);
    }
}

void bind_third_party(nb::module_& m) {
    nb::class_<Request>(m, "BackendRequest",
                        "One operation for a backend, in its plainest form: buffers in one piece, ranks of the group.\n"
                        "The arrays are the caller's memory, valid until the operation is complete.")
        .def_prop_ro("call", [](const Request& self) { return std::string(to_string(self.request->call)); })
        .def_prop_ro("name", [](const Request& self) { return self.request->name; })
        .def_prop_ro("sequence", [](const Request& self) { return self.request->sequence; })
        .def_prop_ro("op", [](const Request& self) { return self.request->op; })
        .def_prop_ro("root", [](const Request& self) { return self.request->root; })
        .def_prop_ro("tag", [](const Request& self) { return self.request->tag; })
        .def_prop_ro("count", [](const Request& self) { return self.request->count; })
        .def_prop_ro("counts", [](const Request& self) { return self.request->counts; })
        .def_prop_ro("send_counts", [](const Request& self) { return self.request->send_counts; })
        .def_prop_ro("send_offsets", [](const Request& self) { return self.request->send_offsets; })
        .def_prop_ro("receive_counts", [](const Request& self) { return self.request->receive_counts; })
        .def_prop_ro("receive_offsets", [](const Request& self) { return self.request->receive_offsets; })
        .def_prop_ro("in_rank_order", [](const Request& self) { return self.request->in_rank_order; })
        .def_prop_ro("input", &Request::input, nb::sig("def input(self) -> typing.Any"))
        .def_prop_ro("output", &Request::output, nb::sig("def output(self) -> typing.Any"));
    nb::class_<BackendCompletion>(
        m, "BackendCompletion", "How a backend says that an operation is over; one of the two, once, from any thread.")
        .def(
            "success", [](const BackendCompletion& self, int source) { without_gil([&] { self.success(source); }); },
            nb::arg("source") = -1, "`source`: of a receive, the group rank of the sender.")
        .def(
            "failure",
            [](const BackendCompletion& self, nb::handle error) {
                const auto text = nb::cast<std::string>(nb::str(error));
                without_gil([&] { self.failure(std::make_exception_ptr(DistBackendError(text))); });
            },
            nb::arg("error"), nb::sig("def failure(self, error: BaseException | str) -> None"));
    nb::class_<DistributedBackendOptions>(m, "DistributedBackendOptions", "What a backend is made from.")
        .def_prop_ro("store", [](const DistributedBackendOptions& self) { return self.store; })
        .def_ro("group_rank", &DistributedBackendOptions::group_rank)
        .def_ro("group_size", &DistributedBackendOptions::group_size)
        .def_prop_ro(
            "timeout", [](const DistributedBackendOptions& self) { return timedelta(self.timeout); },
            nb::sig("def timeout(self) -> datetime.timedelta"))
        .def_ro("group_id", &DistributedBackendOptions::group_id)
        .def_ro("global_ranks_in_group", &DistributedBackendOptions::global_ranks_in_group);
}

}  // namespace

void bind_backends(nb::module_& m) {
    bind_third_party(m);
    m.def("register_backend", &register_backend);
    m.def("backend_name", [](const std::string& name) { return Backend(name).name(); });
    m.def("available_backends", &Backend::available, "Names that groups can use now.");
    m.def(
        "is_backend_available", [](const std::string& backend) { return is_backend_available(backend); },
        nb::arg("backend"), "Whether a group could use the backend now.");
    m.def("is_mpi_available", &is_mpi_available, "Whether the backend mpi can be used.");
    m.def("is_nccl_available", &is_nccl_available, "Whether the backend nccl can be used.");
    m.def("is_gloo_available", &is_gloo_available, "Whether the backend gloo can be used.");
    m.def("is_ucc_available", &is_ucc_available, "Whether the backend ucc can be used.");
    m.def("is_xccl_available", &is_xccl_available, "Whether the backend xccl can be used.");
}

}  // namespace tutti::python
