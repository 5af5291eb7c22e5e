#include "core/assert.hpp"
#include "object/codec.hpp"
#include "tensor/host_read.hpp"

#include <tutti/object_stream.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tutti {

using object::Extension;

ObjectWriter::ObjectWriter(std::size_t piece_bytes)
    : piece_bytes_(std::clamp<std::size_t>(piece_bytes, 64, largest_piece)) {}
ObjectWriter::~ObjectWriter() {
    std::free(begin_);
}

void ObjectWriter::grow(std::size_t bytes) {
    const auto used = static_cast<std::size_t>(next_ - begin_);
    const std::size_t capacity =
        std::max({2 * static_cast<std::size_t>(end_ - begin_), used + bytes, std::size_t{1024}});
    auto* const memory = static_cast<unsigned char*>(std::realloc(begin_, capacity));
    if (memory == nullptr) throw std::bad_alloc();
    begin_ = memory;
    next_ = memory + used;
    end_ = memory + capacity;
    TUTTI_ASSERT(static_cast<std::size_t>(end_ - next_) >= bytes);
}

void ObjectWriter::raw(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    need(bytes);
    std::memcpy(next_, data, bytes);
    next_ += bytes;
}

// Long ones stay where they are until the whole is put together: they are copied once.
void ObjectWriter::elements(const Tensor& whole, const char* data, std::size_t bytes) {
    constexpr std::size_t least_inserted = 4096;
    if (bytes < least_inserted) return raw(data, bytes);
    inserted_.push_back({static_cast<std::size_t>(next_ - begin_), data, bytes, whole});
    inserted_bytes_ += bytes;
}

void ObjectWriter::enter(std::size_t levels) {
    if (depth_ + levels > max_object_depth)
        throw ObjectError("", fmt::format("lists and maps are more than {} levels deep", max_object_depth));
    depth_ += levels;
}

void ObjectWriter::header(unsigned char small, std::size_t largest_small, unsigned char with_16_bits, std::size_t count,
                          const char* what, std::size_t levels) {
    if (count > UINT32_MAX)
        throw ObjectError("", fmt::format("{} has {} entries: expected fewer than 2^32", what, count));
    enter(levels);
    need(5);
    if (count <= largest_small)
        *next_++ = static_cast<unsigned char>(small | count);
    else if (count <= UINT16_MAX)
        put(with_16_bits, static_cast<std::uint16_t>(count));
    else
        put(static_cast<unsigned char>(with_16_bits + 1), static_cast<std::uint32_t>(count));
}
void ObjectWriter::begin_list(std::size_t count) {
    header(0x90, 15, 0xdc, count, "a list");
}
void ObjectWriter::begin_tuple(std::size_t count) {
    header(0x90, 15, 0xdc, count + 1, "a tuple", detail::tuple_levels);
    extension(static_cast<int>(Extension::tuple), 0);
}
void ObjectWriter::begin_map(std::size_t count) {
    header(0x80, 15, 0xde, count, "a map");
}
void ObjectWriter::begin_record(std::string_view type, std::size_t fields) {
    if (type.size() > UINT16_MAX)
        throw ObjectError("",
                          fmt::format("a record whose type's name has {} bytes: expected at most 65535", type.size()));
    begin_list(2);
    extension(static_cast<int>(Extension::record), type.size());
    raw(type.data(), type.size());
    begin_map(fields);
}

void ObjectWriter::extension(int type, std::size_t bytes) {
    TUTTI_ASSERT(bytes <= UINT32_MAX);
    need(6);
    if (std::has_single_bit(bytes) && bytes <= 16)
        *next_++ = static_cast<unsigned char>(0xd4 + std::countr_zero(bytes));
    else if (bytes <= UINT8_MAX)
        put(0xc7, static_cast<std::uint8_t>(bytes));
    else if (bytes <= UINT16_MAX)
        put(0xc8, static_cast<std::uint16_t>(bytes));
    else
        put(0xc9, static_cast<std::uint32_t>(bytes));
    *next_++ = static_cast<unsigned char>(type);
}
void ObjectWriter::bin(std::size_t bytes) {
    TUTTI_ASSERT(bytes <= UINT32_MAX);
    need(5);
    if (bytes <= UINT8_MAX)
        put(0xc4, static_cast<std::uint8_t>(bytes));
    else if (bytes <= UINT16_MAX)
        put(0xc5, static_cast<std::uint16_t>(bytes));
    else
        put(0xc6, static_cast<std::uint32_t>(bytes));
}

void ObjectWriter::complex(std::complex<double> value) {
    extension(static_cast<int>(Extension::complex), sizeof value);
    raw(&value, sizeof value);
}

