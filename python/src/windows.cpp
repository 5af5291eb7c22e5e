// Windows: memory that other ranks read, write and update atomically by themselves, and signals.
#include "calls.hpp"
#include "parts.hpp"

#include <tutti/window.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <type_traits>

namespace tutti::python {
namespace {

// An integer from `least` on, of up to 64 bits without a sign.
std::uint64_t count_of(nb::handle value, std::int64_t least, const char* name, const char* argument) {
    if (PyLong_Check(value.ptr())) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        if (overflow == 0 && number >= least) return static_cast<std::uint64_t>(number);
        if (overflow > 0) {
            const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
            if (PyErr_Occurred() == nullptr) return large;
            PyErr_Clear();
        }
    }
    throw InvalidArgument(fmt::format("{}: {} {}: expected an integer from {} to {}", name, argument,
                                      nb::repr(value).c_str(), least, std::numeric_limits<std::uint64_t>::max()));
}

std::int64_t offset_of(nb::handle offset, const char* name) {
    const std::uint64_t number = count_of(offset, 0, name, "offset");
    if (number <= std::numeric_limits<std::int64_t>::max()) return static_cast<std::int64_t>(number);
    throw InvalidArgument(fmt::format("{}: offset {}: expected an element of the window", name, number));
}

WindowAccess access_of(nb::handle offset, nb::handle timeout, const char* name) {
    return {.offset = offset_of(offset, name), .timeout = timeout_of(timeout, name)};
}
WindowSignalAccess access_of(nb::handle offset, nb::handle signal, nb::handle value, nb::handle timeout,
                             const char* name) {
    return {.offset = offset_of(offset, name),
            .signal = integer_of(signal, name, "signal"),
            .value = count_of(value, 0, name, "value"),
            .timeout = timeout_of(timeout, name)};
}

void make(Window* self, nb::handle shape, const std::string& dtype, nb::handle group, nb::handle signals,
          nb::handle timeout) {
    constexpr const char* name = "Window";
    const Extents extents = shape_of(shape, name);
    const DType type = dtype_from_string(dtype);
    const WindowOptions options{.signals = integer_of(signals, name, "signals"),
                                .group = group_of(group, name),
                                .timeout = timeout_of(timeout, name)};
    new (self) Window(without_gil([&] { return Window(type, extents, options); }));
}

void put(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.put";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const int to = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    without_gil([&] { self.put(arrays[0].view(), to, access); });
}
void get(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.get";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const int from = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    without_gil([&] { self.get(arrays[0].view(), from, access); });
}
void put_signal(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle signal,
                nb::handle value, nb::handle timeout) {
    constexpr const char* name = "Window.put_signal";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const int to = integer_of(target, name, "target");
    const WindowSignalAccess access = access_of(offset, signal, value, timeout, name);
    without_gil([&] { self.put_signal(arrays[0].view(), to, access); });
}
OptionalWork iput(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.iput";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const TensorView view = arrays[0].view();
    const int to = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    return begin(std::move(arrays), nb::list(), [&] { return self.iput(view, to, access); });
}
OptionalWork iget(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.iget";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const int from = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    return begin(std::move(arrays), one(tensor), [&] { return self.iget(view, from, access); });
}
OptionalWork iput_signal(const Window& self, nb::handle tensor, nb::handle target, nb::handle offset, nb::handle signal,
                         nb::handle value, nb::handle timeout) {
    constexpr const char* name = "Window.iput_signal";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const TensorView view = arrays[0].view();
    const int to = integer_of(target, name, "target");
    const WindowSignalAccess access = access_of(offset, signal, value, timeout, name);
    return begin(std::move(arrays), nb::list(), [&] { return self.iput_signal(view, to, access); });
}

// ---- Atomic updates

AccumulateOp accumulate_op_of(nb::handle op, const char* name) {
    if (!nb::isinstance<nb::str>(op)) return op_of(op, name);
    const auto text = nb::cast<std::string>(op);
    if (text == "replace") return AccumulateOp::replace;
    if (text == "no_op") return AccumulateOp::no_op;
    throw InvalidArgument(fmt::format("{}: op \"{}\": expected a ReduceOp, \"replace\" or \"no_op\"", name, text));
}

void accumulate(const Window& self, nb::handle tensor, nb::handle target, nb::handle op, nb::handle offset,
                nb::handle timeout) {
    constexpr const char* name = "Window.accumulate";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const int to = integer_of(target, name, "target");
    const AccumulateOp how = accumulate_op_of(op, name);
    const WindowAccess access = access_of(offset, timeout, name);
    without_gil([&] { self.accumulate(arrays[0].view(), to, how, access); });
}
OptionalWork iaccumulate(const Window& self, nb::handle tensor, nb::handle target, nb::handle op, nb::handle offset,
                         nb::handle timeout) {
    constexpr const char* name = "Window.iaccumulate";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"));
    const TensorView view = arrays[0].view();
    const int to = integer_of(target, name, "target");
    const AccumulateOp how = accumulate_op_of(op, name);
    const WindowAccess access = access_of(offset, timeout, name);
    return begin(std::move(arrays), nb::list(), [&] { return self.iaccumulate(view, to, how, access); });
}
void get_accumulate(const Window& self, nb::handle tensor, nb::handle before, nb::handle target, nb::handle op,
                    nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.get_accumulate";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"), Array(before, writes, name, "before"));
    const int to = integer_of(target, name, "target");
    const AccumulateOp how = accumulate_op_of(op, name);
    const WindowAccess access = access_of(offset, timeout, name);
    without_gil([&] { self.get_accumulate(arrays[0].view(), arrays[1].view(), to, how, access); });
}
OptionalWork iget_accumulate(const Window& self, nb::handle tensor, nb::handle before, nb::handle target, nb::handle op,
                             nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.iget_accumulate";
    auto arrays = list_of(Array(tensor, reads, name, "tensor"), Array(before, writes, name, "before"));
    const TensorView view = arrays[0].view(), old = arrays[1].view();
    const int to = integer_of(target, name, "target");
    const AccumulateOp how = accumulate_op_of(op, name);
    const WindowAccess access = access_of(offset, timeout, name);
    return begin(std::move(arrays), one(before), [&] { return self.iget_accumulate(view, old, to, how, access); });
}

