// Graphs over arrays: captures, compute steps that call Python, replays. graph_values.cpp has the value.
//
// A replay runs without the interpreter's lock, and a compute step takes it. What a graph uses (arrays, functions)
// lives as long as the graph, its copies and its Executables.
#include "captures.hpp"
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/graph.hpp>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::python {
namespace {

using graph::Graph;

// ---- What lives as long as a graph -------------------------------------------------------------------------------

/// Python objects that may be let go of without the interpreter's lock, and after the interpreter's end.
template <class T>
std::shared_ptr<T> with_lock_at_end(T value) {
    return {new T(std::move(value)), [](T* owned) {
                if (!Py_IsInitialized()) return;  // their objects have gone
                const nb::gil_scoped_acquire lock;
                delete owned;
            }};
}

struct Kept {
    std::vector<Array> arrays;
    std::vector<nb::object> objects;
    std::shared_ptr<const graph::detail::CapturedCalls> calls;
};
thread_local Kept* kept_of_capture = nullptr;

/// While it lives, this thread's calls give their arrays to `kept`.
class Keeping {
 public:
    explicit Keeping(Kept& kept) { kept_of_capture = &kept; }
    ~Keeping() { kept_of_capture = nullptr; }
    Keeping(const Keeping&) = delete;
    Keeping& operator=(const Keeping&) = delete;
};

// ---- Executables ----------------------------------------------------------------------------------------------------

/// Executable, with the arrays that replaced those of the capture.
class ExecutableObject {
 public:
    explicit ExecutableObject(const Graph& graph)
        : executable_(without_gil([&] { return graph::instantiate(graph); })) {}

    void replay() {
        if (replaying_) throw InvalidArgument("Executable.replay: it is being replayed: expected one replay at a time");
        const InReplay here(*this);
        without_gil([&] { executable_.replay(); });
    }

    void bind(nb::handle captured, nb::handle replacement) {
        if (replaying_)
            throw InvalidArgument("Executable.bind: it is being replayed: expected the call after the replay");
        const Array from(captured, reads, "Executable.bind", "captured");
        Array to(replacement, writes, "Executable.bind", "replacement");
        executable_.bind(from.view(), to.view());
        const void* const at = from.view().data();
        const std::size_t bytes = from.view().byte_count();
        const auto is_here = [&](const Bound& b) { return b.bytes == bytes && b.array.view().data() == at; };
        const auto was_here = [&](const Bound& b) { return b.bytes == bytes && b.captured == at; };
        const bool by_place = std::ranges::any_of(bound_, is_here);  // as executable_ understands the name
        bool is_known = false;
        for (Bound& bound : bound_) {
            if (by_place ? !is_here(bound) : !was_here(bound)) continue;
            bound.array = Array(replacement, writes, "Executable.bind", "replacement");
            bound.object = nb::borrow(replacement);
            is_known = true;
        }
        if (!is_known || (by_place && std::ranges::none_of(bound_, was_here)))
            bound_.push_back({at, bytes, std::move(to), nb::borrow(replacement)});
    }

    const Graph& graph() const { return executable_.graph(); }

    /// The object whose memory the view is: one that was bound, or a new array over a part of one.
    static nb::object object_at(const TensorView& view) {
        static const auto& none = *new std::vector<Bound>;
        for (const Bound& bound : of_this_thread_ == nullptr ? none : of_this_thread_->bound_) {
            const TensorView& whole = bound.array.view();
            const auto* begin = static_cast<const std::byte*>(whole.data());
            const auto* at = static_cast<const std::byte*>(view.data());
            if (at < begin || at >= begin + bound.bytes) continue;
            if (at == begin && view.dtype() == whole.dtype() && view.shape() == whole.shape()) return bound.object;
            return to_numpy(Tensor(view, std::any_cast<std::shared_ptr<PyObject>>(shared_object(bound.object))));
        }
        return to_numpy(Tensor(view, nullptr));
    }

 private:
    struct Bound {
        const void* captured;
        std::size_t bytes;
        Array array;
        nb::object object;
    };
    class InReplay {
     public:
        explicit InReplay(ExecutableObject& executable)
            : executable_(executable), outer_(std::exchange(of_this_thread_, &executable)) {
            executable_.replaying_ = true;
        }
        ~InReplay() {
            executable_.replaying_ = false;
            of_this_thread_ = outer_;
        }
        InReplay(const InReplay&) = delete;
        InReplay& operator=(const InReplay&) = delete;

     private:
        ExecutableObject& executable_;
        const ExecutableObject* outer_;
    };

    inline static thread_local const ExecutableObject* of_this_thread_ = nullptr;
    graph::Executable executable_;
    std::vector<Bound> bound_;
    bool replaying_ = false;
};

// ---- Compute steps
// ---------------------------------------------------------------------------------------------------

/// A Python function with its arrays.
struct ComputeStep {
    nb::object function;
    std::vector<nb::object> reads, writes;
    ArrayList read_arrays, written_arrays;
    bool takes_arrays = false;

    template <class Views>
    static nb::list now(const std::vector<nb::object>& objects, const std::vector<Array>& arrays, const Views& views) {
        nb::list list;
        for (std::size_t i = 0; i < objects.size(); ++i) {
            if (views[i].data() == arrays[i].view().data()) {
                list.append(objects[i]);
                continue;
            }
            void* const at = const_cast<void*>(static_cast<const void*>(views[i].data()));
            list.append(ExecutableObject::object_at(TensorView(at, views[i].shape(), views[i].dtype())));
        }
        return list;
    }
    void run(std::span<const ConstTensorView> read, std::span<const TensorView> written) const {
        const nb::gil_scoped_acquire lock;
        if (takes_arrays)
            function(now(reads, read_arrays.arrays, read), now(writes, written_arrays.arrays, written));
        else
            function();
    }
};

std::vector<nb::object> objects_of(nb::handle list) {
    std::vector<nb::object> objects;
    for (const nb::handle object : list) objects.push_back(nb::borrow(object));
    return objects;
}

double number_of(nb::handle value, const char* operation, const char* argument) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        throw_type_error(operation, argument, value, "a number of microseconds");
    }
    return number;
}

