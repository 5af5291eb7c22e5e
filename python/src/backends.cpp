#include "backends.hpp"

#include "calls.hpp"
#include "device_arrays.hpp"
#include "groups.hpp"
#include "stores.hpp"

#include <tutti/backend.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

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
        return to_array(TensorView(const_cast<void*>(data), Extents::of(static_cast<std::int64_t>(count)),
                                   request->dtype, {}, request->device));
    }
    // The arrays of the ranks' blocks; the lengths come from the side of the operation that has several.
    template <class Pointers>
    nb::object blocks(const Pointers& pointers, const std::vector<std::uint64_t>& exchanged) const {
        if (pointers.empty()) return nb::none();
        const auto& counts = traits().exchanges() ? exchanged : request->counts;
        nb::list list;
        for (std::size_t i = 0; i < pointers.size(); ++i)
            list.append(array(pointers[i], counts.empty() ? request->count : counts[i]));
        return list;
    }
    nb::object inputs() const { return blocks(request->inputs, request->send_counts); }
    nb::object outputs() const { return blocks(request->outputs, request->receive_counts); }
    std::uint64_t length(CollectiveTraits::Extent extent, const std::vector<std::uint64_t>& offsets,
                         const std::vector<std::uint64_t>& exchanged) const {
        using Extent = CollectiveTraits::Extent;
        const auto& counts = request->counts;
        const auto ranks = static_cast<std::uint64_t>(size);
        switch (extent) {
            case Extent::own_block: return counts.empty() ? request->count : counts.at(static_cast<std::size_t>(rank));
            case Extent::all_blocks: return counts.empty() ? request->count * ranks : total(counts);
            case Extent::exchanged: return end_of(offsets, exchanged);
            case Extent::nothing:
            case Extent::whole: break;
        }
        return request->count;
    }
    /// A message is one whole buffer.
    CollectiveTraits traits() const {
        using Extent = CollectiveTraits::Extent;
        const auto collective = collective_of(request->call);
        return collective ? traits_of(*collective) : CollectiveTraits{.input = Extent::whole, .output = Extent::whole};
    }
    nb::object input() const {
        return array(request->input, length(traits().input, request->send_offsets, request->send_counts));
    }
    nb::object output() const {
        return array(request->output, length(traits().output, request->receive_offsets, request->receive_counts));
    }
};

// The end of an operation on a device: an object with make_wait(stream).
class PythonEvent : public DeviceEvent {
 public:
    explicit PythonEvent(nb::handle event) : event_(std::any_cast<std::shared_ptr<PyObject>>(shared_object(event))) {}

    void make_wait(Stream stream) override {
        const nb::gil_scoped_acquire lock;
        try {
            nb::handle(event_.get()).attr("make_wait")(reinterpret_cast<std::uintptr_t>(stream.handle));
        } catch (const nb::python_error& error) {
            throw DistBackendError(fmt::format("the event of a backend raised {}", error.what()));
        }
    }

 private:
    std::shared_ptr<PyObject> event_;
};

// A backend whose run(request, completion), abort(reason) and optional methods are Python's.
class PythonBackend : public CustomBackend {
 public:
    PythonBackend(nb::object backend, int rank, int size)
        : takes_blocks_(nb::cast<bool>(nb::bool_(nb::getattr(backend, "takes_blocks", nb::bool_(false))))),
          groups_(nb::hasattr(backend, "begin_group") && nb::hasattr(backend, "end_group")),
          backend_(std::any_cast<std::shared_ptr<PyObject>>(shared_object(backend))),
          rank_(rank),
          size_(size) {}

    void run(const BackendRequest& request, BackendCompletion completion) override {
        const nb::gil_scoped_acquire lock;
        try {
            nb::handle(backend_.get()).attr("run")(Request{&request, rank_, size_}, completion);
        } catch (const nb::python_error& error) {
            throw DistBackendError(fmt::format("{}: the backend raised {}", request.name, error.what()));
        }
    }
    void begin_group() override {
        if (groups_) call("begin_group");
    }
    void end_group() override {
        if (groups_) call("end_group");
    }
    bool takes_blocks() const override { return takes_blocks_; }
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
    void call(const char* method) const {
        const nb::gil_scoped_acquire lock;
        try {
            nb::handle(backend_.get()).attr(method)();
        } catch (const nb::python_error& error) {
            throw DistBackendError(fmt::format("{} of the backend raised {}", method, error.what()));
        }
    }

