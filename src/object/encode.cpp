// Objects to bytes.
#include "object/codec.hpp"

namespace tutti::object {
namespace {

template <class Step>
void write_at(Step step, ObjectWriter& out, const Object& object) {
    try {
        write(out, object);
    } catch (const ObjectError& error) {
        throw error.inside(step());
    }
}

void write_entries(ObjectWriter& out, const Object::Map& entries) {
    for (const auto& [key, value] : entries) {
        const auto step = [&entry_key = key] { return detail::key_step(entry_key); };
        write_at(step, out, key);
        write_at(step, out, value);
    }
}

}  // namespace

void write_list(ObjectWriter& out, std::span<const Object> values) {
    out.begin_list(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) write_at([i] { return detail::index_step(i); }, out, values[i]);
    out.end_list();
}

void write(ObjectWriter& out, const Object& object) {
    switch (object.kind()) {
        case ObjectKind::nil: return out.nil();
        case ObjectKind::logical: return out.boolean(object.as_bool());
        case ObjectKind::integer:
            return object.is_large_integer() ? out.natural(object.as_uint64()) : out.integer(object.as_int64());
        case ObjectKind::real: return out.real(object.as_double());
        case ObjectKind::complex: return out.complex(object.as_complex());
        case ObjectKind::string: return out.string(object.as_string());
        case ObjectKind::bytes: return out.bytes(object.as_bytes());
        case ObjectKind::list: return write_list(out, object.as_list());
        case ObjectKind::map:
            out.begin_map(object.as_map().size());
            write_entries(out, object.as_map());
            return out.end_map();
        case ObjectKind::tensor: return out.tensor(object.as_tensor());
        case ObjectKind::record:
            out.begin_record(object.as_record().type, object.as_record().fields.size());
            write_entries(out, object.as_record().fields);
            return out.end_record();
    }
}

EncodedObject encode_list(std::span<const Object> objects, std::size_t piece_bytes) {
    ObjectWriter out(piece_bytes);
    write_list(out, objects);
    return out.finish();
}

std::string encode_string(const Object& object) {
    ObjectWriter out;
    write(out, object);
    std::string result(out.size(), '\0');
    out.copy_to(reinterpret_cast<std::byte*>(result.data()));
    return result;
}

std::vector<std::byte> encode_with(const Object& object, std::size_t piece_bytes) {
    ObjectWriter out(piece_bytes);
    write(out, object);
    std::vector<std::byte> result(out.size());
    out.copy_to(result.data());
    return result;
}

}  // namespace tutti::object

namespace tutti {

std::vector<std::byte> encode(const Object& object) {
    return object::encode_with(object, ObjectWriter::largest_piece);
}

}  // namespace tutti
