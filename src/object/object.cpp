// Object as a value: making, copying, looking inside, comparing, printing.
#include "core/assert.hpp"

#include <tutti/object.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>

namespace tutti {
namespace {

using Kind = Object::Kind;

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::nil: return "nil";
        case Kind::logical: return "a bool";
        case Kind::integer: return "an integer";
        case Kind::real: return "a real number";
        case Kind::complex: return "a complex number";
        case Kind::string: return "a string";
        case Kind::bytes: return "bytes";
        case Kind::list: return "a list";
        case Kind::map: return "a map";
        case Kind::tensor: return "a tensor";
        case Kind::record: return "a record";
    }
    return "?";
}

bool same_entries(const Object::Map& a, const Object::Map& b) {
    if (a.size() != b.size()) return false;
    if (a == b) return true;
    return std::ranges::is_permutation(a, b);
}

bool same_tensors(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
    const Tensor x = a.view().contiguous() ? a : a.clone(), y = b.view().contiguous() ? b : b.clone();
    return a.byte_count() == 0 || std::memcmp(x.raw_data(), y.raw_data(), a.byte_count()) == 0;
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 200;
    std::string result(1, '"');
    for (const char c : text.substr(0, longest)) {
        if (c == '"' || c == '\\')
            result += '\\', result += c;
        else if (static_cast<unsigned char>(c) < 32)
            result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            result += c;
    }
    result += '"';
    if (text.size() > longest) result += fmt::format("… ({} bytes)", text.size());
    return result;
}

void print(std::string& out, const Object& object);

void print(std::string& out, const Object::Map& entries) {
    out += '{';
    for (const auto& [key, value] : entries) {
        if (&key != &entries.front().first) out += ", ";
        print(out, key);
        out += ": ";
        print(out, value);
    }
    out += '}';
}

void print(std::string& out, const Object& object) {
    switch (object.kind()) {
        case Kind::nil: out += "nil"; break;
        case Kind::logical: out += object.as_bool() ? "true" : "false"; break;
        case Kind::integer:
            out += object.is_large_integer() ? fmt::to_string(object.as_uint64()) : fmt::to_string(object.as_int64());
            break;
        case Kind::real: out += fmt::to_string(object.as_double()); break;
        case Kind::complex:
            out += fmt::format("({}{:+}j)", object.as_complex().real(), object.as_complex().imag());
            break;
        case Kind::string: out += in_quotes(object.as_string()); break;
        case Kind::bytes: out += fmt::format("<{} bytes>", object.size()); break;
        case Kind::list:
            out += '[';
            for (const Object& element : object.as_list()) {
                if (&element != &object.as_list().front()) out += ", ";
                print(out, element);
            }
            out += ']';
            break;
        case Kind::map: print(out, object.as_map()); break;
        case Kind::tensor: out += object.as_tensor().view().to_string(); break;
        case Kind::record:
            out += object.as_record().type;
            print(out, object.as_record().fields);
            break;
    }
}

}  // namespace

ObjectError::ObjectError(const std::string& path, const std::string& reason)
    : InvalidArgument(path.empty() ? reason : fmt::format("{}: {}", path, reason)), path_(path), reason_(reason) {}
ObjectError::~ObjectError() = default;

// ---- Making and copying -------------------------------------------------------------------------------------------

namespace detail {
namespace {

template <class F>
auto with_type_of(Kind kind, F f) {
    TUTTI_ASSERT(kind >= Kind::complex && kind <= Kind::record);
    switch (kind) {
        case Kind::complex: return f.template operator()<std::complex<double>>();
        case Kind::string: return f.template operator()<std::string>();
        case Kind::bytes: return f.template operator()<Object::Bytes>();
        case Kind::list: return f.template operator()<Object::List>();
        case Kind::map: return f.template operator()<Object::Map>();
        case Kind::tensor: return f.template operator()<Tensor>();
        default: return f.template operator()<Object::Record>();
    }
}

}  // namespace

template <class T>
ObjectStorage::ObjectStorage(ObjectKind kind, T value) : kind_(kind) {
    TUTTI_ASSERT(kind >= ObjectKind::complex);
    value_.pointer = new T(std::move(value));
}

ObjectStorage::ObjectStorage(std::uint64_t value) noexcept
    : kind_(ObjectKind::integer),
      is_large_(value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())),
      value_{.natural = value} {}

