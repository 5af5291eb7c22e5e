// Codec: encodes objects as bytes and decodes them, without copying large tensors from the buffer that is decoded.
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
    tensor = 1,   ///< dtype, dimensions, length of the padding, padding, sizes, elements
    complex = 2,  ///< two float64, little-endian as tensors are
    record = 3,   ///< the type's name: the first item of a list whose second is the map of the fields
    pieces = 4,   ///< the kind of a value: the first item of a list; the others are its pieces, in `bin`
};

/// The most bytes that one string, bin or ext may hold, as its length has 32 bits. Longer values are cut into pieces.
inline constexpr std::size_t largest_piece = 0xffff'0000;

/// An encoded object in 64-byte aligned memory; the buffer's length is a multiple of 64 bytes, and the bytes after the
/// object are zero.
struct Encoded {
    Tensor buffer;
    std::size_t bytes = 0;
};

/// A list of objects as one encoded list.
Encoded encode_list(std::span<const Object> objects, std::size_t piece_bytes = largest_piece);

/// Decodes the object in the first `bytes` of `buffer`. Tensors of 1 MiB or more that fill a good part of the buffer
/// refer to it and keep it alive.
Object decode_shared(const Encoded& encoded);

/// encode() and decode() with strings, for a store, say.
std::string encode_string(const Object& object);
Object decode_string(std::string_view bytes);

std::vector<std::byte> encode_with(const Object& object, std::size_t piece_bytes);

}  // namespace tutti::object
