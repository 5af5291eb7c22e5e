#include "core/stream_copy.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti {

#if defined(__SSE2__)
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    TUTTI_ASSERT(bytes == 0 || to + bytes <= from || from + bytes <= to);
    constexpr std::size_t line = 64;
    const std::size_t head = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
    TUTTI_ASSERT(head < line);
    if (head > 0) std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + line <= bytes; at += line) {
        __m128i part[4];
        for (int i = 0; i < 4; ++i) part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at) + i);
        for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, part[i]);
    }
    TUTTI_ASSERT(at <= bytes && bytes - at < line);
    if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
    _mm_sfence();
}
#else
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    std::memcpy(to, from, bytes);
}
#endif

}  // namespace tutti
