// Arrays: what Python programs have instead of TensorView: NumPy arrays, anything with the buffer protocol or DLPack.
//
// Threads: those that hold the interpreter's lock; the views may be used without it.
#pragma once

#include <tutti/tensor.hpp>

#include "python.hpp"

#include <vector>

namespace tutti::python {

/// The memory of a Python object, which cannot go away while this lives. Moving it keeps the view valid.
///
/// NumPy arrays, also of ml_dtypes' types; objects with the buffer protocol (bytearray, memoryview, array.array);
/// objects with __dlpack__ (PyTorch's tensors, which may require a gradient; CuPy, JAX). Any strides.
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

 private:
    bool take_buffer(nb::handle object, Access access, const char* operation, const char* argument);
    bool take_typed_array(nb::handle object, Access access, const char* operation, const char* argument);
    bool take_dlpack(nb::handle object, const char* operation, const char* argument);

    TensorView view_;
    Py_buffer buffer_{};
    bool has_buffer_ = false;
    Tensor shared_;  // a DLPack tensor
};

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
/// Where a tensor lives, from "cpu", "cuda:1", or an object that prints as such (torch.device).
Device device_of(nb::handle device, const char* operation);

void bind_arrays(nb::module_& m);

}  // namespace tutti::python
