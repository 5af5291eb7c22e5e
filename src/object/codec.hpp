// Codec: whole objects as bytes and back, over ObjectWriter and ObjectReader; without copying large tensors from the
// buffer that is decoded.
//
// Threads: functions without state.
#pragma once

#include <tutti/object.hpp>
#include <tutti/object_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::object {

/// Extension types of the encoding; part of the wire format.
enum class Extension : std::int8_t {
    tensor = 1,   ///< dtype, dimensions, length of the padding, padding, sizes, elements
    complex = 2,  ///< two float64, little-endian as tensors are
    record = 3,   ///< the type's name: the first item of a list whose second is the map of the fields
    pieces = 4,   ///< the kind of a value: the first item of a list; the others are its pieces, in `bin`
    tuple = 5,    ///< nothing: the first item of a list; the others are a tuple's
};

/// Throws ObjectError, with the place, for an object that is too deep or not in host memory.
void write(ObjectWriter& out, const Object& object);
void write_list(ObjectWriter& out, std::span<const Object> values);

/// A list of objects as one encoded list.
EncodedObject encode_list(std::span<const Object> objects, std::size_t piece_bytes = ObjectWriter::largest_piece);

/// Decodes an object; its large tensors may refer to the buffer.
Object decode_shared(const EncodedObject& encoded);

/// encode() and decode() with strings, for a store, say.
std::string encode_string(const Object& object);
Object decode_string(std::string_view bytes);

/// encode() with longer values cut into pieces of this length.
std::vector<std::byte> encode_with(const Object& object, std::size_t piece_bytes);

}  // namespace tutti::object
