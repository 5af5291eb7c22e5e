#include "core/crc32c.hpp"

#include "core/assert.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tutti {
namespace {

// Polynomials over GF(2) with bits in reverse: the highest one stands for 1, the lowest for x^31.
constexpr std::uint32_t polynomial = 0x82f63b78;
constexpr std::uint32_t one = std::uint32_t{1} << 31;

constexpr std::uint32_t times_x(std::uint32_t a) {
    return a >> 1 ^ ((a & 1) != 0 ? polynomial : 0);
}
// Modulo the polynomial.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
    std::uint32_t sum = 0;
    for (std::uint32_t bit = one; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) sum ^= b;
        b = times_x(b);
    }
    return sum;
}
constexpr std::uint32_t x_to(unsigned exponent) {
    std::uint32_t result = one;
    for (std::uint32_t square = one >> 1; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) result = product(result, square);
        square = product(square, square);
    }
    TUTTI_ASSERT(result != 0);
    return result;
}

// ---- Eight bytes at a time, by tables (Kounavis and Berry, 2005)

constexpr auto tables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> all{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = times_x(value);
        all[0][byte] = value;
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
        for (std::size_t k = 1; k < all.size(); ++k)
            all[k][byte] = all[k - 1][byte] >> 8 ^ all[0][all[k - 1][byte] & 0xff];
    }
    return all;
}();

std::uint64_t word_at(const std::byte* at) noexcept {
    TUTTI_ASSERT(at != nullptr);
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

std::uint32_t by_tables(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept {
    TUTTI_ASSERT(at != nullptr || bytes == 0);
    for (; bytes >= 8; at += 8, bytes -= 8) {
        const std::uint64_t word = word_at(at) ^ state;
        state = 0;
        for (std::size_t k = 0; k < 8; ++k) state ^= tables[7 - k][word >> 8 * k & 0xff];
    }
    for (; bytes > 0; ++at, --bytes) state = state >> 8 ^ tables[0][(state ^ static_cast<std::uint32_t>(*at)) & 0xff];
    return state;
}

// ---- By the CPU's instruction for it

#if defined(__x86_64__)
#define TUTTI_CRC_TARGET __attribute__((target("sse4.2")))
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t state, std::uint64_t word) {
    return static_cast<std::uint32_t>(_mm_crc32_u64(state, word));
}
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t state, std::byte byte) {
    return _mm_crc32_u8(state, static_cast<unsigned char>(byte));
}
#elif defined(__aarch64__)
#define TUTTI_CRC_TARGET __attribute__((target("+crc")))
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t state, std::uint64_t word) {
    return __builtin_aarch64_crc32cx(state, word);
}
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t state, std::byte byte) {
    return __builtin_aarch64_crc32cb(state, static_cast<unsigned char>(byte));
}
#endif

#if defined(TUTTI_CRC_TARGET)
// An instruction waits for the one before it for three cycles, so this runs through three pieces of the input at the
// same time, and puts them together: the CRC of the bytes before n others counts x^8n times.
template <unsigned piece>
TUTTI_CRC_TARGET std::uint32_t three_pieces(std::uint32_t state, const std::byte*& at, std::size_t& bytes) noexcept {
    constexpr std::uint32_t before_one = x_to(8 * piece), before_two = x_to(16 * piece);
    for (; bytes >= 3 * piece; at += 3 * piece, bytes -= 3 * piece) {
        std::uint32_t second = 0, third = 0;
        for (std::size_t i = 0; i < piece; i += 8) {
            state = step(state, word_at(at + i));
            second = step(second, word_at(at + piece + i));
            third = step(third, word_at(at + 2 * piece + i));
        }
        state = product(before_two, state) ^ product(before_one, second) ^ third;
    }
    TUTTI_ASSERT(bytes < 3 * piece);
    return state;
}

