// Tensors: views that borrow, tensors that own.
//
// A view is a pointer, an element type, a shape, strides (in elements) and a device; it never owns. Anything
// contiguous converts to a view: std::vector, std::array, std::span, C arrays, Tensor; a variable of an element type is
// a tensor of one element. For other ranges, pointers and numbers a compile error says why they do not convert.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/export.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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
TUTTI_API std::optional<Device::Type> device_type(std::string_view name) noexcept;  ///< inverse of name_of
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

class ConstTensorView;
class TensorView;
class Tensor;

namespace detail {
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;
template <class T>
concept IsTensor =
    std::derived_from<std::remove_cvref_t<T>, ConstTensorView> || std::derived_from<std::remove_cvref_t<T>, Tensor>;

// T is what a parameter T&& deduces: X& for a variable, X for a temporary.
template <class T>
concept OneElement = Element<std::remove_cvref_t<T>> && std::is_lvalue_reference_v<T>;
template <class T>
concept Readable = !IsTensor<T> && (ElementRange<T> || OneElement<T>);
template <class T>
constexpr bool is_const() {
    if constexpr (std::ranges::range<T>)
        return std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<T>>>;
    else
        return std::is_const_v<std::remove_reference_t<T>> || std::same_as<std::remove_cvref_t<T>, ConstTensorView>;
}
template <class T>
concept Writable = Readable<T> && !is_const<T>() && (std::is_lvalue_reference_v<T> || std::ranges::borrowed_range<T>);

/// A type that a caller might take for elements. If it is not Readable (or Writable), a constructor of its own refuses
/// it by a static_assert with an explanation; so std::is_convertible is true for it.
template <class T>
concept LooksLikeElements = std::ranges::range<T> || std::is_arithmetic_v<std::remove_cvref_t<T>> ||
    std::is_enum_v<std::remove_cvref_t<T>> || std::is_pointer_v<std::remove_cvref_t<T>>;
template <class T>
concept Unreadable = !IsTensor<T> && !Readable<T> && LooksLikeElements<T>;
template <class T>
concept UnwritableTensor =
    IsTensor<T> && !std::derived_from<std::remove_cvref_t<T>, TensorView> &&
    (!std::derived_from<std::remove_cvref_t<T>, Tensor> || !std::is_lvalue_reference_v<T> || is_const<T>());
template <class T>
concept Unwritable = UnwritableTensor<T> ||(!IsTensor<T> && !Writable<T> && LooksLikeElements<T>);

template <class T>
concept ListedTensor = IsTensor<T> ||
    (std::ranges::range<T> && !std::same_as<std::ranges::range_value_t<T>, char>);  // text is not a tensor

template <class T>
struct ElementOf : std::remove_cvref<T> {};
template <std::ranges::range T>
struct ElementOf<T> : std::type_identity<std::ranges::range_value_t<T>> {};

/// Fails to compile, with a message that says why T is not Readable.
template <class T>
constexpr void say_why_unreadable() {
    using E = typename ElementOf<T>::type;
    constexpr bool pointer = std::is_pointer_v<std::remove_cvref_t<T>>;
    constexpr bool list = ListedTensor<E>;
    static_assert(!pointer,
                  "tutti: a pointer does not say how many elements there are: expected std::span(pointer, count), or "
                  "tutti::view(pointer, {rows, columns})");
    static_assert(!list,
                  "tutti: this is a list of tensors: expected one tensor; functions such as all_gather, all_to_all and "
                  "all_reduce_coalesced take a tutti::TensorList");
    static_assert(
        pointer || list || Element<E>,
        "tutti: tensors have no elements of this type: expected bool, an integer of up to 64 bits, float, "
        "double, std::complex of these, std::byte, or a short float such as tutti::BFloat16; other objects go "
        "by all_gather_object and its relatives");
    static_assert(pointer || list || !std::ranges::range<T> || ElementRange<T> || !Element<E>,
                  "tutti: the elements do not lie one after the other in memory: expected std::vector (not of bool, "
                  "which packs bits), std::array, std::span or a C array; copy those of a list, deque or lazy range "
                  "into one of these");
    static_assert(std::ranges::range<T> || !Element<E> || std::is_lvalue_reference_v<T>,
                  "tutti: this number is a temporary, which may be gone before it is sent: expected a variable");
}
/// Fails to compile, with a message that says why T is not Writable.
template <class T>
constexpr void say_why_unwritable() {
    if constexpr (Unreadable<T>) {
        say_why_unreadable<T>();
    } else {
        static_assert(!is_const<T>(),
                      "tutti: the result goes here, but these elements are const: expected elements that can be "
                      "written to");
        static_assert(is_const<T>() || std::is_lvalue_reference_v<T>,
                      "tutti: the result goes here, but this is a temporary, which is gone after the call: expected a "
                      "variable");
    }
}

template <class T>
void* data_of(T& source) {
    if constexpr (std::ranges::range<T>)
        return const_cast<void*>(static_cast<const void*>(std::ranges::data(source)));
    else
        return const_cast<void*>(static_cast<const void*>(std::addressof(source)));
}
template <class T>
std::int64_t count_of(const T& source) {
    if constexpr (std::ranges::range<const T>)
        return static_cast<std::int64_t>(std::ranges::size(source));
    else
        return 1;
}
}  // namespace detail