void compute(nb::handle reads_list, nb::handle writes_list, nb::handle function, const std::string& name,
             nb::handle cost_us, bool takes_arrays, nb::handle splittable, nb::handle whole, nb::handle elementwise) {
    constexpr const char* operation = "compute";
    graph::ComputeOptions options;
    options.name = name;
    options.cost_us = number_of(cost_us, operation, "cost_us");
    options.splittable = flag_of(splittable, operation, "splittable");
    options.elementwise = flag_of(elementwise, operation, "elementwise");
    for (const nb::handle read : whole) {
        const int number = integer_of(read, operation, "whole");
        if (number < 0)
            throw InvalidArgument(fmt::format("compute: whole has {}: expected numbers of reads, from 0", number));
        options.whole.push_back(static_cast<std::uint32_t>(number));
    }
    ComputeStep step;
    step.read_arrays = ArrayList(reads_list, reads, operation, "reads");
    step.written_arrays = ArrayList(writes_list, writes, operation, "writes");
    step.reads = objects_of(reads_list);
    step.writes = objects_of(writes_list);
    step.function = nb::borrow(function);
    step.takes_arrays = takes_arrays;
    const std::vector<ConstTensorView> read = step.read_arrays.const_views();
    const std::vector<TensorView> written = step.written_arrays.views();
    without_gil([&, shared = with_lock_at_end(std::move(step))] {
        graph::detail::capture_compute(
            read, written, [shared](auto now_read, auto now_written) { shared->run(now_read, now_written); },
            takes_arrays, options, std::source_location::current());
    });
}

// ---- Captures
// ----------------------------------------------------------------------------------------------------------

Graph capture(nb::handle function) {
    if (!PyCallable_Check(function.ptr()))
        throw_type_error("capture", "function", function, "a function without arguments");
    graph::detail::Capture scope;
    Kept kept;
    {
        const Keeping keeping(kept);
        function();
    }
    Graph graph = scope.end();
    kept.calls = graph.calls;
    const auto owner = with_lock_at_end(std::move(kept));
    graph.calls = std::shared_ptr<const graph::detail::CapturedCalls>(owner, owner->calls.get());
    return graph;
}

void temporary(nb::handle tensor) {
    const Array array(tensor, reads, "temporary", "tensor");
    graph::temporary(array.view());
}

void check_host_read(const Array& array, const std::string& reader) {
    const CallSiteScope site(call_site());
    graph::check_host_read(array.view(), reader);
}

nb::object item(nb::handle tensor) {
    const Array array(tensor, reads, "item", "tensor");
    const TensorView& view = array.view();
    if (view.element_count() != 1 || view.device().type != Device::Type::cpu)
        throw InvalidArgument(
            fmt::format("item: tensor is {}: expected one element in host memory", ConstTensorView(view).to_string()));
    check_host_read(array, "item");
    return to_numpy(Tensor(view, nullptr)).attr("item")();
}

// ---- Passes
// ------------------------------------------------------------------------------------------------------------

