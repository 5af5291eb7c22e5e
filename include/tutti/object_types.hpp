// The C++ types that convert to and from Object, and how to add user types.
//
//   bool, integers, enums, float, double, std::complex    numbers; out of range: ObjectError
//   std::string, std::string_view, literals               strings
//   std::vector<std::byte or std::uint8_t>, spans         bytes
//   std::vector, std::array of other numbers              tensors of one dimension (lists are read too)
//   std::vector, std::array of anything else, std::set,
//   std::pair, std::tuple                                 lists
//   std::map, std::unordered_map                          maps
//   Tensor, TensorView (copied)                           tensors
//   std::optional, nullptr                                the value or nil
//   std::variant                                          the value; read as the first alternative that fits
//   types with TUTTI_OBJECT, or with to_object/from_object
#pragma once

#include <tutti/object.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

namespace tutti {
namespace detail {

template <class T>
concept ObjectValue = std::same_as<T, Object> || ObjectConvertible<T>;

template <class T>
void read_object(const Object& object, T& value) {
    if constexpr (std::same_as<T, Object>) {
        value = object;
    } else if constexpr (requires { ObjectTraits<T>::from(object, value); }) {
        ObjectTraits<T>::from(object, value);
    } else {
        from_object(object, value);
    }
}
/// Reads an inner value; adds `step` to the path of its errors.
template <class T>
void read_inside(const Object& object, T& value, const std::string& step) {
    try {
        read_object(object, value);
    } catch (const ObjectError& error) {
        throw error.inside(step);
    }
}
TUTTI_API std::string index_step(std::size_t index);  ///< "[3]"
TUTTI_API std::string key_step(const Object& key);    ///< ".name", "[1]"
[[noreturn]] TUTTI_API void throw_unexpected(std::string_view expected, const Object& got);
/// "expected 3 elements": `what` with one {} for the number.
[[noreturn]] TUTTI_API void throw_unexpected_count(std::string_view what, std::size_t count, const Object& got);
[[noreturn]] TUTTI_API void throw_out_of_range(const Object& min, const Object& max, const Object& got);
/// Elements of a tensor of one dimension, or of bytes; nullptr when `object` is something else.
TUTTI_API const void* elements_of(const Object& object, DType dtype, std::size_t& count);
TUTTI_API Object tensor_of(const void* data, std::size_t count, DType dtype);

/// Reads the fields of a record (or of a map with string keys).
class TUTTI_API FieldReader {
 public:
    FieldReader(const Object& object, const char* type);
    template <class T>
    void read(const char* name, T& value) {
        if (const Object* field = find(name)) return read_inside(*field, value, std::string(".") + name);
        if constexpr (requires { value.reset(), value.has_value(); })
            value.reset();
        else
            throw_missing(name);
    }
    /// Throws ObjectError if the record has an unknown field, or a field twice.
    void finish(std::initializer_list<const char*> names) const;

