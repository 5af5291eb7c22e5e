// ObjectWriter and ObjectReader: the bytes of objects, value by value, without an Object in between. Bindings convert
// their own values by them; encode() and decode() are made of them. src/object/README.md describes the bytes.
//
// Threads: one at a time.
#pragma once

#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <tutti/object.hpp>
#include <tutti/tensor.hpp>

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

namespace detail {
inline constexpr std::size_t tuple_levels = 3;  // of a record with a list
}

/// An encoded object in 64-byte aligned memory; the buffer's length is a multiple of 64 bytes, and the bytes after the
/// object are zero.
struct EncodedObject {
    Tensor buffer;
    std::size_t bytes = 0;
};

/// Writes an object, or several objects one after the other. Small values are copied at once; the elements of tensors
/// of 4 KiB and more are read by finish() or copy_to(), and only then.
class TUTTI_API ObjectWriter {
 public:
    /// The most bytes that one string, bin or ext may hold, as its length has 32 bits. Longer values are cut.
    static constexpr std::size_t largest_piece = 0xffff'0000;
    /// `piece_bytes`: strings, bytes and tensors that are longer are cut into pieces of this length (at least 64).
    explicit ObjectWriter(std::size_t piece_bytes = largest_piece);
    ~ObjectWriter();
    ObjectWriter(const ObjectWriter&) = delete;
    ObjectWriter& operator=(const ObjectWriter&) = delete;

    void nil() { byte(0xc0); }
    void boolean(bool value) { byte(value ? 0xc3 : 0xc2); }
    void integer(std::int64_t value) {
        if (value >= 0) return natural(static_cast<std::uint64_t>(value));
        need(9);
        if (value >= -0x20)
            *next_++ = static_cast<unsigned char>(value);
        else if (value >= INT8_MIN)
            put(0xd0, static_cast<std::uint8_t>(value));
        else if (value >= INT16_MIN)
            put(0xd1, static_cast<std::uint16_t>(value));
        else if (value >= INT32_MIN)
            put(0xd2, static_cast<std::uint32_t>(value));
        else
            put(0xd3, static_cast<std::uint64_t>(value));
    }
    void natural(std::uint64_t value) {
        need(9);
        if (value < 0x80)
            *next_++ = static_cast<unsigned char>(value);
        else if (value <= UINT8_MAX)
            put(0xcc, static_cast<std::uint8_t>(value));
        else if (value <= UINT16_MAX)
            put(0xcd, static_cast<std::uint16_t>(value));
        else if (value <= UINT32_MAX)
            put(0xce, static_cast<std::uint32_t>(value));
        else
            put(0xcf, value);
    }
    void real(double value) {
        need(9);
        put(0xcb, std::bit_cast<std::uint64_t>(value));
    }
    void complex(std::complex<double> value);
    void string(std::string_view value) {
        if (value.size() >= 0x20) return long_string(value);
        need(0x20);
        *next_++ = static_cast<unsigned char>(0xa0 | value.size());
        if (!value.empty()) std::memcpy(next_, value.data(), value.size());
        next_ += value.size();
    }
    void bytes(std::span<const std::byte> value);
    /// In host memory; may be strided. Throws ObjectError otherwise.
    void tensor(const Tensor& value);

    /// A list of `count` values, which follow, and then end_list(). Throws ObjectError beyond max_object_depth levels.
    void begin_list(std::size_t count);
    void end_list() noexcept { --depth_; }
    /// One of Python's tuples: `count` values, which follow, and then end_tuple(). An Object has it as the record
    /// python.tuple, and it counts as as many levels.
    void begin_tuple(std::size_t count);
    void end_tuple() noexcept { depth_ -= detail::tuple_levels; }
    /// `count` pairs of a key and a value.
    void begin_map(std::size_t count);
    void end_map() noexcept { --depth_; }
    /// `fields` pairs of a name, which is a string, and a value.
    void begin_record(std::string_view type, std::size_t fields);
    void end_record() noexcept { depth_ -= 2; }

