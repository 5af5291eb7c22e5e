// Object: a value that describes itself. The object collectives send it, and C++ types convert to and from it.
//
// nil, bool, integers, real and complex numbers, strings, bytes, lists, maps (any key; order kept), tensors, and
// records: named fields of a user type. Nothing is ever executed: unknown types and damaged bytes are errors that name
// the place.
//
//     tutti::Object settings{{"lr", 0.1}, {"layers", {64, 10}}};
//     double rate = settings.at("lr").get<double>();
//
//     struct Shard { std::string path; std::int64_t rows; };
//     TUTTI_OBJECT(Shard, path, rows);          // or two functions beside Shard: to_object and from_object
//
// Threads: a value, like std::string. Copies are deep, except that tensors share their memory, as copies of Tensor do.
#pragma once

#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <tutti/tensor.hpp>

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

class Object;

/// An unexpected value inside an object, or inside the bytes of one. `path` leads to the place: "[2].name"; empty: the
/// object itself.
class TUTTI_API ObjectError : public InvalidArgument {
 public:
    ObjectError(const std::string& path, const std::string& reason);
    ~ObjectError() override;
    const std::string& path() const noexcept { return path_; }
    const std::string& reason() const noexcept { return reason_; }
    /// The same error for the enclosing object: `step` comes first in the path.
    ObjectError inside(const std::string& step) const { return {step + path_, reason_}; }

 private:
    std::string path_, reason_;
};

namespace detail {
/// The conversion of a C++ type to an object and back; specialised in object_types.hpp.
template <class T>
struct ObjectTraits {};
template <class T>
concept HasTraits = requires(const T& value) {
    ObjectTraits<T>::to(value);
};
/// Whether the namespace of T has a function to_object() for it.
template <class T>
concept HasToObject = requires(const T& value) {
    { to_object(value) } -> std::same_as<Object>;
};
/// Converts by the type's ObjectTraits, or by the user's to_object.
template <class T>
Object object_of(const T& value);
}  // namespace detail

/// A type that converts to an Object: see object_types.hpp for the list.
template <class T>
concept ObjectConvertible = !std::same_as<T, Object> && (detail::HasTraits<T> || detail::HasToObject<T>);

enum class ObjectKind : std::uint8_t {
    nil,
    logical,  ///< a bool
    integer,
    real,
    complex,
    string,
    bytes,
    list,
    map,
    tensor,
    record
};

namespace detail {
/// The storage of an Object's value: a bool, an integer or a real number lies inline, any other value on the heap.
/// Invariant: from ObjectKind::complex on the value is a pointer to an object of its own, whose type the kind says.
class TUTTI_API ObjectStorage {
 public:
    ObjectStorage() noexcept = default;  ///< nil
    explicit ObjectStorage(bool value) noexcept : kind_(ObjectKind::logical), value_{.logical = value} {}
    explicit ObjectStorage(std::int64_t value) noexcept : kind_(ObjectKind::integer), value_{.integer = value} {}
    explicit ObjectStorage(std::uint64_t value) noexcept;
    explicit ObjectStorage(double value) noexcept : kind_(ObjectKind::real), value_{.real = value} {}
    /// Stores a value of a kind that lies on the heap.
    template <class T>
    ObjectStorage(ObjectKind kind, T value);
    ObjectStorage(const ObjectStorage& other);
    /// `other` is nil afterwards.
    ObjectStorage(ObjectStorage&& other) noexcept
        : kind_(other.kind_), is_large_(other.is_large_), value_(other.value_) {
        other.kind_ = ObjectKind::nil;
        other.is_large_ = false;
    }
    ObjectStorage& operator=(ObjectStorage other) noexcept {
        std::swap(kind_, other.kind_);
        std::swap(is_large_, other.is_large_);
        std::swap(value_, other.value_);
        return *this;
    }
    ~ObjectStorage() {
        if (kind_ >= ObjectKind::complex) destroy();
    }

    ObjectKind kind() const noexcept { return kind_; }
    /// Whether the value is an integer above the largest int64.
    bool is_large() const noexcept { return is_large_; }
    // Precondition of each: kind() is its kind.
    bool logical() const noexcept { return value_.logical; }
    std::int64_t integer() const noexcept { return value_.integer; }
    std::uint64_t natural() const noexcept { return value_.natural; }
    double real() const noexcept { return value_.real; }
    template <class T>
    const T& on_heap() const noexcept {
        return *static_cast<const T*>(value_.pointer);
    }

 private:
    union Value {
        bool logical;
        std::int64_t integer;
        std::uint64_t natural;
        double real;
        void* pointer;
    };
    void destroy() noexcept;

    ObjectKind kind_ = ObjectKind::nil;
    bool is_large_ = false;
    Value value_{};
};
}  // namespace detail