 private:
    const Object* find(const char* name);
    [[noreturn]] void throw_missing(const char* name) const;
    const char* type_;
    const Object::Map* fields_;
    std::size_t found_ = 0;
};

// ---- Numbers and strings ------------------------------------------------------------------------------------------

template <>
struct ObjectTraits<std::nullptr_t> {
    static Object to(std::nullptr_t) { return {}; }
};
template <>
struct ObjectTraits<bool> {
    static Object to(bool value) { return Object::boolean(value); }
    static void from(const Object& object, bool& value) { value = object.as_bool(); }
};
template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct ObjectTraits<T> {
    static Object to(T value) {
        if constexpr (std::is_signed_v<T>)
            return Object::integer(value);
        else
            return Object::natural(value);
    }
    static void from(const Object& object, T& value) {
        using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
        Wide wide{};
        if constexpr (std::is_signed_v<T>)
            wide = object.as_int64();
        else
            wide = object.as_uint64();
        if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max()) {
            throw_out_of_range(std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), object);
        }
        value = static_cast<T>(wide);
    }
};
template <class T>
requires std::is_enum_v<T> &&(!std::same_as<T, std::byte>)struct ObjectTraits<T> {
    using Number = std::underlying_type_t<T>;
    static Object to(T value) { return ObjectTraits<Number>::to(static_cast<Number>(value)); }
    static void from(const Object& object, T& value) {
        Number number{};
        ObjectTraits<Number>::from(object, number);
        value = static_cast<T>(number);
    }
};
template <class T>
requires(std::same_as<T, float> || std::same_as<T, double>) struct ObjectTraits<T> {
    static Object to(T value) { return Object::real(value); }
    static void from(const Object& object, T& value) { value = static_cast<T>(object.as_double()); }
};
template <class T>
struct ObjectTraits<std::complex<T>> {
    static Object to(const std::complex<T>& value) { return Object::complex(std::complex<double>(value)); }
    static void from(const Object& object, std::complex<T>& value) { value = std::complex<T>(object.as_complex()); }
};
template <>
struct ObjectTraits<std::string> {
    static Object to(const std::string& value) { return Object::string(value); }
    static void from(const Object& object, std::string& value) { value = object.as_string(); }
};
template <>
struct ObjectTraits<std::string_view> {
    static Object to(std::string_view value) { return Object::string(std::string(value)); }
};
template <>
struct ObjectTraits<const char*> {
    static Object to(const char* value) { return Object::string(value); }
};
template <std::size_t N>
struct ObjectTraits<char[N]> {
    static Object to(const char* value) { return Object::string(value); }
};
template <>
struct ObjectTraits<Tensor> {
    static Object to(const Tensor& value) { return Object::tensor(value); }
    static void from(const Object& object, Tensor& value) { value = object.as_tensor(); }
};
template <class T>
requires(std::same_as<T, TensorView> || std::same_as<T, ConstTensorView>) struct ObjectTraits<T> {
    static Object to(const ConstTensorView& value) {
        Tensor copied = empty(value.dtype(), value.shape());
        copy(copied.view(), value);
        return Object::tensor(std::move(copied));
    }
};

// ---- Containers ---------------------------------------------------------------------------------------------------

template <class T>
concept TensorElement = Element<T> && !std::same_as<T, bool>;

// Calls f(i, element) for each element of a list; `expected` is its length, or -1 for any.
template <class F>
void for_each_element(const Object& object, std::ptrdiff_t expected, F f) {
    const Object::List& list = object.as_list();
    if (expected >= 0 && list.size() != static_cast<std::size_t>(expected))
        throw_unexpected_count("a list of {}", static_cast<std::size_t>(expected), object);
    for (std::size_t i = 0; i < list.size(); ++i) f(i, list[i]);
}
template <class Range>
Object list_of(const Range& range) {
    Object::List list;
    list.reserve(range.size());
    for (const auto& element : range) list.emplace_back(element);
    return Object::list(std::move(list));
}
template <class T>
requires TensorElement<T> || ObjectValue<T>
struct ObjectTraits<std::vector<T>> {
    static Object to(const std::vector<T>& values) {
        if constexpr (TensorElement<T>)
            return tensor_of(values.data(), values.size(), dtype_of<T>);
        else if constexpr (std::same_as<T, Object>)
            return Object::list(values);
        else
            return list_of(values);
    }
    static void from(const Object& object, std::vector<T>& values) {
        if constexpr (TensorElement<T>) {
            std::size_t count = 0;
            if (const void* data = elements_of(object, dtype_of<T>, count)) {
                values.assign(static_cast<const T*>(data), static_cast<const T*>(data) + count);
                return;
            }
        }
        if constexpr (std::same_as<T, bool>) {
            values.clear();
            for_each_element(object, -1, [&](std::size_t i, const Object& element) {
                bool value = false;
                read_inside(element, value, index_step(i));
                values.push_back(value);
            });
        } else if constexpr (ObjectValue<T>) {
            values.clear();
            for_each_element(object, -1, [&](std::size_t i, const Object& element) {
                read_inside(element, values.emplace_back(), index_step(i));
            });
        } else {
            throw_unexpected("a tensor of one dimension", object);
        }
    }
};
template <class T, std::size_t N>
requires TensorElement<T> || ObjectValue<T>
struct ObjectTraits<std::array<T, N>> {
    static Object to(const std::array<T, N>& values) {
        if constexpr (TensorElement<T>)
            return tensor_of(values.data(), N, dtype_of<T>);
        else
            return list_of(values);
    }
    static void from(const Object& object, std::array<T, N>& values) {
        if constexpr (TensorElement<T>) {
            std::size_t count = 0;
            if (const void* data = elements_of(object, dtype_of<T>, count)) {
                if (count != N) throw_unexpected_count("{} elements", N, object);
                std::copy_n(static_cast<const T*>(data), N, values.begin());
                return;
            }
        }
        if constexpr (ObjectValue<T>) {
            for_each_element(object, static_cast<std::ptrdiff_t>(N), [&](std::size_t i, const Object& element) {
                read_inside(element, values[i], index_step(i));
            });
        } else {
            throw_unexpected("a tensor of one dimension", object);
        }
    }
};
template <class T, std::size_t N>
requires TensorElement<std::remove_const_t<T>>
struct ObjectTraits<std::span<T, N>> {
    static Object to(std::span<T, N> values) {
        return tensor_of(values.data(), values.size(), dtype_of<std::remove_const_t<T>>);
    }
};
template <ObjectValue T, class... Rest>
struct ObjectTraits<std::set<T, Rest...>> {
    static Object to(const std::set<T, Rest...>& values) { return list_of(values); }
    static void from(const Object& object, std::set<T, Rest...>& values) {
        values.clear();
        for_each_element(object, -1, [&](std::size_t i, const Object& element) {
            T value{};
            read_inside(element, value, index_step(i));
            values.insert(std::move(value));
        });
    }
};

