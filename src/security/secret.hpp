// Secret: what the processes of one job know and nobody else does.
//
// A value; never logged. HMAC-SHA-256 (RFC 2104) by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::security {

using Digest = std::array<std::byte, 32>;

class Secret {
   public:
    /// From any text; an empty one is "no secret", which proves nothing.
    static Secret from_text(std::string_view text);
    /// 256 random bits.
    static Secret generate();
    /// TUTTI_JOB_SECRET, or the contents of TUTTI_JOB_SECRET_FILE, which must be readable by its owner only.
    static std::optional<Secret> from_environment();

    /// For handing it to a child process or a store; a hexadecimal string.
    const std::string& text() const noexcept { return text_; }
    /// HMAC of the parts, each preceded by its length.
    Digest sign(std::initializer_list<std::span<const std::byte>> parts) const;
    /// Another secret for another purpose; neither tells the other.
    Secret derive(std::string_view purpose) const;

   private:
    explicit Secret(std::string text) : text_(std::move(text)) {}
    std::string text_;
};

/// Random bytes from the kernel.
void fill_random(std::span<std::byte> bytes);
std::string random_hex(std::size_t byte_count);
std::span<const std::byte> bytes_of(std::string_view text);

}  // namespace tutti::security
