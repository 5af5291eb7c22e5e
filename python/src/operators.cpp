#include "operators.hpp"

#include "arrays.hpp"
#include "device_arrays.hpp"
#include "errors.hpp"
#include "work.hpp"

#include <tutti/error.hpp>

#include <nanobind/stl/string.h>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace tutti::python {
namespace {

// A call of a function of Python's costs as much as some thousand additions.
constexpr std::size_t block_bytes_of_python = std::size_t{1} << 20;

nb::object numpy() {
    return nb::module_::import_("numpy");
}

/// What the elements are: NumPy's type, and the type of the tensors that hold them.
struct ElementType {
    nb::object numpy_type;
    std::size_t bytes = 0;
    DType dtype = DType::uint8;
};

ElementType type_of(nb::handle dtype) {
    ElementType type;
    try {
        type.numpy_type = numpy().attr("dtype")(dtype);
    } catch (nb::python_error& error) {
        throw InvalidArgument(fmt::format("ReduceOp.of: dtype: {}: expected what numpy.dtype takes", error.what()));
    }
    type.bytes = nb::cast<std::size_t>(type.numpy_type.attr("itemsize"));
    if (nb::cast<bool>(type.numpy_type.attr("hasobject")))
        throw InvalidArgument("ReduceOp.of: dtype holds Python's objects: expected values that travel as bytes");
    try {
        type.dtype = dtype_from_string(nb::cast<std::string>(type.numpy_type.attr("name")));
    } catch (const InvalidArgument&) {  // a structure, or another type that tensors do not have
    }
    return type;
}

/// A function of Python's, as long as the operator lives.
struct PythonFunction {
    PyObject* function = nullptr;
    PyObject* numpy_type = nullptr;
    std::size_t element_bytes = 0;
};

// inout = function(in, inout). With the interpreter's lock.
void apply(const PythonFunction& f, const void* in, void* inout, std::size_t count) {
    const auto array_at = [&](const void* at) {
        const Extents bytes = Extents::of(static_cast<std::int64_t>(count * f.element_bytes));
        return to_array(TensorView(const_cast<void*>(at), bytes, uint8)).attr("view")(nb::handle(f.numpy_type));
    };
    nb::object left = array_at(in), right = array_at(inout);
    left.attr("setflags")(nb::arg("write") = false);
    const nb::object result = nb::handle(f.function)(left, right);
    const nb::object array = numpy().attr("asarray")(result);
    const nb::object shape = array.attr("shape"), expected = right.attr("shape");
    if (!shape.equal(expected)) {
        throw std::runtime_error(fmt::format("it has returned an array of shape {}: expected {}, as its arguments have",
                                             nb::cast<std::string>(nb::str(shape)),
                                             nb::cast<std::string>(nb::str(expected))));
    }
    numpy().attr("copyto")(right, array, nb::arg("casting") = "same_kind");
}

void run_python(const void* in, void* inout, std::size_t count, void* context) {
    std::string failure;
    const bool ran = with_gil([&] {
        try {
            apply(*static_cast<const PythonFunction*>(context), in, inout, count);
        } catch (const nb::python_error& error) {  // which goes with the lock
            failure = words_of(error);
        } catch (const std::exception& error) {
            failure = error.what();
        }
    });
    if (!ran) throw std::runtime_error("the interpreter has ended");
    if (!failure.empty()) throw std::runtime_error(failure);
}

void destroy_python(void* context) {
    auto* const f = static_cast<PythonFunction*>(context);
    with_gil([f] {  // else they end with the process
        Py_DECREF(f->function);
        Py_DECREF(f->numpy_type);
    });
    delete f;
}

// The address of a compiled function; null: it is one of Python's.
void* address_of(nb::handle function) {
    nb::object number = nb::borrow(function);
    if (nb::hasattr(function, "address")) {
        number = function.attr("address");
    } else if (nb::isinstance(function, nb::module_::import_("ctypes").attr("_CFuncPtr"))) {
        const nb::object ctypes = nb::module_::import_("ctypes");
        number = ctypes.attr("cast")(function, ctypes.attr("c_void_p")).attr("value");
    }
    if (!PyLong_Check(number.ptr())) return nullptr;
    void* const address = PyLong_AsVoidPtr(number.ptr());
    if (address == nullptr) {
        PyErr_Clear();
        throw InvalidArgument("ReduceOp.of: the address 0: expected that of a function");
    }
    return address;
}

// ---- MINLOC and MAXLOC

/// Where value and index lie in a pair.
struct PairLayout {
    std::size_t bytes = 0, value = 0, index = 0;
};

template <class T, class Index, class Before>
void locate(const void* in, void* inout, std::size_t count, void* context) {
    const auto& layout = *static_cast<const PairLayout*>(context);
    const auto load = [&](const std::byte* at) {
        ValueIndex<T, Index> pair;
        std::memcpy(&pair.value, at + layout.value, sizeof(T));
        std::memcpy(&pair.index, at + layout.index, sizeof(Index));
        return pair;
    };
    const auto* left = static_cast<const std::byte*>(in);
    auto* right = static_cast<std::byte*>(inout);
    for (std::size_t i = 0; i < count; ++i, left += layout.bytes, right += layout.bytes) {
        if (!detail::is_first<Before>(load(right), load(left))) std::memcpy(right, left, layout.bytes);
    }
}

template <class T, class Index>
OperatorFunction locator(bool greatest) {
    return greatest ? &locate<T, Index, std::greater<>> : &locate<T, Index, std::less<>>;
}
template <class Index>
OperatorFunction locator_of(std::string_view value, bool greatest) {
    if (value == "float64") return locator<double, Index>(greatest);
    if (value == "float32") return locator<float, Index>(greatest);
    if (value == "int64") return locator<std::int64_t, Index>(greatest);
    if (value == "int32") return locator<std::int32_t, Index>(greatest);
    if (value == "uint64") return locator<std::uint64_t, Index>(greatest);
    if (value == "uint32") return locator<std::uint32_t, Index>(greatest);
    return nullptr;
}

}  // namespace

