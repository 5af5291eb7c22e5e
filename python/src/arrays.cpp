#include "arrays.hpp"

#include "errors.hpp"

#include <tutti/error.hpp>

#include <dlpack/dlpack.h>
#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::python {
namespace {

constexpr const char* expected_array =
    "a NumPy array, as numpy.array makes of lists and numbers, or an object with the buffer protocol or __dlpack__";

std::optional<DType> integer_dtype_of(Py_ssize_t bytes, bool is_signed) {
    switch (bytes) {
        case 1: return is_signed ? int8 : uint8;
        case 2: return is_signed ? int16 : uint16;
        case 4: return is_signed ? int32 : uint32;
        case 8: return is_signed ? int64 : uint64;
        default: return std::nullopt;
    }
}

// The element type of a buffer: the struct module's letters; the item size gives their width.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t item_bytes) {
    std::string_view letters = format == nullptr ? "B" : format;
    if (!letters.empty() && (letters[0] == '@' || letters[0] == '=' || letters[0] == '<')) letters.remove_prefix(1);
    if (letters.size() == 2 && letters[0] == 'Z') {
        if (letters[1] == 'f') return complex64;
        if (letters[1] == 'd') return complex128;
        return std::nullopt;
    }
    if (letters.size() != 1) return std::nullopt;
    switch (letters[0]) {
        case '?': return boolean;
        case 'e': return float16;
        case 'f': return float32;
        case 'd': return float64;
        case 'b':
        case 'h':
        case 'i':
        case 'l':
        case 'q':
        case 'n': return integer_dtype_of(item_bytes, true);
        case 'B':
        case 'H':
        case 'I':
        case 'L':
        case 'Q':
        case 'N': return integer_dtype_of(item_bytes, false);
        default: return std::nullopt;
    }
}

Extents element_strides(const Py_buffer& buffer, const char* operation, const char* argument) {
    if (buffer.strides == nullptr || PyBuffer_IsContiguous(&buffer, 'C')) return {};
    std::int64_t strides[PyBUF_MAX_NDIM];
    for (int i = 0; i < buffer.ndim; ++i) {
        if (buffer.strides[i] % buffer.itemsize != 0) {
            throw InvalidArgument(
                fmt::format("{}: {} has a stride of {} bytes: expected a multiple of its elements' {}", operation,
                            argument, buffer.strides[i], buffer.itemsize));
        }
        strides[i] = buffer.strides[i] / buffer.itemsize;
    }
    return Extents(std::span<const std::int64_t>(strides, static_cast<std::size_t>(buffer.ndim)));
}

Extents shape_of(const Py_buffer& buffer) {
    static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
    if (buffer.ndim == 1) return Extents::of(buffer.shape[0]);
    return Extents(
        std::span(reinterpret_cast<const std::int64_t*>(buffer.shape), static_cast<std::size_t>(buffer.ndim)));
}

}  // namespace

Array::Array(nb::handle object, Access access, const char* operation, const char* argument) {
    if (PyObject_CheckBuffer(object.ptr()) && take_buffer(object, access, operation, argument)) return;
    if (take_typed_array(object, access, operation, argument)) return;
    if (take_dlpack(object, operation, argument)) return;
    throw_type_error(operation, argument, object, expected_array);
}

bool Array::take_buffer(nb::handle object, Access access, const char* operation, const char* argument) {
    const int flags = access == Access::write ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
        PyErr_Clear();
        if (access == Access::read) return false;
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) {
            PyErr_Clear();
            return false;
        }
        PyBuffer_Release(&buffer_);
        throw InvalidArgument(fmt::format(
            "{}: {} is read-only: expected an array that can be written, such as its copy()", operation, argument));
    }
    has_buffer_ = true;
    const auto dtype = dtype_of_format(buffer_.format, buffer_.itemsize);
    if (!dtype && WithStructures::bytes() > 0) {
        take_structures(operation, argument);
        return true;
    }
    if (!dtype) {
        throw InvalidArgument(
            fmt::format("{}: {} has elements of format '{}': expected numbers of this machine's byte "
                        "order, of 1 to 8 bytes, complex ones up to 16",
                        operation, argument, buffer_.format));
    }
    view_ = TensorView(buffer_.len > 0 ? buffer_.buf : nullptr, shape_of(buffer_), *dtype,
                       element_strides(buffer_, operation, argument));
    return true;
}