ObjectStorage::ObjectStorage(const ObjectStorage& other)
    : kind_(other.kind_), is_large_(other.is_large_), value_(other.value_) {
    if (kind_ < ObjectKind::complex) return;
    TUTTI_ASSERT(other.value_.pointer != nullptr);
    value_.pointer = with_type_of(kind_, [&]<class T>() -> void* { return new T(other.on_heap<T>()); });
}

void ObjectStorage::destroy() noexcept {
    TUTTI_ASSERT(kind_ >= ObjectKind::complex && value_.pointer != nullptr);
    with_type_of(kind_, [&]<class T>() { delete static_cast<T*>(value_.pointer); });
}

}  // namespace detail

using detail::ObjectStorage;

Object::Object(std::initializer_list<Object> values) {
    const bool pairs =
        values.size() > 0 && std::ranges::all_of(values, [](const Object& value) {
            return value.kind() == Kind::list && value.size() == 2 && value.as_list()[0].kind() == Kind::string;
        });
    if (!pairs) {
        storage_ = ObjectStorage(Kind::list, List(values));
        return;
    }
    Map entries;
    entries.reserve(values.size());
    for (const Object& value : values) entries.emplace_back(value.as_list()[0], value.as_list()[1]);
    storage_ = ObjectStorage(Kind::map, std::move(entries));
}

Object Object::list(List values) {
    return Object(ObjectStorage(Kind::list, std::move(values)));
}
Object Object::map(Map entries) {
    return Object(ObjectStorage(Kind::map, std::move(entries)));
}
Object Object::bytes(Bytes values) {
    return Object(ObjectStorage(Kind::bytes, std::move(values)));
}
Object Object::string(std::string value) {
    return Object(ObjectStorage(Kind::string, std::move(value)));
}
Object Object::complex(std::complex<double> value) {
    return Object(ObjectStorage(Kind::complex, value));
}
Object Object::tensor(Tensor value) {
    return Object(ObjectStorage(Kind::tensor, std::move(value)));
}
Object Object::record(std::string type, Map fields) {
    for (const auto& [key, value] : fields) {
        if (key.kind() != Kind::string) throw ObjectError(detail::key_step(key), "a field's name must be a string");
    }
    return Object(ObjectStorage(Kind::record, Record{std::move(type), std::move(fields)}));
}
Object Object::boolean(bool value) noexcept {
    return Object(ObjectStorage(value));
}
Object Object::integer(std::int64_t value) noexcept {
    return Object(ObjectStorage(value));
}
Object Object::natural(std::uint64_t value) noexcept {
    return Object(ObjectStorage(value));
}
Object Object::real(double value) noexcept {
    return Object(ObjectStorage(value));
}

// ---- Looking inside -----------------------------------------------------------------------------------------------

std::string Object::description() const {
    switch (kind()) {
        case Kind::string:
        case Kind::bytes: return fmt::format("{} of {} bytes", name_of(kind()), size());
        case Kind::list:
        case Kind::map: return fmt::format("{} of {}", name_of(kind()), size());
        case Kind::tensor: return fmt::format("a tensor {}", as_tensor().view().to_string());
        case Kind::record: return fmt::format("a record {}", as_record().type);
        default: return name_of(kind());
    }
}