class TUTTI_API Object {
 public:
    using Kind = ObjectKind;
    using Bytes = std::vector<std::byte>;
    using List = std::vector<Object>;
    using Map = std::vector<std::pair<Object, Object>>;
    struct Record;

    Object() noexcept = default;  ///< nil
    /// {{"a", 1}, {"b", {2, 3}}} is a map when every entry is a pair whose first half is a string; anything else in
    /// braces is a list. Call list() or map() if that guess is wrong: map({{1, 2}}), list({x}). To copy, write
    /// Object(x): one object alone in braces means itself to some compilers and a list of one to others.
    Object(std::initializer_list<Object> values);
    template <class T>
    requires ObjectConvertible<T> Object(const T& value)  // NOLINT(google-explicit-constructor): as in a literal
        : Object(detail::object_of(value)) {}

    static Object list(List values = {});
    static Object map(Map entries = {});
    static Object bytes(Bytes values);
    static Object string(std::string value);
    static Object boolean(bool value) noexcept;
    static Object integer(std::int64_t value) noexcept;
    static Object natural(std::uint64_t value) noexcept;
    static Object real(double value) noexcept;
    static Object complex(std::complex<double> value);
    static Object tensor(Tensor value);
    /// A user type: its name, and fields whose keys are strings.
    static Object record(std::string type, Map fields);

    Kind kind() const noexcept { return storage_.kind(); }
    bool is_nil() const noexcept { return kind() == Kind::nil; }
    /// Whether the value is an integer that only an unsigned type holds: 2^63 or more.
    bool is_large_integer() const noexcept { return storage_.is_large(); }
    /// For messages: "a string", "an integer", "a list of 3", "a record Shard".
    std::string description() const;

    /// The value as a C++ type. Throws ObjectError that names the place, the expected kind and the kind that is there.
    template <class T>
    T get() const;

    // The value it holds; ObjectError if it is of another kind. Changes through the references are kept.
    bool as_bool() const;
    std::int64_t as_int64() const;
    std::uint64_t as_uint64() const;
    double as_double() const;  ///< also of an integer that a double holds exactly
    std::complex<double> as_complex() const;
    const std::string& as_string() const;
    const Bytes& as_bytes() const;
    const List& as_list() const;
    const Map& as_map() const;
    const Tensor& as_tensor() const;
    const Record& as_record() const;
    std::string& as_string() { return const_cast<std::string&>(std::as_const(*this).as_string()); }
    Bytes& as_bytes() { return const_cast<Bytes&>(std::as_const(*this).as_bytes()); }
    List& as_list() { return const_cast<List&>(std::as_const(*this).as_list()); }
    Map& as_map() { return const_cast<Map&>(std::as_const(*this).as_map()); }
    Tensor& as_tensor() { return const_cast<Tensor&>(std::as_const(*this).as_tensor()); }
    Record& as_record() { return const_cast<Record&>(std::as_const(*this).as_record()); }

    /// Number of entries of a list, map or record; bytes of a string or of bytes; otherwise ObjectError.
    std::size_t size() const;
    /// The entry of a map, the field of a record, or (with an integer) the element of a list; null if there is none.
    /// Looks through the entries in order.
    const Object* find(const Object& key) const;
    /// As find; ObjectError if there is none.
    const Object& at(const Object& key) const;
    Object& at(const Object& key) { return const_cast<Object&>(std::as_const(*this).at(key)); }

    /// Equal kinds and contents. Maps are equal in any order; tensors by dtype, shape and bytes; 1 is not 1.0.
    friend TUTTI_API bool operator==(const Object& a, const Object& b);
    friend TUTTI_API std::ostream& operator<<(std::ostream& out, const Object& object);

 private:
    explicit Object(detail::ObjectStorage storage) noexcept : storage_(std::move(storage)) {}
    detail::ObjectStorage storage_;
};

struct Object::Record {
    std::string type;
    Map fields;
};

/// Readable, in one line: {"lr": 0.1, 1: [true, nil]}; long strings cut, tensors by dtype and shape only.
TUTTI_API std::string to_string(const Object& object);

/// The deepest nesting of lists and maps that encode() and decode() accept; a record counts as two levels.
inline constexpr std::size_t max_object_depth = 256;

/// The bytes of an object: MessagePack, with extension types for tensors, complex numbers and records; see
/// src/object/README.md. Throws ObjectError for an object that is too deep or not in host memory.
TUTTI_API std::vector<std::byte> encode(const Object& object);

/// Decodes `bytes`, which may be untrusted. Throws ObjectError naming the place for bytes that are cut off, too long,
/// too deep, inconsistent or of an unknown extension type. Uses at most about 64 bytes of memory for each byte of
/// input, whatever lengths the input claims.
TUTTI_API Object decode(std::span<const std::byte> bytes);

}  // namespace tutti

#include <tutti/object_types.hpp>