void Array::take_structures(const char* operation, const char* argument) {
    const auto bytes = static_cast<std::int64_t>(buffer_.itemsize);
    if (static_cast<std::size_t>(bytes) != WithStructures::bytes()) {
        throw InvalidArgument(fmt::format("{}: {} has elements of {} bytes: expected {}, the element size of op",
                                          operation, argument, bytes, WithStructures::bytes()));
    }
    std::vector<std::int64_t> shape(buffer_.shape, buffer_.shape + buffer_.ndim), strides;
    shape.push_back(bytes);
    if (buffer_.strides != nullptr && !PyBuffer_IsContiguous(&buffer_, 'C')) {
        strides.assign(buffer_.strides, buffer_.strides + buffer_.ndim);
        strides.push_back(1);
    }
    view_ = TensorView(buffer_.len > 0 ? buffer_.buf : nullptr, Extents(shape), uint8, Extents(strides));
}

// ml_dtypes' arrays: NumPy does not export their elements, but those of a view as integers of their size.
bool Array::take_typed_array(nb::handle object, Access access, const char* operation, const char* argument) {
    if (!nb::hasattr(object, "view") || !nb::hasattr(object, "dtype") || !nb::hasattr(object, "__array_interface__")) {
        return false;
    }
    const nb::object type = object.attr("dtype");
    const auto name = nb::cast<std::string>(nb::str(nb::getattr(type, "name", nb::str(""))));
    DType dtype;
    try {
        dtype = dtype_from_string(name);
    } catch (const InvalidArgument& unknown) {
        throw InvalidArgument(fmt::format("{}: {} is an array of {}: {}", operation, argument, name, unknown.what()));
    }
    if (!is_low_precision(dtype)) return false;
    const nb::object bits = object.attr("view")(size_of(dtype) == 1 ? "uint8" : "uint16");
    if (!take_buffer(bits, access, operation, argument)) return false;
    view_ = TensorView(view_.data(), view_.shape(), dtype, view_.strides());
    return true;
}

bool Array::take_dlpack(nb::handle object, const char* operation, const char* argument) {
    if (!nb::hasattr(object, "__dlpack__")) return false;
    nb::object source = nb::borrow(object);
    if (nb::hasattr(object, "requires_grad") && nb::cast<bool>(nb::bool_(object.attr("requires_grad")))) {
        source = object.attr("detach")();
    }
    nb::object capsule;
    try {
        capsule = dlpack_of(source);
    } catch (nb::python_error& error) {
        throw InvalidArgument(fmt::format("{}: {} of type {} gives no DLPack tensor: {}", operation, argument,
                                          class_name(object), nb::cast<std::string>(nb::str(error.value()))));
    }
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    if (managed == nullptr) throw nb::python_error();
    try {
        shared_ = Tensor::from_dlpack(managed);
    } catch (const InvalidArgument& unknown) {
        throw InvalidArgument(fmt::format("{}: {}: {}", operation, argument, unknown.what()));
    }
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    view_ = shared_.view();
    return true;
}

nb::object Array::dlpack_of(nb::handle object) {
    // PyTorch's tensors say without the detour by __dlpack_device__ that they are in host memory.
    const bool is_cpu = nb::hasattr(object, "is_cpu") && object.attr("is_cpu").is(nb::handle(Py_True));
    if (is_cpu || !nb::hasattr(object, "__dlpack_device__")) return object.attr("__dlpack__")();
    const nb::object device = object.attr("__dlpack_device__")();
    const nb::int_ type(device[0]);
    if (nb::cast<int>(type) == kDLCPU) return object.attr("__dlpack__")();
    const nb::object exported =
        nb::module_::import_("tutti._streams").attr("export")(object, type, nb::int_(device[1]));
    stream_ = exported[1];
    return exported[0];
}

InStream::InStream(const StreamSource& source) {
    if (source.device == Device::Type::cpu) return;
    Stream stream;
    if (source.current.is_valid() && !source.current.is_none())
        stream.handle = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(source.current()));
    scopes_.push_back(std::make_unique<CurrentStream>(source.device, stream));
}

InStream::InStream(Ambient) {
    for (const nb::handle one : nb::module_::import_("tutti._streams").attr("ambient")()) {
        const auto device = device_type(nb::cast<std::string>(one[0]));
        const Stream stream{reinterpret_cast<void*>(nb::cast<std::uintptr_t>(one[1]))};
        if (device) scopes_.push_back(std::make_unique<CurrentStream>(*device, stream));
    }
}