void ObjectWriter::long_string(std::string_view value) {
    if (value.size() > piece_bytes_) return pieces("s", value.data(), value.size(), nullptr);
    need(5);
    if (value.size() <= UINT8_MAX)
        put(0xd9, static_cast<std::uint8_t>(value.size()));
    else if (value.size() <= UINT16_MAX)
        put(0xda, static_cast<std::uint16_t>(value.size()));
    else
        put(0xdb, static_cast<std::uint32_t>(value.size()));
    raw(value.data(), value.size());
}
void ObjectWriter::bytes(std::span<const std::byte> value) {
    const char* data = reinterpret_cast<const char*>(value.data());
    if (value.size() > piece_bytes_) return pieces("b", data, value.size(), nullptr);
    bin(value.size());
    raw(data, value.size());
}

// `of`: the tensor whose elements they are.
void ObjectWriter::pieces(std::string_view head, const char* data, std::size_t bytes, const Tensor* of) {
    TUTTI_ASSERT(!head.empty() && (data != nullptr || bytes == 0));
    begin_list((bytes + piece_bytes_ - 1) / piece_bytes_ + 1);
    extension(static_cast<int>(Extension::pieces), head.size());
    raw(head.data(), head.size());
    for (std::size_t done = 0; done < bytes; done += piece_bytes_) {
        const std::size_t piece = std::min(piece_bytes_, bytes - done);
        TUTTI_ASSERT(piece > 0 && piece <= largest_piece);
        bin(piece);
        of != nullptr ? elements(*of, data + done, piece) : raw(data + done, piece);
    }
    end_list();
}

void ObjectWriter::tensor(const Tensor& value) {
    if (value.device().type != Device::Type::cpu)
        throw ObjectError("", fmt::format("a tensor on {}: expected host memory", to_string(value.device())));
    if (value.shape().size() > 255)
        throw ObjectError("", fmt::format("a tensor of {} dimensions: expected at most 255", value.shape().size()));
    if (before_host_read != nullptr) [[unlikely]]
        before_host_read(value.view(), "an object", nullptr);
    const Tensor whole = value.view().contiguous() ? value : value.clone();
    std::string head{static_cast<char>(value.dtype()), static_cast<char>(value.shape().size()), '\0'};
    const std::string sizes(reinterpret_cast<const char*>(value.shape().data()), 8 * value.shape().size());
    const char* data = static_cast<const char*>(whole.raw_data());
    const std::size_t bytes = value.byte_count();
    TUTTI_ASSERT(whole.byte_count() == bytes);
    if (bytes + head.size() + sizes.size() + 64 > piece_bytes_)
        return pieces(fmt::format("t{}{}", head, sizes), data, bytes, &whole);
    // Elements of large tensors begin at a multiple of 64 bytes, so that the receiver can leave them in place.
    std::size_t padding = 0;
    if (bytes >= (std::size_t{1} << 20)) {
        constexpr std::size_t header_bytes = 6;  // of an ext with 32 bits of length
        padding = (64 - (size() + header_bytes + head.size() + sizes.size()) % 64) % 64;
        head[2] = static_cast<char>(padding);
    }
    TUTTI_ASSERT(padding < 64 && head.size() + padding + sizes.size() + bytes <= largest_piece);
    extension(static_cast<int>(Extension::tensor), head.size() + padding + sizes.size() + bytes);
    raw(head.data(), head.size());
    raw(std::string(padding, '\0').data(), padding);
    raw(sizes.data(), sizes.size());
    elements(whole, data, bytes);
}

ObjectWriter::Mark ObjectWriter::mark() const noexcept {
    return {static_cast<std::size_t>(next_ - begin_), inserted_bytes_, inserted_.size(), depth_};
}
void ObjectWriter::rewind(const Mark& mark) noexcept {
    TUTTI_ASSERT(mark.bytes <= static_cast<std::size_t>(next_ - begin_) && mark.inserted <= inserted_.size());
    next_ = begin_ + mark.bytes;
    inserted_bytes_ = mark.inserted_bytes;
    inserted_.erase(inserted_.begin() + static_cast<std::ptrdiff_t>(mark.inserted), inserted_.end());
    depth_ = mark.depth;
}

void ObjectWriter::copy_to(std::byte* to) const {
    std::size_t from = 0;
    const auto copy = [&to](const void* data, std::size_t bytes) {
        if (bytes > 0) std::memcpy(to, data, bytes);
        to += bytes;
    };
    for (const Inserted& one : inserted_) {
        TUTTI_ASSERT(one.at >= from);
        copy(begin_ + from, one.at - from);
        copy(one.data, one.bytes);
        from = one.at;
    }
    copy(begin_ + from, static_cast<std::size_t>(next_ - begin_) - from);
}

EncodedObject ObjectWriter::finish() const {
    TUTTI_ASSERT(depth_ == 0);
    const std::size_t bytes = size(), padded = (bytes + 63) / 64 * 64;
    EncodedObject result{empty(uint8, Extents::of(static_cast<std::int64_t>(padded))), bytes};
    auto* const data = static_cast<std::byte*>(result.buffer.raw_data());
    copy_to(data);
    if (padded > bytes) std::memset(data + bytes, 0, padded - bytes);
    return result;
}

}  // namespace tutti