bool Object::as_bool() const {
    if (kind() != Kind::logical) detail::throw_unexpected("a bool", *this);
    return storage_.logical();
}
std::int64_t Object::as_int64() const {
    if (kind() != Kind::integer) detail::throw_unexpected("an integer", *this);
    if (is_large_integer())
        throw ObjectError("", fmt::format("expected an integer below 2^63, got {}", storage_.natural()));
    TUTTI_ASSERT(!storage_.is_large());
    return storage_.integer();
}
std::uint64_t Object::as_uint64() const {
    if (kind() != Kind::integer) detail::throw_unexpected("an integer", *this);
    if (is_large_integer()) return storage_.natural();
    if (storage_.integer() < 0)
        throw ObjectError("", fmt::format("expected an integer of zero or more, got {}", storage_.integer()));
    return static_cast<std::uint64_t>(storage_.integer());
}
double Object::as_double() const {
    if (kind() == Kind::real) return storage_.real();
    if (kind() != Kind::integer) detail::throw_unexpected("a number", *this);
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    if (is_large_integer() || storage_.integer() > exact || storage_.integer() < -exact)
        throw ObjectError("", fmt::format("expected a real number, got the integer {}, which a double cannot hold",
                                          to_string(*this)));
    return static_cast<double>(storage_.integer());
}
std::complex<double> Object::as_complex() const {
    if (kind() == Kind::real || kind() == Kind::integer) return as_double();
    if (kind() != Kind::complex) detail::throw_unexpected("a complex number", *this);
    return storage_.on_heap<std::complex<double>>();
}
const std::string& Object::as_string() const {
    if (kind() != Kind::string) detail::throw_unexpected("a string", *this);
    return storage_.on_heap<std::string>();
}
const Object::Bytes& Object::as_bytes() const {
    if (kind() != Kind::bytes) detail::throw_unexpected("bytes", *this);
    return storage_.on_heap<Bytes>();
}
const Object::List& Object::as_list() const {
    if (kind() != Kind::list) detail::throw_unexpected("a list", *this);
    return storage_.on_heap<List>();
}
const Object::Map& Object::as_map() const {
    if (kind() != Kind::map) detail::throw_unexpected("a map", *this);
    return storage_.on_heap<Map>();
}
const Tensor& Object::as_tensor() const {
    if (kind() != Kind::tensor) detail::throw_unexpected("a tensor", *this);
    return storage_.on_heap<Tensor>();
}
const Object::Record& Object::as_record() const {
    if (kind() != Kind::record) detail::throw_unexpected("a record", *this);
    return storage_.on_heap<Record>();
}

std::size_t Object::size() const {
    switch (kind()) {
        case Kind::string: return as_string().size();
        case Kind::bytes: return as_bytes().size();
        case Kind::list: return as_list().size();
        case Kind::map: return as_map().size();
        case Kind::record: return as_record().fields.size();
        default: detail::throw_unexpected("something with a size", *this);
    }
}

const Object* Object::find(const Object& key) const {
    if (kind() == Kind::list) {
        const std::int64_t index = key.as_int64();
        const List& values = as_list();
        const bool inside = index >= 0 && static_cast<std::size_t>(index) < values.size();
        return inside ? &values[static_cast<std::size_t>(index)] : nullptr;
    }
    if (kind() != Kind::map && kind() != Kind::record) detail::throw_unexpected("a map, record or list", *this);
    const Map& entries = kind() == Kind::map ? as_map() : as_record().fields;
    const auto found = std::ranges::find(entries, key, &Map::value_type::first);
    return found == entries.end() ? nullptr : &found->second;
}

const Object& Object::at(const Object& key) const {
    if (const Object* found = find(key)) return *found;
    throw ObjectError(detail::key_step(key), fmt::format("is missing in {}", description()));
}

bool operator==(const Object& a, const Object& b) {
    if (a.kind() != b.kind() || a.is_large_integer() != b.is_large_integer()) return false;
    switch (a.kind()) {
        case Kind::nil: return true;
        case Kind::logical: return a.storage_.logical() == b.storage_.logical();
        case Kind::integer: return a.storage_.integer() == b.storage_.integer();
        case Kind::real: return a.storage_.real() == b.storage_.real();
        case Kind::complex: return a.as_complex() == b.as_complex();
        case Kind::string: return a.as_string() == b.as_string();
        case Kind::bytes: return a.as_bytes() == b.as_bytes();
        case Kind::list: return a.as_list() == b.as_list();
        case Kind::map: return same_entries(a.as_map(), b.as_map());
        case Kind::tensor: return same_tensors(a.as_tensor(), b.as_tensor());
        case Kind::record:
            return a.as_record().type == b.as_record().type && same_entries(a.as_record().fields, b.as_record().fields);
    }
    return false;
}

