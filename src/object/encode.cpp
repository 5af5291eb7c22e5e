// Objects to MessagePack. Two passes over the object: one that counts, one that writes into memory of just that size.
#include "core/assert.hpp"
#include "object/codec.hpp"
#include "tensor/host_read.hpp"

#include <fmt/format.h>
#include <msgpack.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::object {
namespace {

using Kind = Object::Kind;

class Counter {
 public:
    void write(const char*, std::size_t bytes) { position_ += bytes; }
    std::size_t position() const { return position_; }

 private:
    std::size_t position_ = 0;
};

class Writer {
 public:
    explicit Writer(char* to) : to_(to) {}
    void write(const char* from, std::size_t bytes) {
        if (bytes > 0) std::memcpy(to_ + position_, from, bytes);
        position_ += bytes;
    }
    std::size_t position() const { return position_; }

 private:
    char* to_;
    std::size_t position_ = 0;
};

template <class Stream>
class Encoder {
 public:
    Encoder(Stream& stream, std::size_t piece_bytes)
        : stream_(stream), packer_(stream), piece_bytes_(std::clamp<std::size_t>(piece_bytes, 64, largest_piece)) {
        TUTTI_ASSERT(piece_bytes > 0);
    }

    void list(std::span<const Object> values) {
        enter();
        packer_.pack_array(count(values.size(), "a list"));
        for (std::size_t i = 0; i < values.size(); ++i) at([i] { return detail::index_step(i); }, values[i]);
        TUTTI_ASSERT(depth_ > 0);
        --depth_;
    }

    void any(const Object& object) {
        switch (object.kind()) {
            case Kind::nil: packer_.pack_nil(); break;
            case Kind::logical: object.as_bool() ? packer_.pack_true() : packer_.pack_false(); break;
            case Kind::integer:
                if (object.is_large_integer())
                    packer_.pack_uint64(object.as_uint64());
                else
                    packer_.pack_int64(object.as_int64());
                break;
            case Kind::real: real(object.as_double()); break;
            case Kind::complex: complex(object.as_complex()); break;
            case Kind::string: string(object.as_string()); break;
            case Kind::bytes: bytes(object.as_bytes()); break;
            case Kind::list: list(object.as_list()); break;
            case Kind::map: map(object.as_map()); break;
            case Kind::tensor: tensor(object.as_tensor()); break;
            case Kind::record: record(object.as_record()); break;
        }
    }

