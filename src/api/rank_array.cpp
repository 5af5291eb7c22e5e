// RankArray: ranks in an n-dimensional array.
#include "core/assert.hpp"

#include <tutti/device_mesh.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

namespace tutti {
namespace {

std::int64_t product(const std::vector<int>& shape) {
    std::int64_t elements = 1;
    for (const int size : shape) {
        if (size < 1) {
            throw InvalidArgument(
                fmt::format("RankArray: shape [{}]: expected sizes of at least 1", fmt::join(shape, ", ")));
        }
        elements *= size;
        if (elements > std::numeric_limits<int>::max()) {
            throw InvalidArgument(
                fmt::format("RankArray: shape [{}]: more elements than there can be ranks", fmt::join(shape, ", ")));
        }
    }
    TUTTI_ASSERT(elements >= 1);
    return elements;
}

std::string nested(const std::vector<int>& shape, std::size_t dim, const int*& next) {
    TUTTI_ASSERT(dim <= shape.size());
    if (dim == shape.size()) return std::to_string(*next++);
    std::string text = "[";
    for (int i = 0; i < shape[dim]; ++i) text += (i == 0 ? "" : ", ") + nested(shape, dim + 1, next);
    return text + "]";
}

}  // namespace

RankArray::RankArray(std::initializer_list<RankArray> rows) : shape_{static_cast<int>(rows.size())} {
    if (rows.size() == 0) return;
    const std::vector<int>& row_shape = rows.begin()->shape_;
    for (const RankArray& row : rows) {
        if (row.shape_ != row_shape) {
            throw InvalidArgument(fmt::format("RankArray: rows of shapes [{}] and [{}]: expected equal shapes",
                                              fmt::join(row_shape, ", "), fmt::join(row.shape_, ", ")));
        }
        ranks_.insert(ranks_.end(), row.ranks_.begin(), row.ranks_.end());
    }
    shape_.insert(shape_.end(), row_shape.begin(), row_shape.end());
}

RankArray::RankArray(const std::vector<std::vector<int>>& rows)
    : shape_{static_cast<int>(rows.size()), rows.empty() ? 0 : static_cast<int>(rows.front().size())} {
    for (const std::vector<int>& row : rows) {
        if (row.size() != rows.front().size()) {
            throw InvalidArgument(fmt::format("RankArray: rows of {} and {} ranks: expected equally many",
                                              rows.front().size(), row.size()));
        }
        ranks_.insert(ranks_.end(), row.begin(), row.end());
    }
}

RankArray RankArray::row_major(std::vector<int> shape) {
    RankArray result;
    result.ranks_.resize(static_cast<std::size_t>(product(shape)));
    for (std::size_t i = 0; i < result.ranks_.size(); ++i) result.ranks_[i] = static_cast<int>(i);
    result.shape_ = std::move(shape);
    TUTTI_ASSERT(!result.ranks_.empty());
    return result;
}

RankArray RankArray::of(std::vector<int> shape, std::vector<int> ranks) {
    if (product(shape) != static_cast<std::int64_t>(ranks.size())) {
        throw InvalidArgument(fmt::format("RankArray: shape [{}] for {} ranks: expected as many elements as ranks",
                                          fmt::join(shape, ", "), ranks.size()));
    }
    RankArray result;
    result.shape_ = std::move(shape);
    result.ranks_ = std::move(ranks);
    return result;
}

RankArray RankArray::from_view(const ConstTensorView& view) {
    if (view.device().type != Device::Type::cpu) {
        throw InvalidArgument(
            fmt::format("RankArray: a tensor on {}: expected host memory", tutti::to_string(view.device())));
    }
    std::vector<int> shape;
    for (const std::int64_t size : view.shape()) shape.push_back(static_cast<int>(size));
    // One piece, in row-major order.
    Tensor packed = empty(view.dtype(), view.shape());
    copy(packed.view(), view);
    std::vector<int> ranks;
    const auto take = [&]<class T>(T) {
        for (const T value : packed.span<T>()) {
            if (!std::in_range<int>(value))
                throw InvalidArgument(fmt::format("RankArray: element {}: expected a rank", value));
            ranks.push_back(static_cast<int>(value));
        }
    };
    switch (view.dtype()) {
        case DType::int8: take(std::int8_t{}); break;
        case DType::uint8: take(std::uint8_t{}); break;
        case DType::int16: take(std::int16_t{}); break;
        case DType::uint16: take(std::uint16_t{}); break;
        case DType::int32: take(std::int32_t{}); break;
        case DType::uint32: take(std::uint32_t{}); break;
        case DType::int64: take(std::int64_t{}); break;
        case DType::uint64: take(std::uint64_t{}); break;
        default: throw InvalidArgument(fmt::format("RankArray: a tensor of {}: expected integers", view.to_string()));
    }
    return of(std::move(shape), std::move(ranks));
}

std::string RankArray::to_string() const {
    if (ranks_.empty()) return "[]";
    const int* next = ranks_.data();
    TUTTI_ASSERT(ranks_.size() == static_cast<std::size_t>(product(shape_)));
    return nested(shape_, 0, next);
}

}  // namespace tutti
