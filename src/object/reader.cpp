#include "core/assert.hpp"
#include "object/codec.hpp"

#include <tutti/object_stream.hpp>

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace tutti {
namespace {

using object::Extension;

// A tensor's header: the facts before its elements.
struct TensorHead {
    DType dtype = DType::float32;
    Extents shape;
    std::size_t element_bytes = 0;  // of all elements
    std::size_t head_bytes = 0;
};

// Returns the fault, or nothing.
std::string parse_tensor_head(std::string_view data, TensorHead& head) {
    if (data.size() < 3) return "a tensor without a head";
    const auto dtype = static_cast<unsigned char>(data[0]);
    const std::size_t dimensions = static_cast<unsigned char>(data[1]), padding = static_cast<unsigned char>(data[2]);
    if (dtype >= dtype_count) return fmt::format("a tensor of the unknown dtype {}", dtype);
    head.head_bytes = 3 + padding + 8 * dimensions;
    if (data.size() < head.head_bytes) return "a tensor whose head is cut off";
    head.dtype = static_cast<DType>(dtype);
    std::vector<std::int64_t> sizes(dimensions);
    if (dimensions > 0) std::memcpy(sizes.data(), data.data() + 3 + padding, 8 * dimensions);
    head.shape = Extents(sizes);
    std::int64_t bytes = static_cast<std::int64_t>(size_of(head.dtype));
    for (const std::int64_t size : sizes) {
        if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
            return fmt::format("a tensor of the impossible shape {}", head.shape.to_string());
    }
    head.element_bytes = static_cast<std::size_t>(bytes);
    TUTTI_ASSERT(head.head_bytes <= data.size() && head.shape.size() == dimensions);
    return {};
}

// Any byte but 0 and 1 is no bool.
bool has_bad_bools(DType dtype, const void* data, std::size_t bytes) {
    if (dtype != DType::boolean) return false;
    const auto* values = static_cast<const unsigned char*>(data);
    TUTTI_ASSERT(values != nullptr || bytes == 0);
    unsigned char all = 0;
    for (std::size_t i = 0; i < bytes; ++i) all |= values[i];
    return all > 1;
}

}  // namespace

ObjectReader::ObjectReader(const EncodedObject& encoded)
    : begin_(static_cast<const char*>(encoded.buffer.raw_data())),
      at_(begin_),
      end_(begin_ + encoded.bytes),
      value_(begin_),
      buffer_(encoded.buffer) {
    TUTTI_ASSERT(encoded.bytes <= encoded.buffer.byte_count());
}
ObjectReader::ObjectReader(std::span<const std::byte> bytes) noexcept
    : begin_(reinterpret_cast<const char*>(bytes.data())), at_(begin_), end_(begin_ + bytes.size()), value_(begin_) {}

void ObjectReader::fail(const std::string& why) const {
    throw ObjectError("", fmt::format("not a valid object at byte {} of {}: {}", value_ - begin_, end_ - begin_, why));
}
void ObjectReader::fail_short() const {
    fail("the bytes end in the middle");
}
void ObjectReader::finish() const {
    if (at_ == end_) return;
    throw ObjectError("", fmt::format("not a valid object at byte {} of {}: {} bytes after the end of the object",
                                      at_ - begin_, end_ - begin_, end_ - at_));
}

// Every value needs a byte at least.
void ObjectReader::enter(std::size_t values) {
    const auto bytes = static_cast<std::size_t>(end_ - begin_);
    enter_levels(1);
    if (values > bytes || seen_ + expected_ + values > bytes)
        fail(fmt::format("{} elements are announced in {} bytes", values, bytes));
    expected_ += values;
}
void ObjectReader::enter_levels(std::size_t levels) {
    if (depth_ + levels > max_object_depth)
        fail(fmt::format("lists and maps are more than {} levels deep", max_object_depth));
    depth_ += levels;
}

ObjectKind ObjectReader::other(unsigned char head) {
    switch (head) {
        case 0xc4: return of_text(ObjectKind::bytes, number<std::uint8_t>());
        case 0xc5: return of_text(ObjectKind::bytes, number<std::uint16_t>());
        case 0xc6: return of_text(ObjectKind::bytes, number<std::uint32_t>());
        case 0xca: real_ = std::bit_cast<float>(number<std::uint32_t>()); return ObjectKind::real;
        case 0xcf: {
            const auto value = number<std::uint64_t>();
            of_integer(static_cast<std::int64_t>(value));
            is_large_ = value > INT64_MAX;
            return ObjectKind::integer;
        }
        case 0xd0: return of_integer(static_cast<std::int8_t>(number<std::uint8_t>()));
        case 0xd1: return of_integer(static_cast<std::int16_t>(number<std::uint16_t>()));
        case 0xd2: return of_integer(static_cast<std::int32_t>(number<std::uint32_t>()));
        case 0xd3: return of_integer(static_cast<std::int64_t>(number<std::uint64_t>()));
        case 0xda: return of_text(ObjectKind::string, number<std::uint16_t>());
        case 0xdb: return of_text(ObjectKind::string, number<std::uint32_t>());
        case 0xdc: return list(number<std::uint16_t>());
        case 0xdd: return list(number<std::uint32_t>());
        case 0xde: return map(number<std::uint16_t>());
        case 0xdf: return map(number<std::uint32_t>());
        case 0xc1: fail("a byte that begins nothing");
        default: break;
    }
    if (head < 0x90) return map(head & 0x0f);
    if (head < 0xa0) return list(head & 0x0f);
    const ExtensionBody body = extension_at(value_);
    if (body.after == nullptr) fail_short();
    return extension(body);
}

ObjectReader::ExtensionBody ObjectReader::extension_at(const char* at) const noexcept {
    const auto there = static_cast<std::size_t>(end_ - at);
    const auto head = there > 0 ? static_cast<unsigned char>(*at) : 0;
    std::size_t length_bytes = 0, bytes = 0;
    if (head >= 0xd4 && head <= 0xd8)
        bytes = std::size_t{1} << (head - 0xd4);
    else if (head >= 0xc7 && head <= 0xc9)
        length_bytes = std::size_t{1} << (head - 0xc7);
    else
        return {};
    if (there < 2 + length_bytes) return {};
    for (std::size_t i = 0; i < length_bytes; ++i) bytes = bytes << 8 | static_cast<unsigned char>(at[1 + i]);
    if (there - 2 - length_bytes < bytes) return {};
    const char* const body = at + 2 + length_bytes;
    return {at[1 + length_bytes], {body, bytes}, body + bytes};
}

ObjectKind ObjectReader::extension(const ExtensionBody& extension) {
    at_ = extension.after;
    switch (static_cast<Extension>(extension.type)) {
        case Extension::tensor: return whole_tensor(extension.body);
        case Extension::complex: {
            double parts[2];
            if (extension.body.size() != sizeof parts)
                fail(fmt::format("a complex number of {} bytes", extension.body.size()));
            std::memcpy(parts, extension.body.data(), sizeof parts);
            complex_ = {parts[0], parts[1]};
            return ObjectKind::complex;
        }
        case Extension::record: fail("a record outside of a list");
        case Extension::pieces: fail("pieces outside of a list");
        case Extension::tuple: fail("a tuple's mark outside of a list");
    }
    fail(fmt::format("unknown extension type {}", extension.type));
}

// ---- Lists, and what their first element makes of them

ObjectKind ObjectReader::list(std::size_t count) {
    enter(count);
    count_ = count;
    is_tuple_ = false;
    if (count == 0) return ObjectKind::list;
    const ExtensionBody first = extension_at(at_);
    const auto type = static_cast<Extension>(first.type);
    is_tuple_ = type == Extension::tuple;
    if (first.after == nullptr || (!is_tuple_ && type != Extension::record && type != Extension::pieces))
        return ObjectKind::list;
    begin_value();
    at_ = first.after;
    if (type == Extension::record) return record(first);
    if (type == Extension::pieces) return pieces(first, count - 1);
    if (!first.body.empty()) fail(fmt::format("a tuple's mark with {} bytes: expected none", first.body.size()));
    enter_levels(detail::tuple_levels - 1);
    --count_;
    return ObjectKind::list;
}

ObjectKind ObjectReader::map(std::size_t count) {
    enter(2 * count);
    count_ = count;
    return ObjectKind::map;
}

ObjectKind ObjectReader::record(const ExtensionBody& extension) {
    if (count_ == 1) fail("a record without fields");
    const auto head = at_ < end_ ? static_cast<unsigned char>(*at_) : 0xdf;
    const bool is_map = (head & 0xf0) == 0x80 || head == 0xde || head == 0xdf;
    if (count_ != 2 || !is_map) fail("a record with something else: expected one map");
    next();
    text_ = extension.body;
    return ObjectKind::record;
}

std::string_view ObjectReader::field() {
    if (at_ == end_) fail_short();
    if (!next_is_string()) fail("a record with a field whose name is no string");
    next();
    return text_;
}

ObjectKind ObjectReader::pieces(const ExtensionBody& extension, std::size_t count) {
    if (extension.body.empty()) fail("pieces outside of a list");
    const char what = extension.body[0];
    const auto bytes = static_cast<std::size_t>(end_ - begin_);
    if (what != 's' && what != 'b' && what != 't')
        fail(fmt::format("pieces of an unknown kind {}", static_cast<int>(what)));
    Tensor whole;
    std::size_t filled = 0;
    if (what == 't') {
        TensorHead head;
        const std::string_view body = extension.body.substr(1);
        if (const std::string wrong = parse_tensor_head(body, head); !wrong.empty()) fail(wrong);
        if (head.head_bytes != body.size() || head.element_bytes > bytes)
            fail(fmt::format("a tensor of {} bytes in {} bytes", head.element_bytes, bytes));
        pieces_bytes_ += head.element_bytes;
        if (pieces_bytes_ > bytes) fail(fmt::format("tensors of {} bytes in {} bytes", pieces_bytes_, bytes));
        whole = empty(head.dtype, head.shape);
    }
    joined_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        const auto head = at_ < end_ ? static_cast<unsigned char>(*at_) : 0;
        if ((head >= 0x80 && head < 0xa0) || (head >= 0xdc && head <= 0xdf)) fail("a list or map among pieces");
        if (next() != ObjectKind::bytes) fail("something that is no piece among pieces");
        if (what != 't') {
            joined_.append(text_);
            continue;
        }
        if (text_.size() > whole.byte_count() - filled) fail("more pieces than the tensor has");
        if (!text_.empty()) std::memcpy(static_cast<char*>(whole.raw_data()) + filled, text_.data(), text_.size());
        filled += text_.size();
    }
    end_list();
    if (what != 't') {
        text_ = joined_;
        return what == 's' ? ObjectKind::string : ObjectKind::bytes;
    }
    if (filled != whole.byte_count()) fail("fewer pieces than the tensor has");
    if (has_bad_bools(whole.dtype(), whole.raw_data(), filled)) fail("a tensor with a bool above 1");
    tensor_ = std::move(whole);
    return ObjectKind::tensor;
}

