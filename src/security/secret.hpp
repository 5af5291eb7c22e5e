// Secret: a value that all processes of a job know and nobody else does.
//
// Threads: a value; no shared state. The destructor wipes its bytes, and messages never contain them.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::security {

using Mac = std::array<std::byte, 32>;

class Secret {
 public:
    static constexpr std::size_t given_bytes_min = 16;

    /// 256 random bits.
    static Secret generate();
    /// Any text of 1 to 4096 bytes; otherwise InvalidArgument.
    static Secret from_text(std::string_view text);
    /// A secret that a user gives by the option or variable `name`: at least given_bytes_min bytes, since an observer
    /// of a handshake can guess secrets offline without limit. Throws InvalidArgument otherwise.
    static Secret given(std::string_view text, std::string_view name);
    /// TUTTI_JOB_SECRET, else the first line of TUTTI_JOB_SECRET_FILE; checked as by given(). The file must belong to
    /// this user and give nobody else access; otherwise it throws DistNetworkError (code security) with the remedy.
    static std::optional<Secret> from_environment();
    /// Throws as from_environment does.
    static Secret from_file(const std::string& path);

    Secret(const Secret&) = default;
    Secret(Secret&&) noexcept = default;
    Secret& operator=(const Secret&) = default;
    Secret& operator=(Secret&&) noexcept = default;
    ~Secret();

    /// A secret for one purpose, from which this secret cannot be computed.
    Secret derive(std::string_view purpose) const;
    /// HMAC-SHA-256 of the concatenated parts.
    Mac mac(std::initializer_list<std::span<const std::byte>> parts) const;
    /// For an environment variable or an owner-only channel; from_text(to_text()) is the same secret.
    const std::string& to_text() const noexcept { return text_; }
    /// Compares in constant time if the texts have the same length.
    bool operator==(const Secret& other) const noexcept;

 private:
    explicit Secret(std::string text) : text_(std::move(text)) {}
    std::string text_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}
/// Compares in constant time.
bool equal(const Mac& a, const Mac& b) noexcept;
void random_bytes(std::span<std::byte> bytes);

}  // namespace tutti::security