// A Python number as an element.
template <class T>
T element_of(nb::handle value, const char* name, const char* argument) {
    if constexpr (std::is_same_v<T, bool>) {
        return flag_of(value, name, argument);
    } else if constexpr (std::is_floating_point_v<T>) {
        const double number = PyFloat_AsDouble(value.ptr());
        if (PyErr_Occurred() == nullptr) return static_cast<T>(number);
        PyErr_Clear();
        throw_type_error(name, argument, value, "a number");
    } else {
        T number{};
        const auto index = PyIndex_Check(value.ptr()) ? nb::steal(PyNumber_Index(value.ptr())) : nb::object();
        if (!index.is_valid()) throw_type_error(name, argument, value, "an integer");
        if (nb::try_cast(index, number)) return number;
        throw InvalidArgument(fmt::format("{}: {} {}: expected a number of {}", name, argument, nb::repr(value).c_str(),
                                          to_string(dtype_of<T>)));
    }
}

// `call` gets a value of the window's type, and returns one.
template <class Call>
nb::object with_type_of(const Window& self, const char* name, const Call& call) {
    switch (const DType dtype = self.dtype()) {
        case DType::boolean: return nb::cast(call(bool{}));
        case DType::uint8: return nb::cast(call(std::uint8_t{}));
        case DType::uint16: return nb::cast(call(std::uint16_t{}));
        case DType::uint32: return nb::cast(call(std::uint32_t{}));
        case DType::uint64: return nb::cast(call(std::uint64_t{}));
        case DType::int8: return nb::cast(call(std::int8_t{}));
        case DType::int16: return nb::cast(call(std::int16_t{}));
        case DType::int32: return nb::cast(call(std::int32_t{}));
        case DType::int64: return nb::cast(call(std::int64_t{}));
        case DType::float32: return nb::cast(call(float{}));
        case DType::float64: return nb::cast(call(double{}));
        default:
            throw InvalidArgument(fmt::format(
                "{}: the window is of {}: expected bool, an integer type, float32 or float64; get_accumulate() takes "
                "all types",
                name, to_string(dtype)));
    }
}