ObjectKind ObjectReader::whole_tensor(std::string_view body) {
    TensorHead head;
    if (const std::string wrong = parse_tensor_head(body, head); !wrong.empty()) fail(wrong);
    const std::string_view elements = body.substr(head.head_bytes);
    if (elements.size() != head.element_bytes) {
        fail(fmt::format("a tensor {}{} with {} bytes of elements: expected {}", to_string(head.dtype),
                         head.shape.to_string(), elements.size(), head.element_bytes));
    }
    if (has_bad_bools(head.dtype, elements.data(), elements.size())) fail("a tensor with a bool above 1");
    const bool may_stay = buffer_.raw_data() != nullptr && elements.size() >= (std::size_t{1} << 20) &&
                          elements.size() >= static_cast<std::size_t>(end_ - begin_) / 4 &&
                          reinterpret_cast<std::uintptr_t>(elements.data()) % 64 == 0;
    if (may_stay) {
        auto* data = const_cast<char*>(elements.data());
        tensor_ = Tensor(TensorView(data, head.shape, head.dtype), std::make_shared<Tensor>(buffer_));
        return ObjectKind::tensor;
    }
    tensor_ = empty(head.dtype, head.shape);
    if (!elements.empty()) std::memcpy(tensor_.raw_data(), elements.data(), elements.size());
    return ObjectKind::tensor;
}

}  // namespace tutti