    /// A place to which rewind() takes the writer back, between two values.
    struct Mark {
        std::size_t bytes = 0, inserted_bytes = 0, inserted = 0, depth = 0;
    };
    Mark mark() const noexcept;
    void rewind(const Mark& mark) noexcept;

    std::size_t size() const noexcept { return static_cast<std::size_t>(next_ - begin_) + inserted_bytes_; }
    /// Writes size() bytes.
    void copy_to(std::byte* to) const;
    EncodedObject finish() const;

 private:
    // Elements that belong at a place of the buffer and are not copied there.
    struct Inserted {
        std::size_t at = 0;
        const char* data = nullptr;
        std::size_t bytes = 0;
        Tensor keep;
    };
    void need(std::size_t bytes) {
        if (static_cast<std::size_t>(end_ - next_) < bytes) [[unlikely]]
            grow(bytes);
    }
    void byte(unsigned char value) {
        need(1);
        *next_++ = value;
    }
    template <class Unsigned>
    void put(unsigned char marker, Unsigned value) {
        if constexpr (sizeof value == 2) value = __builtin_bswap16(value);
        if constexpr (sizeof value == 4) value = __builtin_bswap32(value);
        if constexpr (sizeof value == 8) value = __builtin_bswap64(value);
        *next_++ = marker;
        std::memcpy(next_, &value, sizeof value);
        next_ += sizeof value;
    }
    void grow(std::size_t bytes);
    void raw(const void* data, std::size_t bytes);
    void elements(const Tensor& whole, const char* data, std::size_t bytes);
    void enter(std::size_t levels);
    void header(unsigned char small, std::size_t largest_small, unsigned char with_16_bits, std::size_t count,
                const char* what, std::size_t levels = 1);
    void extension(int type, std::size_t bytes);
    void bin(std::size_t bytes);
    void long_string(std::string_view value);
    void pieces(std::string_view head, const char* data, std::size_t bytes, const Tensor* of);

    const std::size_t piece_bytes_;
    unsigned char* begin_ = nullptr;
    unsigned char* next_ = nullptr;
    unsigned char* end_ = nullptr;
    std::size_t depth_ = 0;
    std::size_t inserted_bytes_ = 0;
    std::vector<Inserted> inserted_;
};

/// Reads an object, which may come from anybody: next() says what the next value is, and then the accessor of that kind
/// has it. After a list, a map or a record follow as many values as count() says (twice as many of a map, or of the
/// fields of a record), and then the call that ends it.
/// errors   ObjectError, whose path is empty, for bytes that are cut off, too long, too deep, inconsistent or of an
///          unknown extension type. A list announces at most as many values as bytes can still be there, counted over
///          all that are open, so a reader may reserve memory for count() values.
class TUTTI_API ObjectReader {
 public:
    /// Tensors of 1 MiB or more that fill a good part of the buffer refer to it and keep it alive.
    explicit ObjectReader(const EncodedObject& encoded);
    /// `bytes` must outlive the reader, and what text() gives.
    explicit ObjectReader(std::span<const std::byte> bytes) noexcept;

    ObjectKind next() {
        begin_value();
        const auto head = static_cast<unsigned char>(*at_++);
        if (head < 0x80 || head >= 0xe0) return of_integer(static_cast<signed char>(head));
        if (head >= 0xa0 && head < 0xc0) return of_text(ObjectKind::string, head & 0x1f);
        switch (head) {
            case 0xc0: return ObjectKind::nil;
            case 0xc2:
            case 0xc3: logical_ = head == 0xc3; return ObjectKind::logical;
            case 0xcb: real_ = std::bit_cast<double>(number<std::uint64_t>()); return ObjectKind::real;
            case 0xcc: return of_integer(number<std::uint8_t>());
            case 0xcd: return of_integer(number<std::uint16_t>());
            case 0xce: return of_integer(number<std::uint32_t>());
            case 0xd9: return of_text(ObjectKind::string, number<std::uint8_t>());
            default: return other(head);
        }
    }
    bool logical() const noexcept { return logical_; }
    /// Whether an integer is 2^63 or more: natural() has it.
    bool is_large() const noexcept { return is_large_; }
    std::int64_t integer() const noexcept { return integer_; }
    std::uint64_t natural() const noexcept { return static_cast<std::uint64_t>(integer_); }
    double real() const noexcept { return real_; }
    std::complex<double> complex() const noexcept { return complex_; }
    /// Of a string, bytes, or the type of a record; valid until the reader goes, of strings in pieces until next().
    std::string_view text() const noexcept { return text_; }
    Tensor tensor() { return std::move(tensor_); }
    std::size_t count() const noexcept { return count_; }
    /// Whether a list is one of Python's tuples, which end_tuple() ends.
    bool is_tuple() const noexcept { return is_tuple_; }

