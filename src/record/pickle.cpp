// The opcodes are those of Python's Lib/pickletools.py.
#include "core/assert.hpp"
#include "record/flight.hpp"

#include <nlohmann/json.hpp>

#include <bit>
#include <cstdint>
#include <limits>

namespace tutti::record {
namespace {

using nlohmann::json;

class Pickler {
 public:
    std::string take(const json& value) {
        text_ = "\x80\x02";  // PROTO 2
        put(value);
        text_ += '.';  // STOP
        return std::move(text_);
    }

 private:
    void put(const json& value) {
        switch (value.type()) {
            case json::value_t::object: return put_object(value);
            case json::value_t::array: return put_array(value);
            case json::value_t::string: return put_string(value.get_ref<const std::string&>());
            case json::value_t::boolean: text_ += value.get<bool>() ? '\x88' : '\x89'; return;
            case json::value_t::number_integer: return put_integer(value.get<std::int64_t>(), false);
            case json::value_t::number_unsigned:
                return put_integer(static_cast<std::int64_t>(value.get<std::uint64_t>()), true);
            case json::value_t::number_float: return put_float(value.get<double>());
            default: text_ += 'N'; return;  // NONE
        }
    }
    void put_object(const json& value) {
        text_ += "}(";  // EMPTY_DICT MARK
        for (const auto& [key, member] : value.items()) {
            put_string(key);
            put(member);
        }
        text_ += 'u';  // SETITEMS
    }
    void put_array(const json& value) {
        text_ += "](";  // EMPTY_LIST MARK
        for (const json& element : value) put(element);
        text_ += 'e';  // APPENDS
    }
    void put_string(const std::string& value) {
        TUTTI_ASSERT(value.size() <= std::numeric_limits<std::uint32_t>::max());
        text_ += 'X';  // BINUNICODE
        put_bytes(value.size(), 4);
        text_ += value;
    }
    // `is_unsigned`: the 64 bits are a number without a sign.
    void put_integer(std::int64_t value, bool is_unsigned) {
        if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max() &&
            (!is_unsigned || value >= 0)) {
            text_ += 'J';  // BININT
            return put_bytes(static_cast<std::uint64_t>(value), 4);
        }
        const bool ninth = is_unsigned && value < 0;
        text_ += '\x8a';  // LONG1: how many bytes, then they, the last one with the sign
        text_ += ninth ? '\x09' : '\x08';
        put_bytes(static_cast<std::uint64_t>(value), 8);
        if (ninth) text_ += '\0';
    }
    void put_float(double value) {
        text_ += 'G';  // BINFLOAT: big-endian
        const auto bits = std::bit_cast<std::uint64_t>(value);
        for (int shift = 56; shift >= 0; shift -= 8) text_ += static_cast<char>(bits >> shift);
    }
    void put_bytes(std::uint64_t value, int count) {
        TUTTI_ASSERT(count >= 1 && count <= 8);
        for (int i = 0; i < count; ++i) text_ += static_cast<char>(value >> (8 * i));
    }

    std::string text_;
};

}  // namespace

std::string pickle(const json& value) {
    return Pickler().take(value);
}

}  // namespace tutti::record
