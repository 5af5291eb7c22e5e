// Copies between views of any strides.
//
// A copy walks views of equal shape together: it merges dimensions that lie in one piece in both, orders the others so
// that writes go forward in memory, and takes the innermost two in square tiles, so that a transposition uses each
// cache line it touches. It walks views of different shapes apart, run by run, in row-major order.
// Threads: stateless.
#include "core/assert.hpp"
#include "tensor/host_read.hpp"

#include <tutti/error.hpp>
#include <tutti/tensor.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <utility>
#include <vector>

namespace tutti {
namespace {

struct Dimension {
    std::int64_t size;
    std::int64_t to_stride;    // in bytes
    std::int64_t from_stride;  // in bytes
};

// Lists by dimension, in memory on the stack unless there are very many: a planned call, which packs at each run,
// allocates nothing.
using Strides = std::pmr::vector<std::int64_t>;
using Dimensions = std::pmr::vector<Dimension>;

// The strides of a view, seen in the given shape if it is contiguous.
Strides strides_of(const ConstTensorView& view, const Extents& shape, std::pmr::memory_resource& memory) {
    if (!view.contiguous()) return {view.strides().begin(), view.strides().end(), &memory};
    Strides strides(shape.size(), &memory);
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        TUTTI_ASSERT(shape[i] >= 0 && stride >= 0);
        strides[i] = stride;
        stride *= shape[i];
    }
    return strides;
}

// The common dimensions, outermost first; at least one.
Dimensions merged_dimensions(const Extents& shape, const Strides& to, const Strides& from, std::int64_t element_bytes,
                             std::pmr::memory_resource& memory) {
    TUTTI_ASSERT(to.size() == shape.size() && from.size() == shape.size() && element_bytes > 0);
    Dimensions dimensions(&memory);
    dimensions.reserve(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] != 1) dimensions.push_back({shape[i], to[i] * element_bytes, from[i] * element_bytes});
    }
    std::ranges::sort(dimensions, std::ranges::greater(), [](const Dimension& d) { return std::abs(d.to_stride); });
    Dimensions merged(&memory);
    merged.reserve(shape.size() + 1);
    for (const Dimension& d : dimensions) {
        if (!merged.empty() && merged.back().to_stride == d.size * d.to_stride &&
            merged.back().from_stride == d.size * d.from_stride) {
            merged.back() = {merged.back().size * d.size, d.to_stride, d.from_stride};
        } else {
            merged.push_back(d);
        }
    }
    if (merged.empty()) merged.push_back({1, element_bytes, element_bytes});
    TUTTI_ASSERT(!merged.empty() && merged.size() <= std::max<std::size_t>(shape.size(), 1));
    return merged;
}

template <std::size_t Bytes>
void copy_line(std::byte* to, const std::byte* from, std::int64_t count, const Dimension& d) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * d.to_stride, from + i * d.from_stride, Bytes);
    }
}

// The two innermost dimensions.
template <std::size_t Bytes>
void copy_plane(std::byte* to, const std::byte* from, const Dimension& outer, const Dimension& inner) {
    TUTTI_ASSERT(outer.size >= 1 && inner.size >= 1);
    constexpr std::int64_t tile = 128 / static_cast<std::int64_t>(Bytes);
    // Tiles pay only where the source runs along the outer dimension.
    const bool crosswise = std::abs(outer.from_stride) < std::abs(inner.from_stride);
    const std::int64_t rows = crosswise ? tile : 1;
    const std::int64_t columns = crosswise ? tile : inner.size;
    for (std::int64_t row = 0; row < outer.size; row += rows) {
        const std::int64_t last_row = std::min(row + rows, outer.size);
        for (std::int64_t column = 0; column < inner.size; column += columns) {
            const std::int64_t count = std::min(columns, inner.size - column);
            for (std::int64_t i = row; i < last_row; ++i) {
                copy_line<Bytes>(to + i * outer.to_stride + column * inner.to_stride,
                                 from + i * outer.from_stride + column * inner.from_stride, count, inner);
            }
        }
    }
}

void copy_rows(std::byte* to, const std::byte* from, const Dimension& outer, std::size_t row_bytes) {
    TUTTI_ASSERT(outer.size >= 1 && row_bytes > 0);
    for (std::int64_t i = 0; i < outer.size; ++i) {
        std::memcpy(to + i * outer.to_stride, from + i * outer.from_stride, row_bytes);
    }
}

void copy_equal_shapes(std::byte* to, const std::byte* from, Dimensions dimensions, std::size_t element_bytes) {
    TUTTI_ASSERT(!dimensions.empty() && std::has_single_bit(element_bytes) && element_bytes <= 16);
    const Dimension inner = dimensions.back();
    dimensions.pop_back();
    Dimension outer{1, 0, 0};
    if (!dimensions.empty()) {
        outer = dimensions.back();
        dimensions.pop_back();
    }
    const auto unit = static_cast<std::int64_t>(element_bytes);
    const bool in_rows = inner.to_stride == unit && inner.from_stride == unit;
    const auto plane = [&](std::byte* t, const std::byte* f) {
        if (in_rows) return copy_rows(t, f, outer, static_cast<std::size_t>(inner.size) * element_bytes);
        switch (element_bytes) {
            case 1: return copy_plane<1>(t, f, outer, inner);
            case 2: return copy_plane<2>(t, f, outer, inner);
            case 4: return copy_plane<4>(t, f, outer, inner);
            case 8: return copy_plane<8>(t, f, outer, inner);
            default: return copy_plane<16>(t, f, outer, inner);
        }
    };
    // The dimensions further out count like an odometer.
    Strides index(dimensions.size(), dimensions.get_allocator());
    for (;;) {
        plane(to, from);
        std::size_t i = dimensions.size();
        for (; i > 0; --i) {
            const Dimension& d = dimensions[i - 1];
            to += d.to_stride;
            from += d.from_stride;
            if (++index[i - 1] < d.size) break;
            to -= d.to_stride * d.size;
            from -= d.from_stride * d.size;
            index[i - 1] = 0;
        }
        if (i == 0) return;
    }
}

