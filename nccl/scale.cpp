#include "scale.hpp"

#include <cstdint>
#include <cstring>

namespace tutti::nccl_library {
namespace {

template <class T>
T value_at(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
void scale(void* to, const void* from, const void* factor, std::size_t count) {
    const auto times = static_cast<std::uint64_t>(value_at<T>(factor));
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<std::uint64_t>(value_at<T>(in + i * sizeof(T)));
        const T product = static_cast<T>(value * times);
        std::memcpy(out + i * sizeof(T), &product, sizeof product);
    }
}

}  // namespace

void scale_integers(DType dtype, void* to, const void* from, const void* factor, std::size_t count) {
    switch (size_of(dtype)) {  // the low bits of a product are the same for signed and unsigned factors
        case 1: return scale<std::uint8_t>(to, from, factor, count);
        case 2: return scale<std::uint16_t>(to, from, factor, count);
        case 4: return scale<std::uint32_t>(to, from, factor, count);
        default: return scale<std::uint64_t>(to, from, factor, count);
    }
}

double floating_value(DType dtype, const void* element) {
    switch (dtype) {
        case DType::float16: return static_cast<float>(value_at<Float16>(element));
        case DType::bfloat16: return static_cast<float>(value_at<BFloat16>(element));
        case DType::float8_e4m3fn: return static_cast<float>(value_at<Float8E4M3FN>(element));
        case DType::float8_e5m2: return static_cast<float>(value_at<Float8E5M2>(element));
        case DType::float32: return value_at<float>(element);
        default: return value_at<double>(element);
    }
}

}  // namespace tutti::nccl_library
