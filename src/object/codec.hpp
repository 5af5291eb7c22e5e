// Codec: objects to bytes and back, without a copy of large tensors on the way in.
//
// Threads: functions without state.
#pragma once

#include <tutti/object.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::object {

/// Extension types of the encoding; part of the wire format.
enum class Extension : std::int8_t {
    tensor = 1,   ///< dtype, dimensions, padding's length, padding, sizes, elements
    complex = 2,  ///< two float64, little-endian as tensors are
    record = 3,   ///< first of a list of two: the type's name; the second is the map of the fields
    pieces = 4,   ///< first of a list: the kind of value that is cut; the others are its pieces, in `bin`
};

/// The most bytes that one string, bin or ext can hold: 32 bits of length. Longer ones are cut into pieces.
inline constexpr std::size_t largest_piece = 0xffff'0000;

/// 64-byte aligned memory with an encoded object; the buffer is a multiple of 64 bytes long, its end is zero.
struct Encoded {
    Tensor buffer;
    std::size_t bytes = 0;
};

/// A list of objects as one encoded list.
Encoded encode_list(std::span<const Object> objects, std::size_t piece_bytes = largest_piece);

/// The object in the first `bytes` of `buffer`. Tensors of 1 MiB or more that fill a good part of the buffer stay in it
/// and keep it alive.
Object decode_shared(const Encoded& encoded);

/// encode() and decode() for carriers of strings, such as a store.
std::string encode_string(const Object& object);
Object decode_string(std::string_view bytes);

std::vector<std::byte> encode_with(const Object& object, std::size_t piece_bytes);

}  // namespace tutti::object
