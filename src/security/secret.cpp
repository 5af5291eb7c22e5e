#include "security/secret.hpp"

#include "core/env.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <vector>

namespace tutti::security {

Secret Secret::from_text(std::string_view text) { return Secret(std::string(text)); }
Secret Secret::generate() { return Secret(random_hex(32)); }

std::optional<Secret> Secret::from_environment() {
    if (const auto text = env::get("TUTTI_JOB_SECRET")) return Secret(*text);
    const auto path = env::get("TUTTI_JOB_SECRET_FILE");
    if (!path) return std::nullopt;
    struct stat status {};
    if (::stat(path->c_str(), &status) != 0) {
        throw InvalidArgument(fmt::format("TUTTI_JOB_SECRET_FILE={}: the file cannot be read", *path));
    }
    if ((status.st_mode & 077) != 0) {
        throw InvalidArgument(fmt::format("TUTTI_JOB_SECRET_FILE={}: others can read it; type: chmod 600 {}", *path, *path));
    }
    std::ifstream file(*path, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty()) throw InvalidArgument(fmt::format("TUTTI_JOB_SECRET_FILE={}: the file is empty", *path));
    return Secret(std::move(text));
}

Digest Secret::sign(std::initializer_list<std::span<const std::byte>> parts) const {
    std::vector<unsigned char> message;
    for (const auto part : parts) {
        const std::uint64_t size = part.size();
        for (int shift = 0; shift < 64; shift += 8) message.push_back(static_cast<unsigned char>(size >> shift));
        for (const std::byte b : part) message.push_back(static_cast<unsigned char>(b));
    }
    Digest digest;
    unsigned int size = 0;
    const unsigned char no_key = 0;  // OpenSSL takes a null key for "the previous one"
    HMAC(EVP_sha256(), text_.empty() ? static_cast<const void*>(&no_key) : text_.data(), static_cast<int>(text_.size()),
         message.data(), message.size(), reinterpret_cast<unsigned char*>(digest.data()), &size);
    return digest;
}

Secret Secret::derive(std::string_view purpose) const {
    std::string text;
    for (const std::byte b : sign({bytes_of("derive"), bytes_of(purpose)})) text += fmt::format("{:02x}", static_cast<unsigned>(b));
    return Secret(std::move(text));
}

void fill_random(std::span<std::byte> bytes) {
    if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) != 1) {
        throw InternalError("the random number generator failed");
    }
}

std::string random_hex(std::size_t byte_count) {
    std::vector<std::byte> bytes(byte_count);
    fill_random(bytes);
    std::string text;
    for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
    return text;
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace tutti::security
