// Inline sums of a few elements: a call of a kernel takes longer than these additions. Order and rounding are the
// kernels'.
//
// Threads: stateless.
#pragma once

#include "core/assert.hpp"

#include <tutti/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::kernels::few {

constexpr std::size_t most = 8;  // elements

template <class T, std::size_t Inputs>
inline void add(void* dst, std::span<const void* const, Inputs> inputs, std::size_t count) noexcept {
    TUTTI_ASSERT(!inputs.empty());
    TUTTI_ASSERT(count <= most);
    const auto element = [](const void* from, std::size_t i) {
        T value;
        std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
        return value;
    };
    for (std::size_t i = 0; i < count; ++i) {
        T sum = element(inputs[0], i);
        for (std::size_t k = 1; k < inputs.size(); ++k) sum += element(inputs[k], i);
        std::memcpy(static_cast<std::byte*>(dst) + i * sizeof(T), &sum, sizeof(T));
    }
}

/// Returns false, and does nothing, for more than `most` elements and for types that only kernels add.
template <std::size_t Inputs>
inline bool add(DType dtype, void* dst, std::span<const void* const, Inputs> inputs, std::size_t count) noexcept {
    TUTTI_ASSERT(count == 0 || dst != nullptr);
    if (count > most) return false;
    switch (dtype) {
        case DType::float32: add<float>(dst, inputs, count); return true;
        case DType::float64: add<double>(dst, inputs, count); return true;
        case DType::int32:
        case DType::uint32: add<std::uint32_t>(dst, inputs, count); return true;
        case DType::int64:
        case DType::uint64: add<std::uint64_t>(dst, inputs, count); return true;
        default: return false;
    }
}

}  // namespace tutti::kernels::few
