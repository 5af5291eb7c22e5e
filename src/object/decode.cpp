// MessagePack to objects, from bytes that may come from anybody.
//
// Memory is bounded by the input: a list may only announce as many elements as bytes can still be there, counted over
// all lists that are open, so the reserved memory never exceeds a fixed number of bytes for each byte of input.
// Depth is bounded too, so nothing here or in Object's destructor runs out of stack.
#include "core/assert.hpp"
#include "object/codec.hpp"

#include <fmt/format.h>
#include <msgpack.hpp>

#include <cstring>
#include <optional>

namespace tutti::object {
namespace {

// A tensor's header: the facts before its elements.
struct TensorHead {
    DType dtype = DType::float32;
    Extents shape;
    std::size_t element_bytes = 0;  // of all elements
    std::size_t head_bytes = 0;
};

// Returns the fault, or nothing.
std::string parse_tensor_head(std::span<const char> data, TensorHead& head) {
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

// Called by msgpack's parser; false stops it, with `reason` and `path` set.
class Builder {
 public:
    Builder(std::size_t bytes, const Tensor* buffer) : bytes_(bytes), buffer_(buffer) {}

    Object result;
    std::string reason;

    std::string path() const {
        std::string text;
        for (const Frame& frame : frames_) {
            if (frame.kind == Frame::Kind::list) text += detail::index_step(frame.list.size());
            if (frame.kind == Frame::Kind::map && frame.key) text += detail::key_step(*frame.key);
        }
        return text;
    }

    bool visit_nil() { return add({}); }
    bool visit_boolean(bool value) { return add(Object::boolean(value)); }
    bool visit_positive_integer(std::uint64_t value) { return add(Object::natural(value)); }
    bool visit_negative_integer(std::int64_t value) { return add(Object::integer(value)); }
    bool visit_float32(float value) { return add(Object::real(value)); }
    bool visit_float64(double value) { return add(Object::real(value)); }
    bool visit_str(const char* data, std::uint32_t size) {
        return add(Object::string(size > 0 ? std::string(data, size) : std::string()));
    }
    bool visit_bin(const char* data, std::uint32_t size) {
        if (in_pieces()) return add_piece({data, size});
        const auto* bytes = reinterpret_cast<const std::byte*>(data);
        return add(Object::bytes(size > 0 ? Object::Bytes(bytes, bytes + size) : Object::Bytes()));
    }
    bool visit_ext(const char* data, std::uint32_t size) {  // the first byte is the type
        if (size == 0) return fail("an extension without a type");
        const std::span<const char> body(data + 1, size - 1);
        switch (static_cast<Extension>(data[0])) {
            case Extension::tensor: return add_tensor(body);
            case Extension::complex: return add_complex(body);
            case Extension::record: return begin_record(body);
            case Extension::pieces: return begin_pieces(body);
        }
        return fail(fmt::format("unknown extension type {}", static_cast<int>(data[0])));
    }

    bool start_array(std::uint32_t count) {
        if (!enter(count)) return false;
        frames_.emplace_back().kind = Frame::Kind::list;
        frames_.back().list.reserve(count);
        return true;
    }
    bool start_map(std::uint32_t count) {
        if (!enter(2 * std::size_t{count})) return false;
        frames_.emplace_back().kind = Frame::Kind::map;
        frames_.back().map.reserve(count);
        return true;
    }
    bool end_array() {
        TUTTI_ASSERT(!frames_.empty());
        Frame frame = std::move(frames_.back());
        frames_.pop_back();
        switch (frame.kind) {
            case Frame::Kind::list: return put(Object::list(std::move(frame.list)));
            case Frame::Kind::record:
                if (!frame.fields) return fail("a record without fields");
                return put(Object::record(std::move(frame.text), std::move(*frame.fields)));
            case Frame::Kind::pieces: return end_pieces(frame);
            case Frame::Kind::map: break;
        }
        return fail("a list that ends a map");
    }
    bool end_map() {
        TUTTI_ASSERT(!frames_.empty() && frames_.back().kind == Frame::Kind::map && !frames_.back().key);
        Frame frame = std::move(frames_.back());
        frames_.pop_back();
        return put(Object::map(std::move(frame.map)));
    }
    bool start_array_item() { return true; }
    bool end_array_item() { return true; }
    bool start_map_key() { return true; }
    bool end_map_key() { return true; }
    bool start_map_value() { return true; }
    bool end_map_value() { return true; }
    void parse_error(std::size_t, std::size_t) { fail("a byte that begins nothing"); }
    void insufficient_bytes(std::size_t, std::size_t) { fail("the bytes end in the middle"); }

 private:
    struct Frame {
        enum class Kind { list, map, record, pieces };
        Kind kind = Kind::list;
        Object::List list;
        Object::Map map;
        std::optional<Object> key;          // map: waits for its value
        std::optional<Object::Map> fields;  // record
        std::string text;                   // record: the type; pieces of a string: the string so far
        // Pieces.
        char what = 0;
        Object::Bytes bytes;
        Tensor tensor;
        std::size_t filled = 0;
    };

    bool fail(std::string why) {
        TUTTI_ASSERT(!why.empty());
        if (reason.empty()) reason = std::move(why);
        return false;
    }
    bool in_pieces() const { return !frames_.empty() && frames_.back().kind == Frame::Kind::pieces; }

    // Every element needs a byte at least.
    bool enter(std::size_t count) {
        if (!count_value()) return false;
        if (frames_.size() >= max_object_depth)
            return fail(fmt::format("lists and maps are more than {} levels deep", max_object_depth));
        if (in_pieces()) return fail("a list or map among pieces");
        if (count > bytes_ || seen_ + expected_ + count > bytes_)
            return fail(fmt::format("{} elements are announced in {} bytes", count, bytes_));
        expected_ += count;
        TUTTI_ASSERT(frames_.size() < max_object_depth && seen_ + expected_ <= bytes_);
        return true;
    }
    bool count_value() {
        ++seen_;
        if (expected_ > 0) --expected_;
        return true;
    }

    bool add(Object value) { return count_value() && put(std::move(value)); }
    bool put(Object value) {
        if (frames_.empty()) {
            result = std::move(value);
            return true;
        }
        Frame& frame = frames_.back();
        switch (frame.kind) {
            case Frame::Kind::list: frame.list.push_back(std::move(value)); break;
            case Frame::Kind::map:
                if (frame.key) {
                    frame.map.emplace_back(std::move(*frame.key), std::move(value));
                    frame.key.reset();
                } else {
                    frame.key = std::move(value);
                }
                break;
            case Frame::Kind::record: return put_fields(frame, value);
            case Frame::Kind::pieces: return fail("something that is no piece among pieces");
        }
        return true;
    }

    // The first element of a list can turn it into something else.
    bool begins_list() const {
        return !frames_.empty() && frames_.back().kind == Frame::Kind::list && frames_.back().list.empty();
    }

    bool begin_record(std::span<const char> type) {
        if (!begins_list()) return fail("a record outside of a list");
        count_value();
        TUTTI_ASSERT(frames_.back().text.empty() && !frames_.back().fields);
        frames_.back().kind = Frame::Kind::record;
        frames_.back().text.assign(type.data(), type.size());
        return true;
    }
    bool put_fields(Frame& frame, Object& value) {
        TUTTI_ASSERT(frame.kind == Frame::Kind::record);
        if (frame.fields || value.kind() != Object::Kind::map)
            return fail(fmt::format("a record of {} with {}: expected one map", frame.text, value.description()));
        for (const auto& [key, field] : value.as_map()) {
            if (key.kind() != Object::Kind::string)
                return fail(fmt::format("a record of {} with a field named by {}", frame.text, key.description()));
        }
        frame.fields = std::move(value.as_map());
        return true;
    }

    bool add_complex(std::span<const char> body) {
        double parts[2];
        if (body.size() != sizeof parts) return fail(fmt::format("a complex number of {} bytes", body.size()));
        std::memcpy(parts, body.data(), sizeof parts);
        return add(Object::complex({parts[0], parts[1]}));
    }

    bool add_tensor(std::span<const char> body) {
        TensorHead head;
        if (std::string wrong = parse_tensor_head(body, head); !wrong.empty()) return fail(std::move(wrong));
        TUTTI_ASSERT(head.head_bytes <= body.size());
        const std::span<const char> elements = body.subspan(head.head_bytes);
        if (elements.size() != head.element_bytes) {
            return fail(fmt::format("a tensor {}{} with {} bytes of elements: expected {}", to_string(head.dtype),
                                    head.shape.to_string(), elements.size(), head.element_bytes));
        }
        if (has_bad_bools(head.dtype, elements.data(), elements.size())) return fail("a tensor with a bool above 1");
        if (may_stay(elements)) {
            auto* data = const_cast<char*>(elements.data());
            return add(
                Object::tensor(Tensor(TensorView(data, head.shape, head.dtype), std::make_shared<Tensor>(*buffer_))));
        }
        Tensor tensor = empty(head.dtype, head.shape);
        if (!elements.empty()) std::memcpy(tensor.raw_data(), elements.data(), elements.size());
        return add(Object::tensor(std::move(tensor)));
    }
    bool may_stay(std::span<const char> elements) const {
        return buffer_ != nullptr && elements.size() >= (std::size_t{1} << 20) && elements.size() >= bytes_ / 4 &&
               reinterpret_cast<std::uintptr_t>(elements.data()) % 64 == 0;
    }

    bool begin_pieces(std::span<const char> head) {
        if (!begins_list() || head.empty()) return fail("pieces outside of a list");
        count_value();
        Frame& frame = frames_.back();
        frame.kind = Frame::Kind::pieces;
        frame.what = head[0];
        if (frame.what == 's' || frame.what == 'b') return true;
        if (frame.what != 't') return fail(fmt::format("pieces of an unknown kind {}", static_cast<int>(frame.what)));
        TensorHead tensor;
        const auto body = head.subspan(1);
        if (std::string wrong = parse_tensor_head(body, tensor); !wrong.empty()) return fail(std::move(wrong));
        if (tensor.head_bytes != body.size() || tensor.element_bytes > bytes_)
            return fail(fmt::format("a tensor of {} bytes in {} bytes", tensor.element_bytes, bytes_));
        pieces_bytes_ += tensor.element_bytes;
        if (pieces_bytes_ > bytes_) return fail(fmt::format("tensors of {} bytes in {} bytes", pieces_bytes_, bytes_));
        frame.tensor = empty(tensor.dtype, tensor.shape);
        TUTTI_ASSERT(frame.filled == 0 && frame.tensor.byte_count() == tensor.element_bytes);
        return true;
    }
    bool add_piece(std::span<const char> piece) {
        TUTTI_ASSERT(in_pieces());
        count_value();
        Frame& frame = frames_.back();
        if (frame.what == 's') {
            frame.text.append(piece.data(), piece.size());
        } else if (frame.what == 'b') {
            const auto* data = reinterpret_cast<const std::byte*>(piece.data());
            frame.bytes.insert(frame.bytes.end(), data, data + piece.size());
        } else {
            if (piece.size() > frame.tensor.byte_count() - frame.filled) return fail("more pieces than the tensor has");
            if (!piece.empty())
                std::memcpy(static_cast<char*>(frame.tensor.raw_data()) + frame.filled, piece.data(), piece.size());
            frame.filled += piece.size();
            TUTTI_ASSERT(frame.filled <= frame.tensor.byte_count());
        }
        return true;
    }
    bool end_pieces(Frame& frame) {
        TUTTI_ASSERT(frame.kind == Frame::Kind::pieces);
        if (frame.what == 's') return put(Object::string(std::move(frame.text)));
        if (frame.what == 'b') return put(Object::bytes(std::move(frame.bytes)));
        if (frame.filled != frame.tensor.byte_count()) return fail("fewer pieces than the tensor has");
        if (has_bad_bools(frame.tensor.dtype(), frame.tensor.raw_data(), frame.filled))
            return fail("a tensor with a bool above 1");
        return put(Object::tensor(std::move(frame.tensor)));
    }

    const std::size_t bytes_;
    const Tensor* buffer_;
    std::vector<Frame> frames_;
    std::size_t seen_ = 0;          // values that have come
    std::size_t expected_ = 0;      // announced and not yet come
    std::size_t pieces_bytes_ = 0;  // of tensors in pieces
};

Object decode_bytes(const char* data, std::size_t bytes, const Tensor* buffer) {
    TUTTI_ASSERT(data != nullptr || bytes == 0);
    Builder builder(bytes, buffer);
    std::size_t end = 0;
    bool good = false;
    try {
        good = msgpack::parse(data, bytes, end, builder);
    } catch (const msgpack::unpack_error& error) {
        builder.reason = error.what();
        good = false;
    }
    TUTTI_ASSERT(!good || (end <= bytes && builder.reason.empty()));
    if (good && end != bytes) {
        builder.reason = fmt::format("{} bytes after the end of the object", bytes - end);
        good = false;
    }
    if (!good) {
        TUTTI_ASSERT(!builder.reason.empty());
        throw ObjectError(builder.path(),
                          fmt::format("not a valid object at byte {} of {}: {}", end, bytes, builder.reason));
    }
    return std::move(builder.result);
}

}  // namespace

Object decode_string(std::string_view bytes) {
    return decode_bytes(bytes.data(), bytes.size(), nullptr);
}

Object decode_shared(const Encoded& encoded) {
    TUTTI_ASSERT(encoded.bytes <= encoded.buffer.byte_count());
    return decode_bytes(static_cast<const char*>(encoded.buffer.raw_data()), encoded.bytes, &encoded.buffer);
}

}  // namespace tutti::object

namespace tutti {

Object decode(std::span<const std::byte> bytes) {
    return object::decode_bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size(), nullptr);
}

}  // namespace tutti