    /// In place of next(), for the name of a record's field, which has to be a string in one piece.
    std::string_view field();
    /// Whether the next value is a string (in one piece).
    bool next_is_string() const noexcept {
        const auto head = at_ < end_ ? static_cast<unsigned char>(*at_) : 0;
        return (head >= 0xa0 && head < 0xc0) || (head >= 0xd9 && head <= 0xdb);
    }
    void end_list() noexcept { --depth_; }
    void end_tuple() noexcept { depth_ -= detail::tuple_levels; }
    void end_map() noexcept { --depth_; }
    void end_record() noexcept { depth_ -= 2; }
    /// Throws ObjectError if bytes are left.
    void finish() const;

 private:
    struct ExtensionBody {
        int type = 0;
        std::string_view body;
        const char* after = nullptr;
    };
    [[noreturn]] void fail(const std::string& why) const;
    [[noreturn]] void fail_short() const;
    void begin_value() {
        value_ = at_;
        if (at_ == end_) [[unlikely]]
            fail_short();
        ++seen_;
        --expected_;
    }
    std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
    template <class Unsigned>
    Unsigned number() {
        if (left() < sizeof(Unsigned)) [[unlikely]]
            fail_short();
        Unsigned value;
        std::memcpy(&value, at_, sizeof value);
        at_ += sizeof value;
        if constexpr (sizeof value == 2) value = __builtin_bswap16(value);
        if constexpr (sizeof value == 4) value = __builtin_bswap32(value);
        if constexpr (sizeof value == 8) value = __builtin_bswap64(value);
        return value;
    }
    ObjectKind of_integer(std::int64_t value) noexcept {
        integer_ = value;
        is_large_ = false;
        return ObjectKind::integer;
    }
    ObjectKind of_text(ObjectKind kind, std::size_t bytes) {
        if (left() < bytes) [[unlikely]]
            fail_short();
        text_ = {at_, bytes};
        at_ += bytes;
        return kind;
    }
    ObjectKind other(unsigned char head);
    ObjectKind list(std::size_t count);
    ObjectKind map(std::size_t count);
    ObjectKind record(const ExtensionBody& extension);
    ObjectKind pieces(const ExtensionBody& extension, std::size_t count);
    ObjectKind extension(const ExtensionBody& extension);
    ObjectKind whole_tensor(std::string_view body);
    /// Null `after`: what begins at `at` is no extension, or cut off.
    ExtensionBody extension_at(const char* at) const noexcept;
    void enter(std::size_t values);
    void enter_levels(std::size_t levels);

    const char* const begin_;
    const char* at_;
    const char* const end_;
    const char* value_;             // where the last value begins
    Tensor buffer_;                 // empty: tensors are copied
    std::size_t seen_ = 0;          // values
    std::size_t expected_ = 1;      // announced, and not yet seen
    std::size_t pieces_bytes_ = 0;  // of tensors in pieces
    std::size_t depth_ = 0;
    bool logical_ = false;
    bool is_large_ = false;
    bool is_tuple_ = false;
    std::int64_t integer_ = 0;
    double real_ = 0;
    std::complex<double> complex_;
    std::string_view text_;
    std::string joined_;  // a string or bytes in pieces
    Tensor tensor_;
    std::size_t count_ = 0;
};

}  // namespace tutti
