// Python's values as the bytes of objects and back. All functions hold the interpreter's lock.
#pragma once

#include "python.hpp"

#include <tutti/object_stream.hpp>

#include <cstddef>

namespace tutti::python {

constexpr const char* failure_type = "tutti.failure";  // the record in place of an object that cannot be sent

/// Writes a value.
///
/// errors   ObjectError, with the place, for a value that does not travel.
void write_value(ObjectWriter& out, nb::handle value, bool allow_pickle);

/// What a rank that receives the value has, without a way through its bytes, which takes longer: containers are copied,
/// and what nobody can change is shared. Null where the value is not made of plain values, lists, tuples and dicts
/// alone. `value`: one that write_value() has written.
nb::object copy_of_plain(nb::handle value);

/// Reads `count` values and appends them to `values`.
///
/// errors   ObjectError, whose path begins with the place in `values`.
void read_values(ObjectReader& in, std::size_t count, bool allow_pickle, nb::list& values);

/// encode_object and decode_object.
void bind_object_values(nb::module_& m);

}  // namespace tutti::python
