// Records: one direction of an open TLS 1.3 connection: bytes made records, or records made bytes (RFC 8446, section
// 5).
//
// The handshake is OpenSSL's, and so are the ciphers. Its own records cost two copies more on either side, which is
// half of the cost of TLS for a stream of long messages; here a record goes from the caller's memory to the caller's.
//
// Threads: one at a time.
#pragma once

#include "security/byte_queue.hpp"
#include "security/secret.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

// OpenSSL's
struct evp_cipher_ctx_st;
struct evp_cipher_st;

namespace tutti::security {

class Records {
 public:
    enum class Kind : std::uint8_t { alert = 21, handshake = 22, data = 23 };
    static constexpr std::size_t content_bytes = std::size_t{1} << 14;  ///< of one record
    static constexpr std::size_t header_bytes = 5;
    static constexpr std::size_t tag_bytes = 16;

    /// `cipher`: AES-128-GCM or ChaCha20-Poly1305; `secret`: the traffic secret of this direction.
    Records(const evp_cipher_st* cipher, std::span<const std::byte> secret);
    ~Records();
    Records(const Records&) = delete;
    Records& operator=(const Records&) = delete;

    /// Appends a record of at most content_bytes. False: the cipher fails.
    bool seal(Kind kind, std::span<const std::byte> content, ByteQueue& to);
    struct Opened {
        Kind kind{};
        std::size_t bytes = 0;
    };
    /// How much room the content of a record with that many bytes takes.
    static constexpr std::size_t room_for(std::size_t record) {
        return record < header_bytes + tag_bytes + 1 ? 0 : record - header_bytes - tag_bytes - 1;
    }
    /// A whole record; nullopt where it is not the other end's next one: then nothing in `into` counts.
    std::optional<Opened> open(std::span<const std::byte> record, std::span<std::byte> into);
    /// The next key (section 7.2).
    void renew();
    /// The number of records sealed or opened with this key.
    std::uint64_t count() const noexcept { return count_; }

 private:
    static constexpr std::size_t iv_bytes = 12;
    void use_secret();
    std::array<std::byte, iv_bytes> next_iv();
    void derive(std::string_view label, std::span<std::byte> into) const;

    const evp_cipher_st* cipher_;
    evp_cipher_ctx_st* context_;
    Secret secret_;
    std::array<std::byte, iv_bytes> iv_{};
    std::uint64_t count_ = 0;
};

}  // namespace tutti::security