nb::object fetch_by(const Window& self, const char* name, nb::handle value, nb::handle target, AccumulateOp op,
                    nb::handle offset, nb::handle timeout) {
    const int to = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    return with_type_of(self, name, [&]<class T>(T) {
        const T number = element_of<T>(value, name, "value");
        return without_gil([&] { return self.fetch_op<T>(number, to, op, access); });
    });
}
nb::object fetch_op(const Window& self, nb::handle value, nb::handle target, nb::handle op, nb::handle offset,
                    nb::handle timeout) {
    constexpr const char* name = "Window.fetch_op";
    return fetch_by(self, name, value, target, accumulate_op_of(op, name), offset, timeout);
}
nb::object fetch_add(const Window& self, nb::handle value, nb::handle target, nb::handle offset, nb::handle timeout) {
    return fetch_by(self, "Window.fetch_add", value, target, ReduceOp::Kind::sum, offset, timeout);
}
nb::object fetch(const Window& self, nb::handle target, nb::handle offset, nb::handle timeout) {
    return fetch_by(self, "Window.fetch", nb::cast(false), target, AccumulateOp::no_op, offset, timeout);
}
nb::object swap(const Window& self, nb::handle value, nb::handle target, nb::handle offset, nb::handle timeout) {
    return fetch_by(self, "Window.swap", value, target, AccumulateOp::replace, offset, timeout);
}
nb::tuple shape_of_rank(const Window& self, nb::handle rank) {
    nb::list sizes;
    for (const std::int64_t size : rank.is_none() ? self.shape() : self.shape(integer_of(rank, "Window.shape", "rank")))
        sizes.append(size);
    return nb::tuple(sizes);
}
nb::object compare_and_swap(const Window& self, nb::handle expected, nb::handle desired, nb::handle target,
                            nb::handle offset, nb::handle timeout) {
    constexpr const char* name = "Window.compare_and_swap";
    const int to = integer_of(target, name, "target");
    const WindowAccess access = access_of(offset, timeout, name);
    return with_type_of(self, name, [&]<class T>(T) {
        const T from = element_of<T>(expected, name, "expected"), into = element_of<T>(desired, name, "desired");
        return without_gil([&] { return self.compare_and_swap<T>(from, into, to, access); });
    });
}

void raise(const Window& self, nb::handle target, nb::handle signal, nb::handle value) {
    constexpr const char* name = "Window.signal";
    const int to = integer_of(target, name, "target"), index = integer_of(signal, name, "signal");
    const std::uint64_t added = count_of(value, 0, name, "value");
    without_gil([&] { self.signal(to, index, added); });
}
void wait_signal(const Window& self, nb::handle signal, nb::handle at_least, nb::handle timeout) {
    constexpr const char* name = "Window.wait_signal";
    const int index = integer_of(signal, name, "signal");
    const std::uint64_t wanted = count_of(at_least, 0, name, "at_least");
    const milliseconds limit = timeout_of(timeout, name);
    without_gil([&] { self.wait_signal(index, wanted, limit); });
}

void flush(const Window& self, nb::handle target, nb::handle timeout) {
    constexpr const char* name = "Window.flush";
    const milliseconds limit = timeout_of(timeout, name);
    if (target.is_none()) return without_gil([&] { self.flush(limit); });
    const int to = integer_of(target, name, "target");
    without_gil([&] { self.flush(to, limit); });
}