// Walks a view as runs of `run` elements that lie one after the other.
class Runs {
 public:
    explicit Runs(const ConstTensorView& view)
        : base_(static_cast<std::byte*>(const_cast<void*>(view.data()))), element_bytes_(size_of(view.dtype())) {
        TUTTI_ASSERT(view.element_count() > 0);
        if (view.contiguous()) {
            run_ = view.element_count();
            return;
        }
        std::size_t outer = view.shape().size();
        while (outer > 0) {
            const std::size_t i = outer - 1;
            if (view.shape()[i] != 1 && view.strides()[i] != run_) break;
            run_ *= view.shape()[i];
            outer = i;
        }
        for (std::size_t i = 0; i < outer; ++i) {
            sizes_.push_back(view.shape()[i]);
            strides_.push_back(view.strides()[i]);
        }
        index_.assign(outer, 0);
        TUTTI_ASSERT(run_ > 0 && view.element_count() % run_ == 0);
    }

    std::int64_t run() const { return run_; }
    std::byte* address() const { return base_ + offset_ * static_cast<std::int64_t>(element_bytes_); }
    void next() {
        for (std::size_t i = sizes_.size(); i-- > 0;) {
            offset_ += strides_[i];
            if (++index_[i] < sizes_[i]) return;
            offset_ -= strides_[i] * sizes_[i];
            index_[i] = 0;
        }
    }

 private:
    std::byte* base_;
    std::size_t element_bytes_;
    std::int64_t run_ = 1;
    std::int64_t offset_ = 0;
    std::vector<std::int64_t> sizes_, strides_, index_;
};

void copy_runs(const TensorView& to, const ConstTensorView& from) {
    TUTTI_ASSERT(to.dtype() == from.dtype() && to.element_count() == from.element_count());
    const std::size_t element_bytes = size_of(to.dtype());
    Runs target(to);
    Runs source(from);
    std::int64_t left_in_target = target.run();
    std::int64_t left_in_source = source.run();
    std::byte* t = target.address();
    std::byte* s = source.address();
    for (std::int64_t done = 0; done < to.element_count();) {
        const std::int64_t count = std::min(left_in_target, left_in_source);
        TUTTI_ASSERT(count > 0);
        const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes;
        std::memcpy(t, s, bytes);
        done += count;
        TUTTI_ASSERT(done <= to.element_count());
        t += bytes;
        s += bytes;
        if ((left_in_target -= count) == 0) {
            target.next();
            t = target.address();
            left_in_target = target.run();
        }
        if ((left_in_source -= count) == 0) {
            source.next();
            s = source.address();
            left_in_source = source.run();
        }
    }
}

}  // namespace

void copy(TensorView to, ConstTensorView from) {
    if (to.dtype() != from.dtype()) {
        throw InvalidArgument(
            fmt::format("copy: `to` is {}, `from` is {}: expected equal dtypes", to.to_string(), from.to_string()));
    }
    if (to.element_count() != from.element_count()) {
        throw InvalidArgument(fmt::format("copy: `to` has {} elements, `from` has {}: expected equal counts",
                                          to.element_count(), from.element_count()));
    }
    if (from.element_count() == 0) return;
    TUTTI_ASSERT(to.byte_count() == from.byte_count() && to.data() != nullptr && from.data() != nullptr);
    for (const Device device : {to.device(), from.device()}) {
        if (device.type != Device::Type::cpu)
            throw InvalidArgument(fmt::format("copy: a tensor is on {}: expected host memory", to_string(device)));
    }
    if (before_host_read != nullptr) [[unlikely]]
        before_host_read(from, "copy", __builtin_return_address(0));
    if (to.contiguous() && from.contiguous()) {
        std::memmove(to.data(), from.data(), to.byte_count());
        return;
    }
    // A contiguous view may be seen in the other's shape.
    const Extents& shape = to.contiguous() ? from.shape() : to.shape();
    if (!to.contiguous() && !from.contiguous() && !(to.shape() == from.shape())) return copy_runs(to, from);
    const std::size_t element_bytes = size_of(to.dtype());
    std::array<std::byte, 1024> room;
    std::pmr::monotonic_buffer_resource memory(room.data(), room.size());
    const Strides to_strides = strides_of(to, shape, memory), from_strides = strides_of(from, shape, memory);
    copy_equal_shapes(
        static_cast<std::byte*>(to.data()), static_cast<const std::byte*>(from.data()),
        merged_dimensions(shape, to_strides, from_strides, static_cast<std::int64_t>(element_bytes), memory),
        element_bytes);
}

}  // namespace tutti
