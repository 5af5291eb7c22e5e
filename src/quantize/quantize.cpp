#include "quantize/quantize.hpp"

#include "core/assert.hpp"
#include "quantize/kernels.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace tutti::quantize {
namespace {

constexpr std::size_t index_of(DType dtype) {
    return static_cast<std::size_t>(dtype);
}
constexpr std::size_t index_of(Format format) {
    return static_cast<std::size_t>(format);
}

struct Kernels {
    std::array<MagnitudeKernel, dtype_count> magnitude{};
    std::array<std::array<EncodeKernel, dtype_count>, format_count> encode{};
    std::array<std::array<DecodeKernel, dtype_count>, format_count> decode{};
    std::array<std::array<DecodeKernel, 3>, format_count> add{};
    std::array<AddCodesKernel, format_count> add_codes{};
    RandomKernel random = find_random_kernel();

    Kernels() {
        for (std::size_t t = 0; t < dtype_count; ++t) {
            const auto dtype = static_cast<DType>(t);
            magnitude[t] = find_magnitude_kernel(dtype);
            for (std::size_t f = 0; f < format_count; ++f) {
                encode[f][t] = find_encode_kernel(static_cast<Format>(f), dtype);
                decode[f][t] = find_decode_kernel(static_cast<Format>(f), dtype);
            }
        }
        for (std::size_t f = 0; f < format_count; ++f) {
            const auto format = static_cast<Format>(f);
            for (const Into into : {Into::fresh, Into::sum, Into::difference})
                add[f][static_cast<std::size_t>(into)] = find_add_kernel(format, into);
            add_codes[f] = find_add_codes_kernel(format);
        }
    }
};
const Kernels& kernels() {
    static const Kernels instance;
    return instance;
}

template <class Kernel>
Kernel checked(Kernel kernel, const char* function, DType dtype) {
    if (kernel == nullptr) throw InternalError(fmt::format("quantize::{}: {}", function, to_string(dtype)));
    return kernel;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

float magnitude_of(MagnitudeKernel kernel, const std::byte* from, std::size_t count) {
    TUTTI_ASSERT(count > 0);
    const std::uint32_t bits = kernel(from, count);
    constexpr std::uint32_t infinity = 0x7f800000;
    return bits >= infinity ? not_a_number : std::bit_cast<float>(bits);
}

// Calls f(elements before, elements) for pieces of a block.
template <class F>
void for_each_piece(std::size_t count, F&& f) {
    for (std::size_t at = 0; at < count; at += piece) f(at, std::min(piece, count - at));
}

}  // namespace

float scale_of(Format format, float magnitude) noexcept {
    TUTTI_ASSERT(!(magnitude < 0));
    if (!std::isfinite(magnitude)) return not_a_number;
    return magnitude == 0 ? 0 : std::max(magnitude / largest(format), smallest_scale);
}

double error_bound(Format format, double magnitude) noexcept {
    TUTTI_ASSERT(magnitude >= 0);
    if (magnitude == 0) return 0;
    const double scale =
        std::max(magnitude / static_cast<double>(largest(format)), static_cast<double>(smallest_scale));
    // Half a step between codes: of whole ones everywhere, of floating-point ones near the largest. The rest is the
    // rounding of the scale and the quotient.
    double half_step = 0.5;
    if (format == Format::float8_e4m3fn) half_step = 16;
    if (format == Format::float8_e5m2) half_step = 4096;
    return (half_step + static_cast<double>(largest(format)) * 0x1p-22) * scale;
}

void random_words(const Noise& noise, std::size_t count, std::uint32_t* words) noexcept {
    TUTTI_ASSERT(count == 0 || words != nullptr);
    kernels().random(noise, count, words);
}

void find_magnitudes(DType dtype, const void* from, const Blocks& run, float* magnitudes) {
    TUTTI_ASSERT(run.count == 0 || (from != nullptr && magnitudes != nullptr));
    const MagnitudeKernel kernel = checked(kernels().magnitude[index_of(dtype)], "find_magnitudes", dtype);
    const auto* bytes = static_cast<const std::byte*>(from);
    run.for_each_block(Format::int8, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t /*code*/) {
        magnitudes[i] = magnitude_of(kernel, bytes + at * size_of(dtype), count);
    });
}