graph::OptimiseOptions options_of(nb::handle group, const std::string& order, nb::handle passes,
                                  nb::handle bucket_bytes, nb::handle overlap_us, nb::handle chunks,
                                  std::uint64_t in_flight_bytes, bool stages) {
    constexpr const char* operation = "optimise";
    graph::OptimiseOptions o;
    o.group = group_of(group, operation);
    if (order != "free" && order != "program")
        throw InvalidArgument(fmt::format("optimise: order \"{}\": expected \"free\" or \"program\"", order));
    o.order = order == "free" ? graph::Order::free : graph::Order::program;
    const auto on = nb::borrow<nb::dict>(passes);
    for (const auto& [name, pass] : {std::pair{"alike", &graph::OptimiseOptions::alike},
                                     {"dead_values", &graph::OptimiseOptions::dead_values},
                                     {"algebra", &graph::OptimiseOptions::algebra},
                                     {"buckets", &graph::OptimiseOptions::buckets},
                                     {"split", &graph::OptimiseOptions::split},
                                     {"overlap", &graph::OptimiseOptions::overlap},
                                     {"memory", &graph::OptimiseOptions::memory}})
        o.*pass = flag_of(on[name], operation, name);
    if (!bucket_bytes.is_none()) {
        const int bytes = integer_of(bucket_bytes, operation, "bucket_bytes");
        if (bytes < 0) throw InvalidArgument(fmt::format("optimise: bucket_bytes {}: expected zero or more", bytes));
        o.bucket_bytes = static_cast<std::uint64_t>(bytes);
    }
    o.overlap_us = number_of(overlap_us, operation, "overlap_us");
    if (!chunks.is_none()) o.chunks = integer_of(chunks, operation, "chunks");
    o.in_flight_bytes = in_flight_bytes;
    o.stages = stages;
    return o;
}

}  // namespace

void keep_if_captured(std::vector<Array>& arrays) {
    if (kept_of_capture == nullptr) return;
    for (Array& array : arrays) kept_of_capture->arrays.push_back(std::move(array));
    arrays.clear();
}

bool keep_if_captured(nb::handle owner) {
    if (kept_of_capture == nullptr) return false;
    kept_of_capture->objects.push_back(nb::borrow(owner));
    return true;
}

void bind_graph(nb::module_& m) {
    bind_graph_values(m);
    m.def("graph_capture", &capture);
    m.def("graph_is_capturing", &graph::is_capturing);
    m.def("graph_compute", &compute);
    m.def("graph_temporary", &temporary);
    m.def("graph_item", &item);
    m.def("graph_check_host_read", [](nb::handle tensor, const std::string& reader) {
        check_host_read(Array(tensor, reads, "check_host_read", "tensor"), reader);
    });
    m.def("graph_prove", [](const std::vector<Graph>& graphs) { return without_gil([&] { return prove(graphs); }); });
    m.def("graph_prove_equal", [](const std::vector<Graph>& captured, const std::vector<Graph>& optimised) {
        return without_gil([&] { return prove(captured, optimised); });
    });
    m.def("graph_optimise",
          [](const Graph& graph, nb::handle group, const std::string& order, nb::handle passes, nb::handle bucket_bytes,
             nb::handle overlap_us, nb::handle chunks, std::uint64_t in_flight_bytes, bool stages) {
              const auto options =
                  options_of(group, order, passes, bucket_bytes, overlap_us, chunks, in_flight_bytes, stages);
              return without_gil([&] { return optimise(graph, options); });
          });
    m.def("graph_optimise_all",
          [](const std::vector<Graph>& graphs, const std::string& order, nb::handle passes, nb::handle bucket_bytes,
             nb::handle overlap_us, nb::handle chunks, std::uint64_t in_flight_bytes, bool stages) {
              const auto options =
                  options_of(nb::none(), order, passes, bucket_bytes, overlap_us, chunks, in_flight_bytes, stages);
              return without_gil([&] { return optimise(graphs, options); });
          });
    nb::class_<ExecutableObject>(
        m, "GraphExecutable",
        "A graph, ready to run. One replay at a time; all ranks issue what their graphs say, among their other calls.")
        .def(nb::init<const Graph&>(), nb::arg("graph"))
        .def("replay", &ExecutableObject::replay, nb::lock_self(),
             "Runs the graph once, to the end, without the interpreter's lock but in compute steps. Raises what its\n"
             "calls and functions raise.")
        .def(
            "bind", &ExecutableObject::bind, nb::lock_self(), nb::arg("captured"), nb::arg("replacement"),
            "From the next replay on, uses the array `replacement` where it used `captured`, an array of the capture\n"
            "or an earlier replacement: of the same type and size, both in one piece. InvalidArgument where the graph\n"
            "has no such array, an array of a node lies in it only in part, a compute step's function takes no\n"
            "arrays, or what the graph writes would share memory with another of its arrays.")
        .def_prop_ro("graph", &ExecutableObject::graph, "The graph that it runs.");
}

}  // namespace tutti::python