// After an exception the other ranks may not come to close it.
void leave(const Window& self, nb::handle type, nb::handle, nb::handle) {
    if (type.is_none()) without_gil([&] { self.close(); });
}

}  // namespace

void bind_windows(nb::module_& m) {
    const auto tensor = nb::arg("tensor"), target = nb::arg("target");
    const auto offset = [] { return nb::arg("offset") = 0; };
    const auto signal = [] { return nb::arg("signal") = 0; };
    const auto value = [] { return nb::arg("value") = 1; };
    const auto timeout = [] { return nb::arg("timeout") = nb::none(); };
    const auto op = [] { return nb::arg("op") = ReduceOp(ReduceOp::Kind::sum); };
    nb::class_<Window>(
        m, "Window",
        "Memory of each rank that the others of a group read and write by themselves, and signals of 64\n"
        "bits. All ranks make it together, with equal arguments: `shape` elements of `dtype` on each rank,\n"
        "all zero; the first dimension may differ between ranks, and be 0. Targets are ranks of the group, offsets "
        "count elements. The target need not call\n"
        "anything. A rank that has seen a signal sees the data of all puts before it. Errors: as the calls\n"
        "of the group; InvalidArgument for what does not fit, and for a target that has let go of its window\n"
        "without close(). In a `with` statement it is closed at the end.\n\n"
        "Example:\n"
        "    >>> me = dist.get_rank()\n"
        "    >>> with dist.Window(4, \"float32\") as window:\n"
        "    ...     window.put_signal(np.ones(2, np.float32), target=me, offset=1)\n"
        "    ...     window.wait_signal(0, at_least=1)\n"
        "    ...     print(window.local())\n"
        "    [0. 1. 1. 0.]")
        .def("__init__", &make,
             nb::sig(
                 "def __init__(self, shape: int | collections.abc.Sequence[int], dtype: str, group: ProcessGroup | "
                 "DeviceMesh | None = None, *, signals: int = 16, timeout: datetime.timedelta | None = None) -> None"),
             nb::arg("shape"), nb::arg("dtype"), nb::arg("group") = nb::none(), nb::kw_only(), nb::arg("signals") = 16,
             timeout())
        .def("shape", &shape_of_rank, nb::arg("rank") = nb::none(),
             nb::sig("def shape(self, rank: int | None = None) -> tuple[int, ...]"),
             "The shape of a rank's memory (None: this rank's).")
        .def_prop_ro("signals", &Window::signal_count, "How many signals each rank has.")
        .def(
            "local", [](const Window& self) { return to_numpy(self.local()); },
            nb::sig("def local(self) -> typing.Any"),
            "This rank's elements, as a NumPy array that shares the memory; symmetric memory for collectives.")
        .def("is_mapped", &Window::is_mapped, nb::arg("rank"),
             "Whether that rank shares memory with this one, so that map_remote() works.")
        .def(
            "map_remote", [](const Window& self, int rank) { return to_numpy(self.map_remote(rank)); }, nb::arg("rank"),
            nb::sig("def map_remote(self, rank: int) -> typing.Any"),
            "The elements of a rank of this host, as an array that shares them; InvalidArgument for other hosts.")
        .def("put", &put,
             nb::sig("def put(self, tensor: Array, target: int, offset: int = 0, *, timeout: datetime.timedelta | None "
                     "= None) -> None"),
             tensor, target, offset(), nb::kw_only(), timeout(),
             "Writes into the target's memory; returns when `tensor` may be written again.")
        .def("get", &get,
             nb::sig("def get(self, tensor: Array, target: int, offset: int = 0, *, timeout: datetime.timedelta | None "
                     "= None) -> None"),
             tensor, target, offset(), nb::kw_only(), timeout(),
             "Reads from the target into `tensor`, behind all earlier puts of this rank to it.")
        .def("put_signal", &put_signal,
             nb::sig("def put_signal(self, tensor: Array, target: int, offset: int = 0, signal: int = 0, value: int = "
                     "1, *, timeout: datetime.timedelta | None = None) -> None"),
             tensor, target, offset(), signal(), value(), nb::kw_only(), timeout(),
             "put(), then signal(): the signal says that the data are there.")
        .def("iput", &iput,
             nb::sig("def iput(self, tensor: Array, target: int, offset: int = 0, *, timeout: datetime.timedelta | "
                     "None = None) -> Work | None"),
             tensor, target, offset(), nb::kw_only(), timeout(),
             "put() without waiting: `tensor` may be written when the Work is complete.")
        .def("iget", &iget,
             nb::sig("def iget(self, tensor: Array, target: int, offset: int = 0, *, timeout: datetime.timedelta | "
                     "None = None) -> Work | None"),
             tensor, target, offset(), nb::kw_only(), timeout(),
             "get() without waiting: `tensor` has the elements when the Work is complete.")
        .def("iput_signal", &iput_signal,
             nb::sig("def iput_signal(self, tensor: Array, target: int, offset: int = 0, signal: int = 0, value: int = "
                     "1, *, timeout: datetime.timedelta | None = None) -> Work | None"),
             tensor, target, offset(), signal(), value(), nb::kw_only(), timeout(), "put_signal() without waiting.")
        .def("accumulate", &accumulate,
             nb::sig("def accumulate(self, tensor: Array, target: int, op: ReduceOp | RedOpType | "
                     "typing.Literal['replace'] = ..., offset: int = 0, *, timeout: datetime.timedelta | None "
                     "= None) -> None"),
             tensor, target, op(), offset(), nb::kw_only(), timeout(),
             "Combines the target's elements with `tensor`, each atomically: SUM, PRODUCT, MIN, MAX, BAND, BOR,\n"
             "BXOR, or \"replace\". Returns when `tensor` may be written again.\n\n"
             "Example:\n"
             "    >>> with dist.Window(2, \"float32\") as window:\n"
             "    ...     window.accumulate(np.array([1, 5], np.float32), dist.get_rank(), dist.ReduceOp.MAX)\n"
             "    ...     print(window.local())\n"
             "    [1. 5.]")
        .def("iaccumulate", &iaccumulate,
             nb::sig("def iaccumulate(self, tensor: Array, target: int, op: ReduceOp | RedOpType | "
                     "typing.Literal['replace'] = ..., offset: int = 0, *, timeout: datetime.timedelta | None "
                     "= None) -> Work | None"),
             tensor, target, op(), offset(), nb::kw_only(), timeout(), "accumulate() without waiting.")
        .def("get_accumulate", &get_accumulate,
             nb::sig("def get_accumulate(self, tensor: Array, before: Array, target: int, op: ReduceOp | RedOpType | "
                     "typing.Literal['replace', 'no_op'] = ..., offset: int = 0, *, timeout: "
                     "datetime.timedelta | None = None) -> None"),
             tensor, nb::arg("before"), target, op(), offset(), nb::kw_only(), timeout(),
             "accumulate(), and `before` gets what the elements were. \"no_op\" only reads them, atomically.")
        .def("iget_accumulate", &iget_accumulate,
             nb::sig("def iget_accumulate(self, tensor: Array, before: Array, target: int, op: ReduceOp | RedOpType | "
                     "typing.Literal['replace', 'no_op'] = ..., offset: int = 0, *, timeout: "
                     "datetime.timedelta | None = None) -> Work | None"),
             tensor, nb::arg("before"), target, op(), offset(), nb::kw_only(), timeout(),
             "get_accumulate() without waiting: `before` has the old values when the Work is complete.")
        .def("fetch_op", &fetch_op,
             nb::sig("def fetch_op(self, value: float, target: int, op: ReduceOp | RedOpType | "
                     "typing.Literal['replace', 'no_op'], offset: int = 0, *, timeout: datetime.timedelta | None = "
                     "None) -> typing.Any"),
             nb::arg("value"), target, nb::arg("op"), offset(), nb::kw_only(), timeout(),
             "Combines one element with a number, atomically; returns the old value, an int, a float or a bool.")
        .def("fetch_add", &fetch_add,
             nb::sig("def fetch_add(self, value: float, target: int, offset: int = 0, *, timeout: datetime.timedelta | "
                     "None = None) -> typing.Any"),
             nb::arg("value"), target, offset(), nb::kw_only(), timeout(),
             "Adds to one element, atomically; returns the old value.\n\n"
             "Example:\n"
             "    >>> with dist.Window(1, \"int64\") as counter:\n"
             "    ...     print(counter.fetch_add(5, dist.get_rank()), counter.fetch_add(1, dist.get_rank()))\n"
             "    0 5")
        .def("fetch", &fetch,
             nb::sig("def fetch(self, target: int, offset: int = 0, *, timeout: datetime.timedelta | None = None) -> "
                     "typing.Any"),
             target, offset(), nb::kw_only(), timeout(), "Reads one element atomically.")
        .def("swap", &swap,
             nb::sig("def swap(self, value: float, target: int, offset: int = 0, *, timeout: datetime.timedelta | "
                     "None = None) -> typing.Any"),
             nb::arg("value"), target, offset(), nb::kw_only(), timeout(),
             "Replaces one element, atomically; returns the old value.")
        .def("compare_and_swap", &compare_and_swap,
             nb::sig("def compare_and_swap(self, expected: float, desired: float, target: int, offset: int = 0, *, "
                     "timeout: datetime.timedelta | None = None) -> typing.Any"),
             nb::arg("expected"), nb::arg("desired"), target, offset(), nb::kw_only(), timeout(),
             "Replaces one element if it is equal to `expected`, bit by bit; returns the old value.\n\n"
             "Example:\n"
             "    >>> with dist.Window(1, \"int32\") as lock:\n"
             "    ...     me = dist.get_rank()\n"
             "    ...     print(lock.compare_and_swap(0, 7, me), lock.compare_and_swap(0, 9, me), lock.swap(0, me))\n"
             "    0 7 7")
        .def("signal", &raise, nb::sig("def signal(self, target: int, signal: int, value: int = 1) -> None"), target,
             nb::arg("signal"), value(),
             "Adds `value` to a signal of the target, behind all earlier puts to it; never beyond 2^64 - 1.")
        .def(
            "wait_signal", &wait_signal,
            nb::sig(
                "def wait_signal(self, signal: int, at_least: int, timeout: datetime.timedelta | None = None) -> None"),
            nb::arg("signal"), nb::arg("at_least"), timeout(),
            "Blocks until this rank's signal has at least this value. Timeout leaves the window as it is.")
        .def("read_signal", &Window::read_signal, nb::arg("signal"), "The value of this rank's signal, now.")
        .def("flush", &flush,
             nb::sig("def flush(self, target: int | None = None, timeout: datetime.timedelta | None = None) -> None"),
             nb::arg("target") = nb::none(), timeout(),
             "Returns when all calls of this rank to the target (None: to all) have taken effect there.")
        .def(
            "fence",
            [](const Window& self, nb::handle limit) {
                const milliseconds time = timeout_of(limit, "Window.fence");
                without_gil([&] { self.fence(time); });
            },
            timeout(), nb::sig("def fence(self, timeout: datetime.timedelta | None = None) -> None"),
            "All ranks call it: flush(), and a barrier.")
        .def(
            "close",
            [](const Window& self, nb::handle limit) {
                const milliseconds time = timeout_of(limit, "Window.close");
                without_gil([&] { self.close(time); });
            },
            timeout(), nb::sig("def close(self, timeout: datetime.timedelta | None = None) -> None"),
            "All ranks call it: a fence(), after which the window takes no calls.")
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Window"))
        .def("__exit__", &leave, nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"),
             nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace tutti::python
