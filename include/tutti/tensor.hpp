// Tensors: views that borrow, tensors that own.
//
// A view is a pointer, an element type, a shape, strides (in elements) and a device; it never owns. Anything
// contiguous converts to a view: std::vector, std::array, std::span, C arrays, Tensor.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/export.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct DLManagedTensor;

namespace tutti {

/// Where a tensor lives.
struct Device {
    enum class Type : std::uint8_t { cpu = 1, cuda = 2, rocm = 10, npu = 12, xpu = 14 };  // DLPack's numbers
    Type type = Type::cpu;
    int index = 0;
    friend bool operator==(const Device&, const Device&) = default;
};
TUTTI_API std::string to_string(Device device);                                     ///< "cuda:0"; "cpu"
TUTTI_API std::string_view name_of(Device::Type type) noexcept;                     ///< "cuda"
TUTTI_API std::optional<Device::Type> device_type(std::string_view name) noexcept;  ///< of such a name
/// The device of a text such as "cpu", "cuda", "cuda:1"; without an index, the first one. Throws InvalidArgument.
TUTTI_API Device device_from_string(std::string_view text);

/// A list of sizes or strides: inline up to four dimensions, on the heap beyond.
class TUTTI_API Extents {
 public:
    Extents() = default;
    Extents(std::initializer_list<std::int64_t> values) : Extents(std::span(values.begin(), values.size())) {}
    Extents(const std::vector<std::int64_t>& values) : Extents(std::span(values)) {}
    explicit Extents(std::span<const std::int64_t> values);
    static Extents of(std::int64_t value) {
        Extents e;
        e.size_ = 1;
        e.inline_[0] = value;
        return e;
    }

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    std::int64_t operator[](std::size_t i) const noexcept { return data()[i]; }
    const std::int64_t* data() const noexcept { return size_ <= inline_capacity ? inline_ : heap_.data(); }
    const std::int64_t* begin() const noexcept { return data(); }
    const std::int64_t* end() const noexcept { return data() + size_; }
    std::span<const std::int64_t> span() const noexcept { return {data(), size_}; }
    friend bool operator==(const Extents& a, const Extents& b) { return std::ranges::equal(a.span(), b.span()); }
    std::string to_string() const;  ///< "[2, 3]"

 private:
    static constexpr std::size_t inline_capacity = 4;
    std::size_t size_ = 0;
    std::int64_t inline_[inline_capacity] = {};
    std::vector<std::int64_t> heap_;
};

class Tensor;

namespace detail {
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;
}

/// A read-only view. Copying it copies no elements; the memory must outlive the view.
class TUTTI_API ConstTensorView {
 public:
    ConstTensorView() = default;  ///< an empty float32 vector

    /// `strides` in elements; empty means contiguous, row-major. Throws InvalidArgument for negative sizes,
    /// strides whose number differs from that of the sizes, or null data with elements.
    ConstTensorView(const void* data, Extents shape, DType dtype, Extents strides = {}, Device device = {});

    /// Any contiguous range of an element type, as a vector: [size].
    template <detail::ElementRange R>
    requires(!std::derived_from<std::remove_cvref_t<R>, ConstTensorView> &&
             !std::derived_from<std::remove_cvref_t<R>, Tensor>)
        ConstTensorView(const R& range)  // NOLINT(google-explicit-constructor): spans convert implicitly too
        : data_(const_cast<void*>(static_cast<const void*>(std::ranges::data(range)))),
          dtype_(dtype_of<std::ranges::range_value_t<R>>),
          shape_(Extents::of(static_cast<std::int64_t>(std::ranges::size(range)))),
          element_count_(static_cast<std::int64_t>(std::ranges::size(range))) {}
    ConstTensorView(const Tensor& tensor);  // NOLINT(google-explicit-constructor)

    const void* data() const noexcept { return data_; }
    DType dtype() const noexcept { return dtype_; }
    const Extents& shape() const noexcept { return shape_; }
    /// In elements; empty when contiguous().
    const Extents& strides() const noexcept { return strides_; }
    Device device() const noexcept { return device_; }
    std::int64_t element_count() const noexcept { return element_count_; }
    std::size_t byte_count() const noexcept { return static_cast<std::size_t>(element_count_) * size_of(dtype_); }
    /// Whether the elements lie one after the other, in row-major order.
    bool contiguous() const noexcept { return strides_.empty(); }
    std::string to_string() const;  ///< "float32[2, 3]"