/// A read-only view. Copying it copies no elements; the memory must outlive the view.
class TUTTI_API ConstTensorView {
 public:
    ConstTensorView() = default;  ///< an empty float32 vector

    /// `strides` in elements; empty means contiguous, row-major. Throws InvalidArgument for negative sizes,
    /// strides whose number differs from that of the sizes, or null data with elements.
    ConstTensorView(const void* data, Extents shape, DType dtype, Extents strides = {}, Device device = {});

    /// Any contiguous range of an element type, as a vector: [size]; a variable of such a type: [1].
    template <detail::Readable T>
    ConstTensorView(T&& source)  // NOLINT(google-explicit-constructor): spans convert implicitly too
        : data_(detail::data_of(source)),
          dtype_(dtype_of<typename detail::ElementOf<T>::type>),
          shape_(Extents::of(detail::count_of(source))),
          element_count_(shape_[0]) {}
    template <detail::Unreadable T>
    ConstTensorView(T&& /*refused*/) {  // NOLINT(google-explicit-constructor)
        detail::say_why_unreadable<T>();
    }
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

    template <detail::Writable T>
    TensorView(T&& source)  // NOLINT(google-explicit-constructor)
        : ConstTensorView(static_cast<std::remove_reference_t<T>&>(source)) {}
    template <detail::Unwritable T>
    TensorView(T&& /*refused*/) {  // NOLINT(google-explicit-constructor)
        detail::say_why_unwritable<T>();
    }
    TensorView(Tensor& tensor);  // NOLINT(google-explicit-constructor)

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

namespace detail {
template <class R>
concept ItemRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<R>> && !Element<std::ranges::range_value_t<R>> &&
    (std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>);
}  // namespace detail

/// A view of structures, or of other elements without a dtype: of their bytes, with a row for each. For reductions with
/// an operator of the caller (ReduceOp::of); for functions that only move elements, where all ranks have the same
/// representation.
template <detail::ItemRange R>
auto items(R&& range) {
    using T = std::ranges::range_value_t<R>;
    using View = std::conditional_t<detail::is_const<R>(), ConstTensorView, TensorView>;
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
    return View(detail::data_of(range), {detail::count_of(range), bytes}, DType::uint8);
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

    /// Takes over a DLPack tensor; its deleter runs when the last handle is destroyed. Host memory that a device can
    /// read too (kDLCUDAHost, kDLROCMHost) counts as host memory, managed memory as cuda, kDLExtDev as npu.
    /// Throws InvalidArgument for devices or types that tutti does not know.
    static Tensor from_dlpack(DLManagedTensor* tensor);
    /// A DLPack tensor that shares this memory; the receiver calls its deleter.
    DLManagedTensor* to_dlpack() const;

 private:
    void check_dtype(DType wanted) const;
    TensorView view_;
    std::shared_ptr<void> owner_;
};

/// New contiguous tensors in host memory, 64-byte aligned; those of 128 KB and more are aligned to huge pages (2 MiB)
/// and occupy whole ones. Untouched pages take no memory. empty(): the values are unspecified.
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
