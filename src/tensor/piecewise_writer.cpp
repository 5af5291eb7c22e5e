#include "tensor/piecewise_writer.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

template <std::size_t Bytes>
void scatter(std::byte* to, std::ptrdiff_t stride_bytes, const std::byte* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * stride_bytes, from + i * static_cast<std::ptrdiff_t>(Bytes), Bytes);
}

}  // namespace

PiecewiseWriter::PiecewiseWriter(const TensorView& view)
    : base_(static_cast<std::byte*>(view.data())),
      element_bytes_(size_of(view.dtype())),
      byte_count_(view.byte_count()) {
    TUTTI_ASSERT(view.device().type == Device::Type::cpu);
    if (view.contiguous()) dimensions_.push_back({view.element_count(), 1});
    for (std::size_t i = 0; i < view.strides().size(); ++i) {
        const Dimension next{view.shape()[i], view.strides()[i]};
        if (next.size == 1) continue;
        if (!dimensions_.empty() && dimensions_.back().stride == next.size * next.stride)
            dimensions_.back() = {dimensions_.back().size * next.size, next.stride};
        else
            dimensions_.push_back(next);
    }
    if (dimensions_.empty()) dimensions_.push_back({1, 1});
    index_.resize(dimensions_.size());
    TUTTI_ASSERT(!dimensions_.empty() && element_bytes_ > 0);
}

void PiecewiseWriter::rewind() {
    std::ranges::fill(index_, 0);
    row_ = 0;
    done_ = 0;
}

void PiecewiseWriter::write_row(std::byte* to, const std::byte* from, std::int64_t count) const {
    const std::int64_t stride = dimensions_.back().stride;
    if (stride == 1) return void(std::memcpy(to, from, static_cast<std::size_t>(count) * element_bytes_));
    const std::ptrdiff_t stride_bytes = stride * static_cast<std::ptrdiff_t>(element_bytes_);
    switch (element_bytes_) {
        case 1: return scatter<1>(to, stride_bytes, from, count);
        case 2: return scatter<2>(to, stride_bytes, from, count);
        case 4: return scatter<4>(to, stride_bytes, from, count);
        case 8: return scatter<8>(to, stride_bytes, from, count);
        default: TUTTI_ASSERT(element_bytes_ == 16); return scatter<16>(to, stride_bytes, from, count);
    }
}

void PiecewiseWriter::operator()(std::size_t offset, std::span<const std::byte> bytes) {
    if (offset == 0) rewind();
    TUTTI_ASSERT(offset == done_ && bytes.size() <= byte_count_ - done_ && bytes.size() % element_bytes_ == 0);
    done_ += bytes.size();
    auto left = static_cast<std::int64_t>(bytes.size() / element_bytes_);
    const std::byte* from = bytes.data();
    const auto unit = static_cast<std::int64_t>(element_bytes_);
    const Dimension row = dimensions_.back();
    std::int64_t& column = index_.back();
    while (left > 0) {
        const std::int64_t count = std::min(left, row.size - column);
        write_row(base_ + (row_ + column * row.stride) * unit, from, count);
        from += count * unit;
        left -= count;
        column += count;
        if (column < row.size) return;
        column = 0;
        for (std::size_t i = dimensions_.size() - 1; i-- > 0;) {  // the outer dimensions count like an odometer
            row_ += dimensions_[i].stride;
            if (++index_[i] < dimensions_[i].size) break;
            row_ -= dimensions_[i].stride * dimensions_[i].size;
            index_[i] = 0;
        }
    }
}

}  // namespace tutti
