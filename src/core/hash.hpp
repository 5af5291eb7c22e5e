// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923): for short texts without an adversary, such as names, and for values
// that ranks compare. Other processes see the hashes: in the compared values, in names of files and sockets, and in
// port numbers.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr std::uint64_t fnv1a_basis = 0xcbf29ce484222325ULL;

/// Hashes a 64-bit word in one step instead of eight: an extension of FNV-1a for values that ranks compare.
constexpr std::uint64_t fnv1a_word(std::uint64_t hash, std::uint64_t word) noexcept {
    return (hash ^ word) * 0x100000001b3ULL;
}

/// The hash of `bytes` appended to the bytes whose hash is `hash`.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = fnv1a_basis) noexcept {
    for (const char c : bytes) hash = fnv1a_word(hash, static_cast<unsigned char>(c));
    return hash;
}

}  // namespace tutti
