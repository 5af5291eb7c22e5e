// The TCP store's protocol. Little-endian; a frame is
//   request:   u64 length of what follows | u64 id | u8 operation | fields
//   response:  u64 length of what follows | u64 id | u8 status    | fields
// A field is u64 length | bytes, or an i64. Requests of one connection may be answered in any order: a wait is answered
// when its keys exist, which the server pushes; nobody polls. A length beyond frame_limit closes the connection before
// any memory is allocated for it; buffers grow with what has really arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tutti::store::wire {

enum class Operation : std::uint8_t {
    set = 1,     // key value
    get = 2,     // count key…      answered with the values when all exist
    add = 3,     // key amount
    append = 4,  // key value
    check = 5,   // count key…
    compare_set = 6,
    erase = 7,
    num_keys = 8,
    wait = 9,  // count key…      answered when all exist
    multi_set = 10,
    wait_count = 11,  // key amount   answered when the counter is at least amount
    cancel = 12,      // id              not answered
};
enum class Status : std::uint8_t { ok = 0, error = 1 };

inline constexpr std::uint64_t frame_limit = (std::uint64_t{1} << 30) + (std::uint64_t{1} << 20);
inline constexpr std::size_t length_bytes = 8;
inline constexpr std::size_t head_bytes = 17;  // length, id, operation or status

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class Writer {
 public:
    Writer(std::uint64_t id, std::uint8_t code) {
        integer(0);
        integer(static_cast<std::int64_t>(id));
        bytes_.push_back(static_cast<char>(code));
    }
    void integer(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
    void field(std::string_view value) {
        integer(static_cast<std::int64_t>(value.size()));
        bytes_.append(value);
    }
    std::string finish() && {
        const std::uint64_t length = bytes_.size() - length_bytes;
        std::memcpy(bytes_.data(), &length, sizeof length);
        return std::move(bytes_);
    }

 private:
    std::string bytes_;
};

/// Reads fields; `failed()` once a field would reach beyond the end.
class Reader {
 public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    std::int64_t integer() {
        std::int64_t value = 0;
        if (rest_.size() < sizeof value) {
            failed_ = true;
            return 0;
        }
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_.remove_prefix(sizeof value);
        return value;
    }
    std::uint8_t byte() {
        if (rest_.empty()) {
            failed_ = true;
            return 0;
        }
        const auto value = static_cast<std::uint8_t>(rest_.front());
        rest_.remove_prefix(1);
        return value;
    }
    std::string_view field() {
        const auto size = static_cast<std::uint64_t>(integer());
        if (failed_ || size > rest_.size()) {
            failed_ = true;
            return {};
        }
        const std::string_view value = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return value;
    }
    bool failed() const { return failed_; }

 private:
    std::string_view rest_;
    bool failed_ = false;
};

}  // namespace tutti::store::wire
