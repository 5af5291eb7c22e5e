// Arrays: the objects that Python programs pass as TensorViews: NumPy arrays, anything with the buffer protocol or
// DLPack.
//
// Threads: those that hold the interpreter's lock; the views may be used without it.
#pragma once

#include <tutti/stream.hpp>
#include <tutti/tensor.hpp>

#include "python.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::python {

/// The current stream of the library of a tensor on a device. Host memory has none.
struct StreamSource {
    Device::Type device = Device::Type::cpu;
    nb::object current;  ///< a function that returns its current stream; None: the device's default stream
};

/// While it lives, this thread's operations are in a library's current stream. The constructor needs the interpreter's
/// lock.
class InStream {
 public:
    explicit InStream(const StreamSource& source);
    /// For calls without arrays: the current streams of the libraries that have begun to use a device.
    struct Ambient {};
    explicit InStream(Ambient where);

 private:
    std::vector<std::unique_ptr<CurrentStream>> scopes_;
};

/// The memory of a Python object, which cannot go away while this lives. Moving it keeps the view valid.
///
/// NumPy arrays, also of ml_dtypes' types; objects with the buffer protocol (bytearray, memoryview, array.array);
/// objects with __dlpack__ (PyTorch's tensors, which may require a gradient; CuPy, JAX), also on devices. Any strides.
class Array {
 public:
    enum class Access { read, write };

    Array() = default;
    /// `operation` and `argument` are for messages: "all_reduce: tensor ...".
    Array(nb::handle object, Access access, const char* operation, const char* argument);
    Array(Array&& other) noexcept;
    Array& operator=(Array&& other) noexcept;
    ~Array();

    const TensorView& view() const noexcept { return view_; }
    StreamSource source() const { return {view_.device().type, stream_}; }

 private:
    bool take_buffer(nb::handle object, Access access, const char* operation, const char* argument);
    void take_structures(const char* operation, const char* argument);
    bool take_typed_array(nb::handle object, Access access, const char* operation, const char* argument);
    bool take_dlpack(nb::handle object, const char* operation, const char* argument);
    nb::object dlpack_of(nb::handle object);

    TensorView view_;
    Py_buffer buffer_{};
    bool has_buffer_ = false;
    Tensor shared_;      // a DLPack tensor
    nb::object stream_;  // StreamSource::current
};

/// While it lives, this thread's Arrays may have elements that tensors do not have, such as NumPy's structures, of
/// `element_bytes` bytes: their views are of uint8, with the bytes of an element as another dimension. 0: they may not.
class WithStructures {
 public:
    explicit WithStructures(std::size_t element_bytes) : before_(std::exchange(bytes_, element_bytes)) {}
    ~WithStructures() { bytes_ = before_; }
    WithStructures(const WithStructures&) = delete;
    WithStructures& operator=(const WithStructures&) = delete;
    static std::size_t bytes() noexcept { return bytes_; }

 private:
    inline static thread_local std::size_t bytes_ = 0;
    std::size_t before_;
};

/// The source of the first array on a device.
StreamSource source_of(const std::vector<Array>& arrays);

/// A list or tuple of arrays, for all_gather and its kin. None: empty.
struct ArrayList {
    std::vector<Array> arrays;

    ArrayList() = default;
    ArrayList(nb::handle list, Array::Access access, const char* operation, const char* argument);
    std::vector<TensorView> views() const;
    std::vector<ConstTensorView> const_views() const;
};

/// A new NumPy array over the tensor's memory, which it keeps alive; ml_dtypes' types where NumPy has none.
nb::object to_numpy(const Tensor& tensor);
/// The device from "cpu", "cuda:1", or an object that prints as such (torch.device). "cuda" is ROCm if the process has
/// PyTorch and that is built for it.
Device device_of(nb::handle device, const char* operation);
/// The same for a kind of device alone, as meshes have; it is not checked.
std::string kind_of_device(const std::string& kind);

void bind_arrays(nb::module_& m);

}  // namespace tutti::python
