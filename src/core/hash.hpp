// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923): for names, and for telling whether ranks mean the same. Short texts, no
// adversary. Values leave the process: in names of files and of sockets, in ports, in values that ranks compare.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr std::uint64_t fnv1a_basis = 0xcbf29ce484222325ULL;

/// A step with a whole word in the place of a byte, which FNV-1a does not define: for words that ranks compare.
constexpr std::uint64_t fnv1a_word(std::uint64_t hash, std::uint64_t word) noexcept {
    return (hash ^ word) * 0x100000001b3ULL;
}

/// The hash of `bytes`, behind the bytes that made `hash`.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = fnv1a_basis) noexcept {
    for (const char c : bytes) hash = fnv1a_word(hash, static_cast<unsigned char>(c));
    return hash;
}

}  // namespace tutti
