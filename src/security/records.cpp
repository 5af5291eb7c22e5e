#include "security/records.hpp"

#include <tutti/error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace tutti::security {
namespace {

using Header = std::array<std::byte, Records::header_bytes>;

constexpr std::byte data_outside{23};  // of all records that are encrypted

Header header_of(std::size_t behind) {
    return {data_outside, std::byte{3}, std::byte{3}, static_cast<std::byte>(behind >> 8U),
            static_cast<std::byte>(behind & 0xffU)};
}

unsigned char* to(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* from(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}

Secret secret_of(std::span<const std::byte> bytes) {
    return Secret::from_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

Records::Records(const EVP_CIPHER* cipher, std::span<const std::byte> secret)
    : cipher_(cipher), context_(EVP_CIPHER_CTX_new()), secret_(secret_of(secret)) {
    use_secret();
}

Records::~Records() {
    EVP_CIPHER_CTX_free(context_);
}

// HKDF-Expand-Label of at most one hash: HKDF-Expand (RFC 5869) is then one HMAC.
void Records::derive(std::string_view label, std::span<std::byte> into) const {
    const std::string whole = "tls13 " + std::string(label);
    const std::array<std::byte, 3> before{std::byte{0}, static_cast<std::byte>(into.size()),
                                          static_cast<std::byte>(whole.size())};
    const std::array<std::byte, 2> after{std::byte{0}, std::byte{1}};  // an empty context; the first block
    Mac block = secret_.mac({before, bytes_of(whole), after});
    std::copy_n(block.begin(), into.size(), into.begin());
    OPENSSL_cleanse(block.data(), block.size());
}

void Records::use_secret() {
    std::array<std::byte, 32> key{};
    derive("key", std::span(key).first(static_cast<std::size_t>(EVP_CIPHER_get_key_length(cipher_))));
    derive("iv", iv_);
    // Each record tells the cipher whether to encrypt or decrypt.
    const bool good =
        context_ != nullptr && EVP_CipherInit_ex(context_, cipher_, nullptr, from(key.data()), nullptr, 1) == 1;
    OPENSSL_cleanse(key.data(), key.size());
    if (!good) throw InternalError("TLS: OpenSSL does not take a key");
    count_ = 0;
}

void Records::renew() {
    Mac next{};
    derive("traffic upd", next);
    secret_ = secret_of(next);
    OPENSSL_cleanse(next.data(), next.size());
    use_secret();
}

std::array<std::byte, Records::iv_bytes> Records::next_iv() {
    auto iv = iv_;
    for (std::size_t i = 0; i < sizeof count_; ++i) iv[iv_bytes - 1 - i] ^= static_cast<std::byte>(count_ >> (8 * i));
    ++count_;
    return iv;
}

bool Records::seal(Kind kind, std::span<const std::byte> content, ByteQueue& queue) {
    const std::size_t behind = content.size() + 1 + tag_bytes;
    const Header header = header_of(behind);
    const auto room = queue.room(header_bytes + behind);
    std::copy(header.begin(), header.end(), room.begin());
    std::byte* const at = room.data() + header.size();
    const auto kind_byte = static_cast<unsigned char>(kind);
    const auto iv = next_iv();
    const auto size = static_cast<int>(content.size());
    int count = 0;
    const bool good =
        EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, from(iv.data()), 1) == 1 &&
        EVP_CipherUpdate(context_, nullptr, &count, from(header.data()), static_cast<int>(header.size())) == 1 &&
        (size == 0 || EVP_CipherUpdate(context_, to(at), &count, from(content.data()), size) == 1) &&
        EVP_CipherUpdate(context_, to(at) + size, &count, &kind_byte, 1) == 1 &&
        EVP_CipherFinal_ex(context_, to(at) + size + 1, &count) == 1 &&
        EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag_bytes), at + size + 1) == 1;
    if (good) queue.added(header_bytes + behind);
    return good;
}

std::optional<Records::Opened> Records::open(std::span<const std::byte> record, std::span<std::byte> into) {
    if (record.size() < header_bytes + 1 + tag_bytes) return std::nullopt;
    const auto header = record.first(header_bytes), body = record.subspan(header_bytes);
    if (!std::ranges::equal(header, header_of(body.size()))) return std::nullopt;
    std::size_t size = body.size() - tag_bytes - 1;
    if (size > content_bytes || size > into.size()) return std::nullopt;
    const auto iv = next_iv();
    unsigned char kind = 0, nothing[tag_bytes];
    int count = 0;
    const bool right =
        EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, from(iv.data()), 0) == 1 &&
        EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag_bytes),
                            const_cast<std::byte*>(body.last(tag_bytes).data())) == 1 &&
        EVP_CipherUpdate(context_, nullptr, &count, from(header.data()), static_cast<int>(header.size())) == 1 &&
        (size == 0 ||
         EVP_CipherUpdate(context_, to(into.data()), &count, from(body.data()), static_cast<int>(size)) == 1) &&
        EVP_CipherUpdate(context_, &kind, &count, from(body.data()) + size, 1) == 1 &&
        EVP_CipherFinal_ex(context_, nothing, &count) == 1;
    if (!right) return std::nullopt;
    while (kind == 0 && size > 0) kind = std::to_integer<unsigned char>(into[--size]);  // padding
    return Opened{static_cast<Kind>(kind), size};
}

}  // namespace tutti::security
