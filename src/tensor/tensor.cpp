// Views and tensors. Threads: values; the count of owners of a tensor's memory is atomic, its elements are not.
#include "core/assert.hpp"
#include "core/env.hpp"
#include "tensor/host_read.hpp"

#include <tutti/error.hpp>
#include <tutti/tensor.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace tutti {
namespace {

// The alignment of few bytes: a cache line. Of many: a huge page, and no other memory in their last one, so that all of
// a tensor's pages can be huge: a megabyte and more asks for that (unless TUTTI_HUGE_PAGES is 0), shorter ones can
// become so (core/huge_pages). Untouched pages take no memory, beside the rest of a huge one. The request stays with
// the addresses when an allocator keeps them after a tensor's end, as with NumPy's arrays.
constexpr std::size_t line_bytes = 64, huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t least_in_huge_pages = std::size_t{128} << 10, least_asked_for = std::size_t{1} << 20;

std::shared_ptr<void> allocate(std::size_t bytes) {
    const std::size_t unit = bytes >= least_in_huge_pages ? huge_page_bytes : line_bytes;
    const std::size_t whole = std::max<std::size_t>(1, (bytes + unit - 1) / unit) * unit;
    const std::align_val_t alignment{unit};
    void* const at = ::operator new(whole, alignment);
    TUTTI_ASSERT(whole >= bytes && whole % unit == 0);
    TUTTI_ASSERT(reinterpret_cast<std::uintptr_t>(at) % unit == 0);
    if (bytes >= least_asked_for && env::get("TUTTI_HUGE_PAGES") != "0") ::madvise(at, whole, MADV_HUGEPAGE);
    return {at, [alignment](void* p) { ::operator delete(p, alignment); }};
}

std::int64_t checked_element_count(const Extents& shape, std::size_t element_bytes) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) {
        if (size < 0) throw InvalidArgument(fmt::format("shape {}: sizes must not be negative", shape.to_string()));
        if (__builtin_mul_overflow(count, size, &count)) {
            throw InvalidArgument(fmt::format("shape {}: too many elements", shape.to_string()));
        }
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(count, static_cast<std::int64_t>(element_bytes), &bytes)) {
        throw InvalidArgument(fmt::format("shape {}: too many bytes", shape.to_string()));
    }
    TUTTI_ASSERT(count >= 0 && bytes >= 0);
    return count;
}

bool is_row_major(const Extents& shape, const Extents& strides) {
    TUTTI_ASSERT(strides.size() == shape.size());
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != expected) return false;
        expected *= shape[i];
    }
    return true;
}

}  // namespace

Extents::Extents(std::span<const std::int64_t> values) : size_(values.size()) {
    if (size_ <= inline_capacity) {
        std::ranges::copy(values, inline_);
    } else {
        heap_.assign(values.begin(), values.end());
    }
}

std::string Extents::to_string() const {
    return fmt::format("[{}]", fmt::join(span(), ", "));
}

ConstTensorView::ConstTensorView(const void* data, Extents shape, DType dtype, Extents strides, Device device)
    : data_(const_cast<void*>(data)),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      device_(device),
      element_count_(checked_element_count(shape_, size_of(dtype))) {
    if (!strides_.empty() && strides_.size() != shape_.size()) {
        throw InvalidArgument(fmt::format("strides {}: expected {} of them, one per dimension of shape {}",
                                          strides_.to_string(), shape_.size(), shape_.to_string()));
    }
    if (data_ == nullptr && element_count_ > 0) {
        throw InvalidArgument(fmt::format("data: null pointer for {} elements: expected their memory", element_count_));
    }
    if (!strides_.empty() && (element_count_ == 0 || is_row_major(shape_, strides_))) strides_ = {};
    TUTTI_ASSERT(contiguous() || strides_.size() == shape_.size());
}

ConstTensorView::ConstTensorView(const Tensor& tensor) : ConstTensorView(tensor.view()) {}
TensorView::TensorView(Tensor& tensor) : TensorView(tensor.view()) {}

std::string ConstTensorView::to_string() const {
    return fmt::format("{}{}", tutti::to_string(dtype_), shape_.to_string());
}

Tensor::Tensor(TensorView view, std::shared_ptr<void> owner) : view_(std::move(view)), owner_(std::move(owner)) {}

void Tensor::check_dtype(DType wanted) const {
    if (wanted != dtype()) {
        throw InvalidArgument(fmt::format("Tensor::data: elements of {}: expected {}, which the tensor has",
                                          tutti::to_string(wanted), tutti::to_string(dtype())));
    }
}

Tensor Tensor::clone() const {
    if (before_host_read != nullptr) [[unlikely]]
        before_host_read(view_, "clone", __builtin_return_address(0));
    Tensor result = empty(dtype(), shape());
    copy(result.view(), view_);
    TUTTI_ASSERT(result.view().contiguous() && result.byte_count() == byte_count());
    return result;
}

Tensor empty(DType dtype, Extents shape) {
    const auto count = checked_element_count(shape, size_of(dtype));
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    TUTTI_ASSERT(bytes == 0 || count > 0);
    std::shared_ptr<void> memory = allocate(bytes);
    TensorView view(memory.get(), std::move(shape), dtype);
    return {std::move(view), std::move(memory)};
}

Tensor zeros(DType dtype, Extents shape) {
    Tensor result = empty(dtype, std::move(shape));
    if (result.byte_count() > 0) std::memset(result.raw_data(), 0, result.byte_count());
    return result;
}

}  // namespace tutti
