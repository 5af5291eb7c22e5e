#include "store/wire.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::store {
namespace {

// "tS", and the version of the protocol.
constexpr std::array<char, 3> frame_magic{'t', 'S', 1};

template <class Integer>
void put_integer(char* to, Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
        to[i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

template <class Integer = std::uint64_t>
Integer take_integer(const char* from) {
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
        value |= static_cast<Integer>(static_cast<unsigned char>(from[i])) << (8 * i);
    }
    return value;
}

bool known(std::uint8_t op) {
    return (op >= static_cast<std::uint8_t>(Op::set) && op <= static_cast<std::uint8_t>(Op::report)) ||
           (op >= static_cast<std::uint8_t>(Op::ok) && op <= static_cast<std::uint8_t>(Op::refused));
}

}  // namespace

std::array<char, header_bytes> encode(const FrameHeader& header) {
    TUTTI_ASSERT(known(static_cast<std::uint8_t>(header.op)) && header.body_bytes <= max_body_bytes);
    std::array<char, header_bytes> bytes{};
    std::ranges::copy(frame_magic, bytes.begin());
    bytes[3] = static_cast<char>(header.op);
    put_integer(bytes.data() + 4, header.posts);
    put_integer(bytes.data() + 8, header.request);
    put_integer(bytes.data() + 16, header.body_bytes);
    return bytes;
}

std::optional<FrameHeader> decode(std::span<const char, header_bytes> bytes) {
    if (std::memcmp(bytes.data(), frame_magic.data(), frame_magic.size()) != 0) return std::nullopt;
    const auto op = static_cast<std::uint8_t>(bytes[3]);
    const FrameHeader header{static_cast<Op>(op), take_integer(bytes.data() + 8), take_integer(bytes.data() + 16),
                             take_integer<std::uint32_t>(bytes.data() + 4)};
    if (!known(op) || header.body_bytes > max_body_bytes) return std::nullopt;
    return header;
}

std::array<char, 8> encode_number(std::uint64_t number) {
    std::array<char, 8> bytes;
    put_integer(bytes.data(), number);
    return bytes;
}

std::optional<std::uint64_t> decode_number(std::string_view field) {
    if (field.size() != 8) return std::nullopt;
    return take_integer(field.data());
}

std::optional<std::vector<std::string_view>> split_fields(std::string_view body) {
    std::vector<std::string_view> fields;
    if (!split_fields(body, fields)) return std::nullopt;
    return fields;
}

bool split_fields(std::string_view body, std::vector<std::string_view>& fields) {
    fields.clear();
    while (!body.empty()) {
        if (body.size() < field_header_bytes) return false;
        const std::uint64_t size = take_integer(body.data());
        body.remove_prefix(field_header_bytes);
        if (size > body.size()) return false;
        fields.push_back(body.substr(0, static_cast<std::size_t>(size)));
        body.remove_prefix(static_cast<std::size_t>(size));
    }
    return true;
}

bool FrameReader::take_header(std::string_view& bytes) {
    if (!good_) return false;
    if (header_size_ == header_bytes) return true;
    TUTTI_ASSERT(header_size_ < header_bytes);
    const std::size_t count = std::min(bytes.size(), header_bytes - header_size_);
    std::memcpy(raw_.data() + header_size_, bytes.data(), count);
    header_size_ += count;
    TUTTI_ASSERT(header_size_ <= header_bytes);
    bytes.remove_prefix(count);
    if (header_size_ < header_bytes) return false;
    const auto header = decode(raw_);
    if (!header) {
        good_ = false;
        return false;
    }
    header_ = *header;
    return true;
}

}  // namespace tutti::store