 protected:
    void* data_ = nullptr;
    DType dtype_ = DType::float32;
    Extents shape_ = Extents::of(0);
    Extents strides_;
    Device device_;
    std::int64_t element_count_ = 0;
};

/// A view through which elements may be written.
class TUTTI_API TensorView : public ConstTensorView {
 public:
    TensorView() = default;
    TensorView(void* data, Extents shape, DType dtype, Extents strides = {}, Device device = {})
        : ConstTensorView(data, std::move(shape), dtype, std::move(strides), device) {}

    template <detail::ElementRange R>
    requires(!std::derived_from<std::remove_cvref_t<R>, ConstTensorView> &&
             !std::derived_from<std::remove_cvref_t<R>, Tensor> &&
             !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>> &&
             (std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>))
        TensorView(R&& range)  // NOLINT(google-explicit-constructor)
        : ConstTensorView(static_cast<const std::remove_reference_t<R>&>(range)) {}
    TensorView(Tensor& tensor);  // NOLINT(google-explicit-constructor)
    TensorView(Tensor&& tensor) = delete;

    void* data() const noexcept { return data_; }
};

/// A view of `data` with a given shape: view(p, {rows, columns}), view(p, {n}, tutti::bfloat16).
template <Element T>
TensorView view(T* data, Extents shape) {
    return TensorView(data, std::move(shape), dtype_of<T>);
}
template <Element T>
ConstTensorView view(const T* data, Extents shape) {
    return ConstTensorView(data, std::move(shape), dtype_of<T>);
}
inline TensorView view(void* data, Extents shape, DType dtype) {
    return TensorView(data, std::move(shape), dtype);
}
inline ConstTensorView view(const void* data, Extents shape, DType dtype) {
    return ConstTensorView(data, std::move(shape), dtype);
}

/// A tensor that owns (or shares) its memory. Copying the handle shares the memory; clone() copies it.
class TUTTI_API Tensor {
 public:
    Tensor() = default;  ///< no elements, float32
    /// Wraps memory that `owner` keeps alive.
    Tensor(TensorView view, std::shared_ptr<void> owner);

    template <Element T>
    T* data() const {
        check_dtype(dtype_of<T>);
        return static_cast<T*>(view_.data());
    }
    void* raw_data() const noexcept { return view_.data(); }
    template <Element T>
    std::span<T> span() const {
        return {data<T>(), static_cast<std::size_t>(element_count())};
    }
    const TensorView& view() const noexcept { return view_; }
    DType dtype() const noexcept { return view_.dtype(); }
    const Extents& shape() const noexcept { return view_.shape(); }
    Device device() const noexcept { return view_.device(); }
    std::int64_t element_count() const noexcept { return view_.element_count(); }
    std::size_t byte_count() const noexcept { return view_.byte_count(); }
    Tensor clone() const;  ///< a contiguous copy, of a tensor in host memory

    /// Takes over a DLPack tensor; its deleter runs when the last handle goes. Host memory that a device can read too
    /// (kDLCUDAHost, kDLROCMHost) is host memory, managed memory is CUDA's, kDLExtDev Ascend's.
    /// Throws InvalidArgument for devices or types that tutti does not know.
    static Tensor from_dlpack(DLManagedTensor* tensor);
    /// A DLPack tensor that shares this memory; the receiver calls its deleter.
    DLManagedTensor* to_dlpack() const;

 private:
    void check_dtype(DType wanted) const;
    TensorView view_;
    std::shared_ptr<void> owner_;
};

/// New tensors in host memory, 64-byte aligned; those of 128 KB and more are aligned to huge pages (2 MiB), and reach
/// to the end of their last one. Untouched pages take no memory.
TUTTI_API Tensor empty(DType dtype, Extents shape);
TUTTI_API Tensor zeros(DType dtype, Extents shape);
/// A one-dimensional tensor with these values.
template <Element T>
Tensor tensor(std::initializer_list<T> values) {
    Tensor result = empty(dtype_of<T>, Extents::of(static_cast<std::int64_t>(values.size())));
    std::copy(values.begin(), values.end(), result.template data<T>());
    return result;
}

/// Copies `from` into `to`, element by element in row-major order: equal dtype and element count, any shapes and any
/// strides on either side (negative ones too; 0 repeats an element of `from`). They may overlap only where both are
/// contiguous. Throws InvalidArgument, also for tensors outside host memory.
TUTTI_API void copy(TensorView to, ConstTensorView from);

}  // namespace tutti