void encode(Format format, DType dtype, const void* from, const Blocks& run, Scales kind, float* scales,
            std::byte* codes, const Noise* noise) {
    TUTTI_ASSERT(run.count == 0 || (from != nullptr && scales != nullptr && codes != nullptr));
    TUTTI_ASSERT(dtype != DType::int8 || (format == Format::int8 && kind == Scales::given));
    const auto* bytes = static_cast<const std::byte*>(from);
    const Reach reach = kind == Scales::given ? Reach::beyond : Reach::within;
    const float given = kind == Scales::given && run.count > 0 ? scales[0] : 0;
    if (dtype == DType::int8) {  // codes already; finite
        run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t code) {
            scales[i] = given;
            std::memcpy(codes + code, bytes + at, count);
        });
        return;
    }
    const MagnitudeKernel magnitude = checked(kernels().magnitude[index_of(dtype)], "encode", dtype);
    const EncodeKernel kernel = checked(kernels().encode[index_of(format)][index_of(dtype)], "encode", dtype);
    alignas(64) std::array<std::uint32_t, piece + 64> words;
    run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t code) {
        const std::byte* block = bytes + at * size_of(dtype);
        if (kind != Scales::before) {
            const float most = magnitude_of(magnitude, block, count);
            scales[i] = kind == Scales::found ? scale_of(format, most) : std::isnan(most) ? not_a_number : given;
        }
        if (!(scales[i] > 0)) {
            std::memset(codes + code, 0, code_bytes(format, count));
            return;
        }
        for_each_piece(count, [&](std::size_t before, std::size_t elements) {
            if (noise != nullptr)
                random_words({noise->key, noise->stream, noise->first + at + before}, elements, words.data());
            kernel(block + before * size_of(dtype), elements, scales[i], reach,
                   noise != nullptr ? words.data() : nullptr, codes + code + code_bytes(format, before));
        });
    });
}

namespace {
// Pieces of an even number of elements, so that each begins with a byte of its own.
void decode_by(DecodeKernel kernel, Format format, const std::byte* codes, const float* scales, const Blocks& run,
               std::size_t element_bytes, std::byte* to) {
    TUTTI_ASSERT(kernel != nullptr);
    TUTTI_ASSERT(run.count == 0 || (codes != nullptr && scales != nullptr && to != nullptr));
    run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t count, std::size_t code) {
        for_each_piece(count, [&](std::size_t before, std::size_t elements) {
            kernel(codes + code + code_bytes(format, before), elements, scales[i], to + (at + before) * element_bytes);
        });
    });
}
}  // namespace

void decode(Format format, const std::byte* codes, const float* scales, const Blocks& run, DType dtype, void* to) {
    TUTTI_ASSERT(run.count == 0 || to != nullptr);
    const DecodeKernel kernel = checked(kernels().decode[index_of(format)][index_of(dtype)], "decode", dtype);
    decode_by(kernel, format, codes, scales, run, size_of(dtype), static_cast<std::byte*>(to));
}

void add(Format format, const std::byte* codes, const float* scales, const Blocks& run, Into into, float* sums) {
    TUTTI_ASSERT(static_cast<std::size_t>(into) < kernels().add[index_of(format)].size());
    const DecodeKernel kernel = kernels().add[index_of(format)][static_cast<std::size_t>(into)];
    decode_by(kernel, format, codes, scales, run, sizeof(float), reinterpret_cast<std::byte*>(sums));
}

void add_codes(Format format, const std::byte* codes, const Blocks& run, Into into, std::int32_t* sums) {
    TUTTI_ASSERT(into != Into::difference && is_whole(format));
    TUTTI_ASSERT(run.count == 0 || (codes != nullptr && sums != nullptr));
    const AddCodesKernel kernel = checked(kernels().add_codes[index_of(format)], "add_codes", DType::int32);
    if (into == Into::fresh) std::fill_n(sums, run.count, 0);
    run.for_each_block(format, [&](std::size_t /*i*/, std::size_t at, std::size_t count, std::size_t code) {
        for_each_piece(count, [&](std::size_t before, std::size_t elements) {
            kernel(codes + code + code_bytes(format, before), elements, sums + at + before);
        });
    });
}

}  // namespace tutti::quantize