ReduceOp operator_of(nb::handle function, nb::handle dtype, bool commutative, const std::string& name) {
    const ElementType type = type_of(dtype);
    const OperatorOptions options{.commutative = commutative, .name = name};
    if (void* const address = address_of(function))
        return ReduceOp::of(reinterpret_cast<OperatorFunction>(address), nullptr, type.bytes, type.dtype, options);
    if (!PyCallable_Check(function.ptr()))
        throw_type_error("ReduceOp.of", "f", function,
                         "a function of two arrays, or a compiled one: its address, a ctypes "
                         "function, or a numba.cfunc");
    auto* const kept = new PythonFunction{nb::borrow(function).release().ptr(),
                                          nb::object(type.numpy_type).release().ptr(), type.bytes};
    return {detail::OperatorParts{.function = &run_python,
                                  .context = kept,
                                  .destroy = &destroy_python,
                                  .element_bytes = type.bytes,
                                  .dtype = type.dtype,
                                  .block_bytes = block_bytes_of_python},
            options};
}

ReduceOp for_array(const ReduceOp& op, nb::handle array, const char* operation) {
    if (!is_loc_of_any(op)) return op;
    const bool greatest = op == max_loc_of_any;
    const char* const name = greatest ? "MAXLOC" : "MINLOC";
    nb::object one = nb::borrow(array);
    if (PyList_Check(one.ptr()) || PyTuple_Check(one.ptr())) one = nb::len(one) > 0 ? nb::object(one[0]) : nb::none();
    const nb::object type = nb::getattr(one, "dtype", nb::none());
    const nb::object names = nb::getattr(type, "names", nb::none());
    OperatorFunction function = nullptr;
    auto* const layout = new PairLayout;
    const auto give_up = [&] {
        delete layout;
        throw InvalidArgument(
            fmt::format("{}: op {}: expected arrays of a structure of two fields: a number (float64, float32, int64, "
                        "int32, uint64, "
                        "uint32) and an index (int64, int32); got {}",
                        operation, name, type.is_none() ? class_name(one) : nb::cast<std::string>(nb::str(type))));
    };
    if (names.is_none() || nb::len(names) != 2) give_up();
    const auto field = [&](int i) {  // its type, and where it begins
        const nb::object found = type.attr("fields")[names[i]];
        return std::pair(nb::cast<std::string>(found[0].attr("name")), nb::cast<std::size_t>(found[1]));
    };
    const auto [value, value_at] = field(0);
    const auto [index, index_at] = field(1);
    layout->bytes = nb::cast<std::size_t>(type.attr("itemsize"));
    layout->value = value_at;
    layout->index = index_at;
    if (index == "int64") function = locator_of<std::int64_t>(value, greatest);
    if (index == "int32") function = locator_of<std::int32_t>(value, greatest);
    const bool is_native = nb::cast<bool>(type.attr("isnative"));
    if (function == nullptr || !is_native) give_up();
    return {detail::OperatorParts{.function = function,
                                  .context = layout,
                                  .destroy = [](void* context) { delete static_cast<PairLayout*>(context); },
                                  .element_bytes = layout->bytes},
            {.name = greatest ? "max_loc" : "min_loc"}};
}

}  // namespace tutti::python