template <class M>
struct MapTraits {
    static Object to(const M& values) {
        Object::Map entries;
        entries.reserve(values.size());
        for (const auto& [key, value] : values) entries.emplace_back(key, value);
        return Object::map(std::move(entries));
    }
    static void from(const Object& object, M& values) {
        values.clear();
        for (const auto& [key, value] : object.as_map()) {
            typename M::key_type k{};
            const std::string step = key_step(key);
            read_inside(key, k, step);
            read_inside(value, values[std::move(k)], step);
        }
    }
};
template <ObjectValue K, ObjectValue V, class... Rest>
struct ObjectTraits<std::map<K, V, Rest...>> : MapTraits<std::map<K, V, Rest...>> {};
template <ObjectValue K, ObjectValue V, class... Rest>
struct ObjectTraits<std::unordered_map<K, V, Rest...>> : MapTraits<std::unordered_map<K, V, Rest...>> {};

template <class Tuple>
struct TupleTraits {
    static constexpr std::size_t size = std::tuple_size_v<Tuple>;
    static Object to(const Tuple& values) {
        Object::List list;
        list.reserve(size);
        std::apply([&](const auto&... value) { (list.emplace_back(value), ...); }, values);
        return Object::list(std::move(list));
    }
    static void from(const Object& object, Tuple& values) {
        for_each_element(object, static_cast<std::ptrdiff_t>(size), [](std::size_t, const Object&) {});
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (read_inside(object.as_list()[I], std::get<I>(values), index_step(I)), ...);
        }
        (std::make_index_sequence<size>{});
    }
};
template <ObjectValue... T>
struct ObjectTraits<std::tuple<T...>> : TupleTraits<std::tuple<T...>> {};
template <ObjectValue A, ObjectValue B>
struct ObjectTraits<std::pair<A, B>> : TupleTraits<std::pair<A, B>> {};

template <ObjectValue T>
struct ObjectTraits<std::optional<T>> {
    static Object to(const std::optional<T>& value) { return value ? Object(*value) : Object(); }
    static void from(const Object& object, std::optional<T>& value) {
        std::optional<T> read;
        if (!object.is_nil()) read_object(object, read.emplace());
        value = std::move(read);
    }
};
template <>
struct ObjectTraits<std::monostate> {
    static Object to(std::monostate) { return {}; }
    static void from(const Object& object, std::monostate&) {
        if (!object.is_nil()) throw_unexpected("nil", object);
    }
};
template <ObjectValue... T>
struct ObjectTraits<std::variant<T...>> {
    static Object to(const std::variant<T...>& value) {
        return std::visit([](const auto& held) { return Object(held); }, value);
    }
    static void from(const Object& object, std::variant<T...>& value) {
        const bool fits = (try_as<T>(object, value) || ...);
        if (!fits) throw_unexpected_count("one of {} alternatives", sizeof...(T), object);
    }