std::string to_string(const Object& object) {
    std::string text;
    print(text, object);
    return text;
}
std::ostream& operator<<(std::ostream& out, const Object& object) {
    return out << to_string(object);
}

// ---- Parts of the conversions -------------------------------------------------------------------------------------

namespace detail {

std::string key_step(const Object& key) {
    if (key.kind() == Kind::string) return fmt::format(".{}", key.as_string());
    const bool is_short = key.kind() < Kind::string;
    return fmt::format("[{}]", is_short ? to_string(key) : key.description());
}
std::string index_step(std::size_t index) {
    return fmt::format("[{}]", index);
}

void throw_unexpected(std::string_view expected, const Object& got) {
    throw ObjectError("", fmt::format("expected {}, got {}", expected, got.description()));
}
void throw_unexpected_count(std::string_view what, std::size_t count, const Object& got) {
    TUTTI_ASSERT(what.find('{') != std::string_view::npos);
    throw_unexpected(fmt::format(fmt::runtime(what), count), got);
}
void throw_out_of_range(const Object& min, const Object& max, const Object& got) {
    throw ObjectError(
        "", fmt::format("expected an integer from {} to {}, got {}", to_string(min), to_string(max), to_string(got)));
}

const void* elements_of(const Object& object, DType dtype, std::size_t& count) {
    static constexpr std::byte nothing{};
    if (object.kind() == Kind::bytes && dtype == DType::uint8) {
        count = object.size();
        return count > 0 ? object.as_bytes().data() : &nothing;
    }
    if (object.kind() != Kind::tensor) return nullptr;
    const Tensor& tensor = object.as_tensor();
    if (tensor.dtype() != dtype || tensor.shape().size() != 1 || !tensor.view().contiguous() ||
        tensor.device().type != Device::Type::cpu) {
        throw_unexpected(fmt::format("a tensor {} of one dimension", to_string(dtype)), object);
    }
    TUTTI_ASSERT(tensor.element_count() >= 0);
    count = static_cast<std::size_t>(tensor.element_count());
    return count > 0 ? tensor.raw_data() : &nothing;
}

Object tensor_of(const void* data, std::size_t count, DType dtype) {
    TUTTI_ASSERT(data != nullptr || count == 0);
    if (dtype == DType::uint8) {
        const auto* bytes = static_cast<const std::byte*>(data);
        return Object::bytes(Object::Bytes(bytes, bytes + count));
    }
    Tensor tensor = empty(dtype, Extents::of(static_cast<std::int64_t>(count)));
    if (count > 0) std::memcpy(tensor.raw_data(), data, tensor.byte_count());
    return Object::tensor(std::move(tensor));
}

FieldReader::FieldReader(const Object& object, const char* type) : type_(type) {
    TUTTI_ASSERT(type != nullptr);
    if (object.kind() == Kind::record && object.as_record().type == type)
        fields_ = &object.as_record().fields;
    else if (object.kind() == Kind::map)
        fields_ = &object.as_map();
    else
        throw_unexpected(fmt::format("a record {}", type), object);
    TUTTI_ASSERT(fields_ != nullptr);
}

const Object* FieldReader::find(const char* name) {
    TUTTI_ASSERT(name != nullptr && fields_ != nullptr);
    for (const auto& [key, value] : *fields_) {
        if (key.kind() != Kind::string || key.as_string() != name) continue;
        ++found_;
        return &value;
    }
    return nullptr;
}

void FieldReader::throw_missing(const char* name) const {
    throw ObjectError(fmt::format(".{}", name), fmt::format("is missing in the fields of {}", type_));
}

void FieldReader::finish(std::initializer_list<const char*> names) const {
    TUTTI_ASSERT(found_ <= std::max(fields_->size(), names.size()));
    if (found_ == fields_->size()) return;
    for (const auto& [key, value] : *fields_) {
        const bool known = key.kind() == Kind::string &&
                           std::ranges::any_of(names, [&](const char* name) { return key.as_string() == name; });
        if (!known) throw ObjectError(key_step(key), fmt::format("{} has no such field", type_));
    }
    throw ObjectError("", fmt::format("a field of {} is there twice", type_));
}

}  // namespace detail
}  // namespace tutti