TUTTI_CRC_TARGET std::uint32_t by_instruction(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept {
    TUTTI_ASSERT(at != nullptr || bytes == 0);
    state = three_pieces<8192>(state, at, bytes);
    state = three_pieces<1024>(state, at, bytes);
    for (; bytes >= 8; at += 8, bytes -= 8) state = step(state, word_at(at));
    for (; bytes > 0; ++at, --bytes) state = step(state, *at);
    return state;
}
#endif

// ---- By folding: long inputs become short ones with the same remainder (Gopal et al., Intel, 2009)

#if defined(__x86_64__)
#define TUTTI_FOLD_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

// For 16 bytes that go so many bytes further: the multipliers of their first and last eight.
struct Distance {
    long long first, last;
};
constexpr Distance distance(unsigned bytes) {
    TUTTI_ASSERT(8 * bytes >= 33);
    return {static_cast<long long>(x_to(8 * bytes + 31)), static_cast<long long>(x_to(8 * bytes - 33))};
}

TUTTI_FOLD_TARGET inline __m512i by(Distance d) {
    return _mm512_set_epi64(d.last, d.first, d.last, d.first, d.last, d.first, d.last, d.first);
}
TUTTI_FOLD_TARGET inline __m512i fold(__m512i a, __m512i factors, __m512i onto) {
    constexpr int exclusive_or_of_three = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, factors, 0x00),
                                     _mm512_clmulepi64_epi128(a, factors, 0x11), onto, exclusive_or_of_three);
}
TUTTI_FOLD_TARGET std::uint32_t by_folding(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept {
    constexpr std::size_t wide = 64, count = 8;  // so many at once: a multiplication takes eight cycles
    if (bytes < count * wide) return by_instruction(state, at, bytes);
    __m512i sums[count];
    for (std::size_t i = 0; i < count; ++i) sums[i] = _mm512_loadu_si512(at + i * wide);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
    at += count * wide;
    bytes -= count * wide;
    constexpr Distance far = distance(count * wide), near = distance(wide);
    const __m512i all_further = by(far), one_further = by(near);
    for (; bytes >= count * wide; at += count * wide, bytes -= count * wide) {
        for (std::size_t i = 0; i < count; ++i) sums[i] = fold(sums[i], all_further, _mm512_loadu_si512(at + i * wide));
    }
    __m512i sum = sums[0];
    for (std::size_t i = 1; i < count; ++i) sum = fold(sum, one_further, sums[i]);
    for (; bytes >= wide; at += wide, bytes -= wide) sum = fold(sum, one_further, _mm512_loadu_si512(at));
    TUTTI_ASSERT(bytes < wide);
    std::array<std::byte, wide> rest;
    _mm512_storeu_si512(rest.data(), sum);
    state = by_instruction(0, rest.data(), rest.size());
    return by_instruction(state, at, bytes);
}
#endif

struct Ways {
    std::array<Crc32cWay, 3> all{{{"tables", by_tables}}};
    std::size_t count = 1;
};

Ways usable_ways() noexcept {
    Ways ways;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2") != 0) {
        ways.all[ways.count++] = {"SSE 4.2", by_instruction};
        if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
            __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("pclmul") != 0)
            ways.all[ways.count++] = {"AVX-512", by_folding};
    }
#elif defined(__aarch64__)
    constexpr unsigned long has_crc = 1UL << 7;  // HWCAP_CRC32
    if ((::getauxval(AT_HWCAP) & has_crc) != 0) ways.all[ways.count++] = {"ARMv8 CRC", by_instruction};
#endif
    return ways;
}

}  // namespace

std::span<const Crc32cWay> crc32c_ways() noexcept {
    static const Ways ways = usable_ways();
    TUTTI_ASSERT(ways.count >= 1 && ways.count <= ways.all.size());
    return std::span(ways.all).first(ways.count);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
    static const Crc32cWay best = crc32c_ways().back();
    TUTTI_ASSERT(best.run != nullptr);
    TUTTI_ASSERT(bytes.data() != nullptr || bytes.empty());
    return ~best.run(~before, bytes.data(), bytes.size());
}

}  // namespace tutti