 private:
    template <class U>
    static bool try_as(const Object& object, std::variant<T...>& value) {
        try {
            U held{};
            read_object(object, held);
            value = std::move(held);
            return true;
        } catch (const ObjectError&) {
            return false;
        }
    }
};

template <class T>
Object object_of(const T& value) {
    if constexpr (HasTraits<T>)
        return ObjectTraits<T>::to(value);
    else
        return to_object(value);
}

}  // namespace detail

template <class T>
T Object::get() const {
    T value{};
    detail::read_object(*this, value);
    return value;
}

}  // namespace tutti

// Applies f(x) to each of up to 256 arguments.
#define TUTTI_DETAIL_PARENS ()
#define TUTTI_DETAIL_EXPAND(...) TUTTI_DETAIL_EXPAND3(TUTTI_DETAIL_EXPAND3(TUTTI_DETAIL_EXPAND3(__VA_ARGS__)))
#define TUTTI_DETAIL_EXPAND3(...) TUTTI_DETAIL_EXPAND2(TUTTI_DETAIL_EXPAND2(TUTTI_DETAIL_EXPAND2(__VA_ARGS__)))
#define TUTTI_DETAIL_EXPAND2(...) TUTTI_DETAIL_EXPAND1(TUTTI_DETAIL_EXPAND1(TUTTI_DETAIL_EXPAND1(__VA_ARGS__)))
#define TUTTI_DETAIL_EXPAND1(...) TUTTI_DETAIL_EXPAND0(TUTTI_DETAIL_EXPAND0(TUTTI_DETAIL_EXPAND0(__VA_ARGS__)))
#define TUTTI_DETAIL_EXPAND0(...) __VA_ARGS__
#define TUTTI_DETAIL_EACH(f, ...) __VA_OPT__(TUTTI_DETAIL_EXPAND(TUTTI_DETAIL_STEP(f, __VA_ARGS__)))
#define TUTTI_DETAIL_STEP(f, first, ...) f(first) __VA_OPT__(TUTTI_DETAIL_AGAIN TUTTI_DETAIL_PARENS(f, __VA_ARGS__))
#define TUTTI_DETAIL_AGAIN() TUTTI_DETAIL_STEP
#define TUTTI_DETAIL_PUT(field) tutti_fields.emplace_back(#field, tutti_value.field);
#define TUTTI_DETAIL_TAKE(field) tutti_reader.read(#field, tutti_value.field);
#define TUTTI_DETAIL_NAME(field) #field,

/// Converts a struct to an Object and back: TUTTI_OBJECT(Shard, path, rows); in the namespace of Shard, after it.
/// Public fields travel by name, under the type's name as written here; a std::optional field may be missing.
#define TUTTI_OBJECT(Type, ...)                                                                   \
    [[maybe_unused]] inline ::tutti::Object to_object([[maybe_unused]] const Type& tutti_value) { \
        ::tutti::Object::Map tutti_fields;                                                        \
        TUTTI_DETAIL_EACH(TUTTI_DETAIL_PUT, __VA_ARGS__)                                          \
        return ::tutti::Object::record(#Type, std::move(tutti_fields));                           \
    }                                                                                             \
    [[maybe_unused]] inline void from_object(const ::tutti::Object& tutti_object,                 \
                                             [[maybe_unused]] Type& tutti_value) {                \
        ::tutti::detail::FieldReader tutti_reader(tutti_object, #Type);                           \
        TUTTI_DETAIL_EACH(TUTTI_DETAIL_TAKE, __VA_ARGS__)                                         \
        tutti_reader.finish({TUTTI_DETAIL_EACH(TUTTI_DETAIL_NAME, __VA_ARGS__)});                 \
    }                                                                                             \
    static_assert(true, "a semicolon follows")