 private:
    template <class Step>
    void at(Step step, const Object& object) {
        try {
            any(object);
        } catch (const ObjectError& error) {
            throw error.inside(step());
        }
    }
    void enter() {
        if (++depth_ > max_object_depth)
            throw ObjectError("", fmt::format("lists and maps are more than {} levels deep", max_object_depth));
    }
    static std::uint32_t count(std::size_t size, const char* what) {
        if (size > 0xffff'ffff)
            throw ObjectError("", fmt::format("{} has {} entries: expected fewer than 2^32", what, size));
        return static_cast<std::uint32_t>(size);
    }

    void extension(Extension type, const void* data, std::size_t bytes) {
        TUTTI_ASSERT(bytes <= largest_piece);
        packer_.pack_ext(bytes, static_cast<std::int8_t>(type));
        stream_.write(static_cast<const char*>(data), bytes);
    }
    // The packer would make an integer of 3.0; a real number stays one.
    void real(double value) {
        const auto bits = __builtin_bswap64(std::bit_cast<std::uint64_t>(value));
        const char marker = static_cast<char>(0xcb);
        stream_.write(&marker, 1);
        stream_.write(reinterpret_cast<const char*>(&bits), sizeof bits);
    }
    void complex(std::complex<double> value) { extension(Extension::complex, &value, sizeof value); }

    void string(const std::string& value) {
        if (value.size() > piece_bytes_) return pieces("s", value.data(), value.size());
        TUTTI_ASSERT(value.size() <= largest_piece);
        packer_.pack_str(static_cast<std::uint32_t>(value.size()));
        stream_.write(value.data(), value.size());
    }
    void bytes(const Object::Bytes& value) {
        const char* data = reinterpret_cast<const char*>(value.data());
        if (value.size() > piece_bytes_) return pieces("b", data, value.size());
        packer_.pack_bin(static_cast<std::uint32_t>(value.size()));
        stream_.write(data, value.size());
    }
    void pieces(const std::string& head, const char* data, std::size_t size) {
        TUTTI_ASSERT(!head.empty() && (data != nullptr || size == 0));
        enter();
        packer_.pack_array(count((size + piece_bytes_ - 1) / piece_bytes_ + 1, "a list of pieces"));
        extension(Extension::pieces, head.data(), head.size());
        for (std::size_t done = 0; done < size; done += piece_bytes_) {
            const std::size_t piece = std::min(piece_bytes_, size - done);
            TUTTI_ASSERT(piece > 0 && piece <= largest_piece);
            packer_.pack_bin(static_cast<std::uint32_t>(piece));
            stream_.write(data + done, piece);
        }
        TUTTI_ASSERT(depth_ > 0);
        --depth_;
    }

    void tensor(const Tensor& value) {
        if (value.device().type != Device::Type::cpu) {
            throw ObjectError("", fmt::format("a tensor on {}: expected host memory", to_string(value.device())));
        }
        if (value.shape().size() > 255)
            throw ObjectError("", fmt::format("a tensor of {} dimensions: expected at most 255", value.shape().size()));
        const bool is_counting = std::is_same_v<Stream, Counter>;
        if (before_host_read != nullptr && !is_counting) [[unlikely]]
            before_host_read(value.view(), "an object", nullptr);
        const Tensor whole = value.view().contiguous() || is_counting ? value : value.clone();
        std::string head{static_cast<char>(value.dtype()), static_cast<char>(value.shape().size()), '\0'};
        std::string sizes(reinterpret_cast<const char*>(value.shape().data()), 8 * value.shape().size());
        const char* data = static_cast<const char*>(whole.raw_data());
        const std::size_t bytes = value.byte_count();
        TUTTI_ASSERT(whole.byte_count() == bytes);
        if (bytes + head.size() + sizes.size() + 64 > piece_bytes_)
            return pieces(fmt::format("t{}{}", head, sizes), data, bytes);
        // Elements of large tensors begin at a multiple of 64 bytes, so that the receiver can leave them in place.
        std::size_t padding = 0;
        if (bytes >= (std::size_t{1} << 20)) {
            constexpr std::size_t header_bytes = 6;  // of an ext with 32 bits of length
            padding = (64 - (stream_.position() + header_bytes + head.size() + sizes.size()) % 64) % 64;
            head[2] = static_cast<char>(padding);
        }
        TUTTI_ASSERT(padding < 64 && head.size() + padding + sizes.size() + bytes <= largest_piece);
        packer_.pack_ext(head.size() + padding + sizes.size() + bytes, static_cast<std::int8_t>(Extension::tensor));
        stream_.write(head.data(), head.size());
        stream_.write(std::string(padding, '\0').data(), padding);
        stream_.write(sizes.data(), sizes.size());
        stream_.write(data, bytes);
    }

    void map(const Object::Map& entries) {
        enter();
        packer_.pack_map(count(entries.size(), "a map"));
        for (const auto& [key, value] : entries) {
            const auto step = [&entry_key = key] { return detail::key_step(entry_key); };
            at(step, key);
            at(step, value);
        }
        TUTTI_ASSERT(depth_ > 0);
        --depth_;
    }
    void record(const Object::Record& value) {
        enter();
        packer_.pack_array(2);
        if (value.type.size() > 65535)
            throw ObjectError(
                "", fmt::format("a record whose type's name has {} bytes: expected at most 65535", value.type.size()));
        extension(Extension::record, value.type.data(), value.type.size());
        map(value.fields);
        TUTTI_ASSERT(depth_ > 0);
        --depth_;
    }

    Stream& stream_;
    msgpack::packer<Stream> packer_;
    std::size_t piece_bytes_;
    std::size_t depth_ = 0;
};

// f(encoder) twice; `make(bytes)` gives the memory in between.
template <class F, class Make>
void in_two_passes(std::size_t piece_bytes, F f, Make make) {
    Counter counter;
    Encoder<Counter> counting(counter, piece_bytes);
    f(counting);
    Writer writer(make(counter.position()));
    Encoder<Writer> writing(writer, piece_bytes);
    f(writing);
    TUTTI_ASSERT(writer.position() == counter.position());
}

}  // namespace

Encoded encode_list(std::span<const Object> objects, std::size_t piece_bytes) {
    Encoded result;
    in_two_passes(
        piece_bytes, [&](auto& encoder) { encoder.list(objects); },
        [&](std::size_t bytes) {
            const std::size_t padded = (bytes + 63) / 64 * 64;
            TUTTI_ASSERT(padded >= bytes && padded - bytes < 64);
            result = {empty(uint8, Extents::of(static_cast<std::int64_t>(padded))), bytes};
            char* data = static_cast<char*>(result.buffer.raw_data());
            std::memset(data + bytes, 0, padded - bytes);
            return data;
        });
    return result;
}

std::string encode_string(const Object& object) {
    const std::vector<std::byte> bytes = encode(object);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> encode_with(const Object& object, std::size_t piece_bytes) {
    std::vector<std::byte> result;
    in_two_passes(
        piece_bytes, [&](auto& encoder) { encoder.any(object); },
        [&](std::size_t bytes) {
            result.resize(bytes);
            return reinterpret_cast<char*>(result.data());
        });
    return result;
}

}  // namespace tutti::object

namespace tutti {

std::vector<std::byte> encode(const Object& object) {
    return object::encode_with(object, object::largest_piece);
}

}  // namespace tutti