StreamSource source_of(const std::vector<Array>& arrays) {
    for (const Array& array : arrays) {
        if (array.view().device().type != Device::Type::cpu) return array.source();
    }
    return {};
}

Array::Array(Array&& other) noexcept
    : view_(std::move(other.view_)),
      buffer_(other.buffer_),
      has_buffer_(std::exchange(other.has_buffer_, false)),
      shared_(std::move(other.shared_)),
      stream_(std::move(other.stream_)) {}

Array& Array::operator=(Array&& other) noexcept {
    std::swap(view_, other.view_);
    std::swap(buffer_, other.buffer_);
    std::swap(has_buffer_, other.has_buffer_);
    std::swap(shared_, other.shared_);
    std::swap(stream_, other.stream_);
    return *this;
}

Array::~Array() {
    if (has_buffer_) PyBuffer_Release(&buffer_);
}

ArrayList::ArrayList(nb::handle list, Array::Access access, const char* operation, const char* argument) {
    if (list.is_none()) return;
    if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr())) {
        throw_type_error(
            operation, argument, list,
            "a list of arrays; all_gather_into_tensor, reduce_scatter_tensor and all_to_all_single take one");
    }
    arrays.reserve(nb::len(list));
    for (const nb::handle item : nb::borrow<nb::sequence>(list)) {
        arrays.emplace_back(item, access, operation, fmt::format("{}[{}]", argument, arrays.size()).c_str());
    }
}

std::vector<TensorView> ArrayList::views() const {
    std::vector<TensorView> result;
    result.reserve(arrays.size());
    for (const Array& array : arrays) result.push_back(array.view());
    return result;
}

std::vector<ConstTensorView> ArrayList::const_views() const {
    std::vector<ConstTensorView> result;
    result.reserve(arrays.size());
    for (const Array& array : arrays) result.emplace_back(array.view());
    return result;
}

nb::object to_numpy(const Tensor& tensor) {
    const DType dtype = tensor.dtype();
    const auto numpy_dtype = [&]() -> nb::dlpack::dtype {
        const auto bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
        if (dtype == boolean) return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool), 8, 1};
        if (is_complex(dtype)) return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Complex), bits, 1};
        if (dtype == float16 || dtype == float32 || dtype == float64) {
            return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), bits, 1};
        }
        const bool is_signed = dtype >= int8 && dtype <= int64;
        return {static_cast<std::uint8_t>(is_signed ? nb::dlpack::dtype_code::Int : nb::dlpack::dtype_code::UInt), bits,
                1};
    }();
    auto keep = std::make_unique<Tensor>(tensor);
    const nb::capsule owner(keep.get(), [](void* pointer) noexcept { delete static_cast<Tensor*>(pointer); });
    const Tensor& kept = *keep.release();
    std::vector<std::size_t> shape;
    for (const std::int64_t size : kept.shape()) shape.push_back(static_cast<std::size_t>(size));
    const Extents& strides = kept.view().strides();
    const nb::ndarray<nb::numpy> array(kept.raw_data(), shape.size(), shape.data(), owner,
                                       strides.empty() ? nullptr : strides.data(), numpy_dtype);
    nb::object result = nb::cast(array);
    if (dtype == int64 || dtype == uint64) {  // what NumPy takes for `long long` is not numpy.int64, but of its size
        result = result.attr("view")(std::string(to_string(dtype)).c_str());
    }
    if (is_low_precision(dtype) && dtype != float16) {
        const nb::object types = nb::module_::import_("ml_dtypes");
        result = result.attr("view")(types.attr(std::string(to_string(dtype)).c_str()));
    }
    return result;
}

namespace {
bool is_rocm() {
    return nb::cast<bool>(nb::module_::import_("tutti._streams").attr("is_rocm")());
}
}  // namespace

std::string kind_of_device(const std::string& kind) {
    return kind == "cuda" && is_rocm() ? "rocm" : kind;
}

Device device_of(nb::handle device, const char* operation) {
    Device result;
    try {
        result = device_from_string(nb::cast<std::string>(nb::str(device)));
    } catch (const InvalidArgument& unknown) {
        throw InvalidArgument(fmt::format("{}: {}", operation, unknown.what()));
    }
    if (result.type == Device::Type::cuda && is_rocm()) result.type = Device::Type::rocm;
    return result;
}

}  // namespace tutti::python
