#define OPENSSL_SUPPRESS_DEPRECATED  // SHA256_Init and its like
#include "security/secret.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/private_file.hpp"
#include "core/unique_fd.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace tutti::security {
namespace {

constexpr std::size_t max_secret_bytes = 4096;

/// OpenSSL's sum itself. Through its EVP interface the first use in a process sets up providers and a configuration,
/// 2 ms that every rank of a job would spend when it starts.
class Sha256 {
 public:
    Sha256() { SHA256_Init(&state_); }
    ~Sha256() { OPENSSL_cleanse(&state_, sizeof state_); }
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;
    void add(std::span<const std::byte> bytes) { SHA256_Update(&state_, bytes.data(), bytes.size()); }
    Mac sum() {
        Mac result;
        SHA256_Final(reinterpret_cast<unsigned char*>(result.data()), &state_);
        return result;
    }

 private:
    SHA256_CTX state_{};
};

/// HMAC (RFC 2104) works on a key of one block.
using Block = std::array<std::byte, SHA256_CBLOCK>;

Block padded(Block key, std::byte pad) {
    for (std::byte& value : key) value ^= pad;
    return key;
}

std::string to_hex(std::span<const std::byte> bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::byte value : bytes) {
        text += digits[std::to_integer<unsigned>(value) >> 4U];
        text += digits[std::to_integer<unsigned>(value) & 15U];
    }
    TUTTI_ASSERT(text.size() == 2 * bytes.size());
    return text;
}

constexpr const char* make_one = "make one: openssl rand -hex 32";

bool may_be_given(std::string_view text) {
    return text.size() >= Secret::given_bytes_min && text.size() <= max_secret_bytes;
}

std::string short_or_long(std::string_view text) {
    return fmt::format("{} bytes: expected {} to {}, since short ones can be found by trying", text.size(),
                       Secret::given_bytes_min, max_secret_bytes);
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& cause, std::string hint) {
    throw DistNetworkError(fmt::format("the job's secret cannot be taken from {}: {}", path, cause),
                           {.operation = "security", .hint = std::move(hint)}, ErrorCode::security);
}

}  // namespace

void random_bytes(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw InternalError("the system's random generator failed");
        TUTTI_ASSERT(static_cast<std::size_t>(got) <= bytes.size());
        bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
}

bool equal(const Mac& a, const Mac& b) noexcept {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret Secret::generate() {
    std::array<std::byte, 32> bytes;
    random_bytes(bytes);
    Secret secret(to_hex(bytes));
    OPENSSL_cleanse(bytes.data(), bytes.size());
    return secret;
}

Secret Secret::from_text(std::string_view text) {
    if (text.empty() || text.size() > max_secret_bytes) {
        throw InvalidArgument(
            fmt::format("a secret of {} bytes: expected 1 to {} bytes", text.size(), max_secret_bytes));
    }
    return Secret(std::string(text));
}

Secret Secret::given(std::string_view text, std::string_view name) {
    if (!may_be_given(text)) {
        throw InvalidArgument(fmt::format("{}: a secret of {}; {}", name, short_or_long(text), make_one),
                              {.operation = "security", .hint = make_one});
    }
    return Secret(std::string(text));
}

Secret Secret::from_file(const std::string& path) {
    // O_NONBLOCK: a FIFO in its place must not stop us.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) refuse_file(path, std::system_category().message(errno), "check TUTTI_JOB_SECRET_FILE");
    if (const auto bad = why_not_private(fd.get(), path, FileOwner::this_user_or_root))
        refuse_file(path, bad->cause, bad->hint);
    std::array<char, max_secret_bytes + 2> buffer;
    std::size_t size = 0;
    while (size < buffer.size()) {
        const ssize_t got = ::read(fd.get(), buffer.data() + size, buffer.size() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse_file(path, std::system_category().message(errno), "");
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    std::string_view text(buffer.data(), size);
    TUTTI_ASSERT(size <= buffer.size());
    text = text.substr(0, text.find_first_of("\r\n"));
    if (!may_be_given(text)) refuse_file(path, fmt::format("its first line has {}", short_or_long(text)), make_one);
    Secret secret{std::string(text)};
    OPENSSL_cleanse(buffer.data(), buffer.size());
    return secret;
}

std::optional<Secret> Secret::from_environment() {
    if (const auto text = env::get("TUTTI_JOB_SECRET")) return given(*text, "TUTTI_JOB_SECRET");
    if (const auto path = env::get("TUTTI_JOB_SECRET_FILE")) return from_file(*path);
    return std::nullopt;
}

Secret::~Secret() {
    OPENSSL_cleanse(text_.data(), text_.size());
}

Mac Secret::mac(std::initializer_list<std::span<const std::byte>> parts) const {
    TUTTI_ASSERT(!text_.empty());
    Block key{};
    if (text_.size() <= key.size()) {
        std::memcpy(key.data(), text_.data(), text_.size());
    } else {
        Sha256 shorter;
        shorter.add(std::as_bytes(std::span(text_)));
        const Mac sum = shorter.sum();
        std::ranges::copy(sum, key.begin());
    }
    Block inner_key = padded(key, std::byte{0x36});
    Block outer_key = padded(key, std::byte{0x5c});
    Sha256 inner;
    inner.add(inner_key);
    for (const auto part : parts) inner.add(part);
    const Mac inner_sum = inner.sum();
    Sha256 outer;
    outer.add(outer_key);
    outer.add(inner_sum);
    const Mac result = outer.sum();
    for (Block* secret : {&key, &inner_key, &outer_key}) OPENSSL_cleanse(secret->data(), secret->size());
    return result;
}

Secret Secret::derive(std::string_view purpose) const {
    TUTTI_ASSERT(!purpose.empty());
    static constexpr std::string_view label = "tutti derive 1:";
    return Secret(to_hex(mac({std::as_bytes(std::span(label)), std::as_bytes(std::span(purpose))})));
}

bool Secret::operator==(const Secret& other) const noexcept {
    return text_.size() == other.text_.size() && CRYPTO_memcmp(text_.data(), other.text_.data(), text_.size()) == 0;
}

}  // namespace tutti::security