    const bool takes_blocks_, groups_;
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

struct NamesFromPython {
    nb::ft_mutex mutex;
    std::set<std::string> names;
};
NamesFromPython& names_from_python() {
    static auto* names = new NamesFromPython();
    return *names;
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
    auto& [mutex, names] = names_from_python();
    const nb::ft_lock_guard lock(mutex);
    names.insert(lower(name));
}

void bind_third_party(nb::module_& m) {
    nb::class_<Request>(
        m, "BackendRequest",
        "One operation for a backend, in its plainest form: buffers in one piece, ranks of the group.\n"
        "The arrays are the caller's memory, valid until the operation is complete: NumPy's, or, on a\n"
        "device, DeviceArrays. `stream`: the caller's, whose work the operation comes after; 0: the\n"
        "default one. `inputs`, `outputs`: for a backend whose attribute takes_blocks is true, where each\n"
        "rank's block is if they do not adjoin on a device; None otherwise.")
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
        .def_prop_ro("device", [](const Request& self) { return to_string(self.request->device); })
        .def_prop_ro("stream",
                     [](const Request& self) { return reinterpret_cast<std::uintptr_t>(self.request->stream.handle); })
        .def_prop_ro(
            "timeout", [](const Request& self) { return timedelta(self.request->timeout); },
            nb::sig("def timeout(self) -> datetime.timedelta"))
        .def_prop_ro("inputs", &Request::inputs, nb::sig("def inputs(self) -> list[typing.Any] | None"))
        .def_prop_ro("outputs", &Request::outputs, nb::sig("def outputs(self) -> list[typing.Any] | None"))
        .def_prop_ro("in_rank_order", [](const Request& self) { return self.request->in_rank_order; })
        .def_prop_ro("input", &Request::input, nb::sig("def input(self) -> typing.Any"))
        .def_prop_ro("output", &Request::output, nb::sig("def output(self) -> typing.Any"));
    nb::class_<BackendCompletion>(
        m, "BackendCompletion",
        "How a backend says that an operation is over: success() or failure(), once, from any thread.")
        .def(
            "enqueued",
            [](const BackendCompletion& self, nb::handle event, int source) {
                if (!nb::hasattr(event, "make_wait"))
                    throw_type_error("BackendCompletion.enqueued", "event", event, "an object with make_wait(stream)");
                auto shared = std::make_shared<PythonEvent>(event);
                without_gil([&] { self.enqueued(std::move(shared), source); });
            },
            nb::arg("event"), nb::arg("source") = -1,
            nb::sig("def enqueued(self, event: typing.Any, source: int = -1) -> None"),
            "Before success(), on a device: it is in a stream, and nothing is left for the host to do.\n"
            "event.make_wait(stream) lets a stream wait for it, without blocking.")
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
        .def_prop_ro(
            "device",
            [](const DistributedBackendOptions& self) {
                return self.device ? nb::object(nb::str(to_string(*self.device).c_str())) : nb::object(nb::none());
            },
            nb::sig("def device(self) -> str | None"))
        .def_ro("group_id", &DistributedBackendOptions::group_id)
        .def_ro("global_ranks_in_group", &DistributedBackendOptions::global_ranks_in_group);
}

}  // namespace

bool is_from_python(const std::string& name) {
    auto& [mutex, names] = names_from_python();
    const nb::ft_lock_guard lock(mutex);
    return names.contains(lower(name));
}

void bind_backends(nb::module_& m) {
    bind_device_arrays(m);
    bind_third_party(m);
    m.def("register_backend", &register_backend);
    m.def("_is_from_python", &is_from_python, nb::arg("name"));
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
