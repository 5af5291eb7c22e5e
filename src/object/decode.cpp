// Bytes to objects, from bytes that may come from anybody.
//
// Memory is bounded by the input: what a reader announces never exceeds it, so the reserved memory never exceeds a
// fixed number of bytes for each byte of input. Depth is bounded too, so nothing here or in Object's destructor runs
// out of stack.
#include "object/codec.hpp"

namespace tutti::object {
namespace {

Object read(ObjectReader& in);

template <class Step>
Object read_at(Step step, ObjectReader& in) {
    try {
        return read(in);
    } catch (const ObjectError& error) {
        throw error.inside(step());
    }
}

Object::List read_list(ObjectReader& in) {
    const std::size_t count = in.count();
    Object::List list;
    list.reserve(count);
    for (std::size_t i = 0; i < count; ++i) list.push_back(read_at([i] { return detail::index_step(i); }, in));
    return list;
}

Object read_list_or_tuple(ObjectReader& in) {
    const bool is_tuple = in.is_tuple();
    Object list = Object::list(read_list(in));
    if (!is_tuple) {
        in.end_list();
        return list;
    }
    in.end_tuple();
    Object::Map fields;
    fields.emplace_back("items", std::move(list));
    return Object::record("python.tuple", std::move(fields));
}

Object::Map read_map(ObjectReader& in) {
    const std::size_t count = in.count();
    Object::Map map;
    map.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Object key = read(in);
        Object value = read_at([&key] { return detail::key_step(key); }, in);
        map.emplace_back(std::move(key), std::move(value));
    }
    in.end_map();
    return map;
}

Object read_record(ObjectReader& in) {
    std::string type(in.text());
    const std::size_t count = in.count();
    Object::Map fields;
    fields.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Object name = Object::string(std::string(in.field()));
        Object value = read_at([&name] { return detail::key_step(name); }, in);
        fields.emplace_back(std::move(name), std::move(value));
    }
    in.end_record();
    return Object::record(std::move(type), std::move(fields));
}

Object read(ObjectReader& in) {
    switch (in.next()) {
        case ObjectKind::nil: break;
        case ObjectKind::logical: return Object::boolean(in.logical());
        case ObjectKind::integer: return in.is_large() ? Object::natural(in.natural()) : Object::integer(in.integer());
        case ObjectKind::real: return Object::real(in.real());
        case ObjectKind::complex: return Object::complex(in.complex());
        case ObjectKind::string: return Object::string(std::string(in.text()));
        case ObjectKind::bytes: {
            const auto* data = reinterpret_cast<const std::byte*>(in.text().data());
            return Object::bytes(Object::Bytes(data, data + in.text().size()));
        }
        case ObjectKind::list: return read_list_or_tuple(in);
        case ObjectKind::map: return Object::map(read_map(in));
        case ObjectKind::tensor: return Object::tensor(in.tensor());
        case ObjectKind::record: return read_record(in);
    }
    return {};
}

Object read_whole(ObjectReader in) {
    Object object = read(in);
    in.finish();
    return object;
}

}  // namespace

Object decode_string(std::string_view bytes) {
    return decode(std::as_bytes(std::span(bytes)));
}

Object decode_shared(const EncodedObject& encoded) {
    return read_whole(ObjectReader(encoded));
}

}  // namespace tutti::object

namespace tutti {

Object decode(std::span<const std::byte> bytes) {
    return object::read_whole(ObjectReader(bytes));
}

}  // namespace tutti
