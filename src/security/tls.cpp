#include "security/tls.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <utility>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tutti::security {
namespace {

// Before anything else here uses OpenSSL, as its first user decides whether it cleans up at exit: worlds that static
// objects hold end after that, and still do handshakes; threads may use it, too.
[[maybe_unused]] const int without_cleanup_at_exit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

constexpr std::string_view key_label = "tutti tls psk 1:";
/// RFC 8446, section 5.5, bounds the data that AES-GCM encrypts with one key: 2^24.5 full records.
constexpr std::uint64_t records_max = std::uint64_t{1} << 23;
constexpr std::size_t header_bytes = 5;
/// The largest length that a record's header may state.
constexpr std::size_t length_max = Tls::record_bytes + 256;

bool has_aes_instructions() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") != 0;
#elif defined(__aarch64__)
    constexpr unsigned long aes = 1UL << 3;  // HWCAP_AES
    return (::getauxval(AT_HWCAP) & aes) != 0;
#else
    return false;
#endif
}

std::string last_error() {
    const unsigned long code = ERR_peek_last_error();
    const char* words = ERR_reason_error_string(code);
    std::string text = words != nullptr ? words : fmt::format("error {:x}", code);
    ERR_clear_error();
    return text;
}

[[noreturn]] void cannot_set_up() {
    throw InternalError(fmt::format("TLS cannot be set up: OpenSSL: {}", last_error()));
}

Tls& end_of(const SSL* ssl) {
    TUTTI_ASSERT(SSL_get_app_data(ssl) != nullptr);
    return *static_cast<Tls*>(SSL_get_app_data(ssl));
}

// ---- The queues as OpenSSL's BIO

int put(BIO* bio, const char* bytes, int count) {
    TUTTI_ASSERT(count >= 0);
    static_cast<Tls*>(BIO_get_data(bio))
        ->output()
        .append(std::as_bytes(std::span(bytes, static_cast<std::size_t>(count))));
    return count;
}

int take(BIO* bio, char* into, int count) {
    TUTTI_ASSERT(count >= 0);
    BIO_clear_retry_flags(bio);
    const std::size_t size = static_cast<Tls*>(BIO_get_data(bio))
                                 ->give({reinterpret_cast<std::byte*>(into), static_cast<std::size_t>(count)});
    if (size == 0) BIO_set_retry_read(bio);
    return size == 0 ? -1 : static_cast<int>(size);
}

long control(BIO*, int command, long, void*) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

}  // namespace

SSL_CTX& Tls::context() {
    static SSL_CTX* const made = [] {
        SSL_CTX* context = SSL_CTX_new(TLS_method());
        if (context == nullptr) cannot_set_up();
        const char* ciphers = has_aes_instructions() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                                     : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
        if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_ciphersuites(context, ciphers) != 1 || SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
            SSL_CTX_set_num_tickets(context, 0) != 1)
            cannot_set_up();
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
        SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
        SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // most connections of a store say nothing for long
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);  // the key proves both ends
        SSL_CTX_set_psk_use_session_callback(context, &Tls::use_key);
        SSL_CTX_set_psk_find_session_callback(context, &Tls::find_key);
        return context;
    }();
    return *made;
}

const BIO_METHOD* Tls::queues() {
    static const BIO_METHOD* const made = [] {
        BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti");
        if (method == nullptr) cannot_set_up();
        BIO_meth_set_write(method, put);
        BIO_meth_set_read(method, take);
        BIO_meth_set_ctrl(method, control);
        return method;
    }();
    return made;
}

std::unique_ptr<Tls> Tls::connecting(const Secret& secret, std::string identity) {
    TUTTI_ASSERT(!identity.empty());
    auto made = std::unique_ptr<Tls>(new Tls(secret, {}, std::move(identity)));
    SSL_set_connect_state(made->ssl_);
    made->go_on();
    return made;
}

std::unique_ptr<Tls> Tls::accepting(const Secret& secret, Admits admits) {
    TUTTI_ASSERT(admits != nullptr);
    auto made = std::unique_ptr<Tls>(new Tls(secret, std::move(admits), {}));
    SSL_set_accept_state(made->ssl_);
    return made;
}

Tls::Tls(const Secret& secret, Admits admits, std::string identity)
    : secret_(secret), admits_(std::move(admits)), identity_(std::move(identity)) {
    ERR_clear_error();
    ssl_ = SSL_new(&context());
    BIO* bio = ssl_ != nullptr ? BIO_new(queues()) : nullptr;
    if (bio == nullptr) cannot_set_up();
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_, bio, bio);
    SSL_set_app_data(ssl_, this);
    TUTTI_ASSERT(&end_of(ssl_) == this);
}

std::span<const std::byte> Tls::refusal() noexcept {
    constexpr std::byte version{3}, nothing{0}, length{2}, fatal{2}, handshake_failure{40};
    static constexpr std::byte alert[] = {std::byte{21}, version, version, nothing, length, fatal, handshake_failure};
    return alert;
}

Tls::~Tls() {
    SSL_free(ssl_);
}

// The key for this identity, in the form that OpenSSL wants it; null: it cannot be had.
SSL_SESSION* Tls::session() const {
    constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};  // the other cipher has the same hash
    Mac key = secret_.mac({bytes_of(key_label), bytes_of(identity_)});
    SSL_SESSION* made = SSL_SESSION_new();
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl_, aes_128_gcm_sha256);
    const bool good =
        made != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(made, reinterpret_cast<const unsigned char*>(key.data()), key.size()) == 1 &&
        SSL_SESSION_set_cipher(made, cipher) == 1 && SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(key.data(), key.size());
    if (good) return made;
    SSL_SESSION_free(made);
    return nullptr;
}

int Tls::use_key(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, std::size_t* size,
                 SSL_SESSION** session) {
    const Tls& self = end_of(ssl);
    *session = nullptr;
    if (hash != nullptr && !EVP_MD_is_a(hash, "SHA256")) return 1;  // after a retry, with another cipher
    *session = self.session();
    *identity = reinterpret_cast<const unsigned char*>(self.identity_.data());
    *size = self.identity_.size();
    return *session != nullptr ? 1 : 0;
}

int Tls::find_key(SSL* ssl, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
    Tls& self = end_of(ssl);
    TUTTI_ASSERT(self.admits_ != nullptr && self.state_ == State::shaking_hands);
    *session = nullptr;
    self.identity_.assign(reinterpret_cast<const char*>(identity), size);
    if (!self.admits_(self.identity_)) return 1;  // it goes on without a key, and fails for want of a certificate
    *session = self.session();
    return *session != nullptr ? 1 : 0;
}

void Tls::fail(std::string why) noexcept {
    TUTTI_ASSERT(!why.empty());
    if (state_ == State::failed) return;
    state_ = State::failed;
    error_ = std::move(why);
}

// Notes why a call of OpenSSL's has failed.
void Tls::note_failure() {
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    const bool is_alert = ERR_GET_LIB(code) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET;
    const bool early = state_ == State::shaking_hands;
    ERR_clear_error();
    const char* words = ERR_reason_error_string(code);
    const std::string what = words != nullptr ? words : "no reason given";
    if (early && is_alert)
        return fail(
            fmt::format("it refused the handshake: it does not know this job's secret, or is not the one that "
                        "is meant (TLS: {})",
                        what));
    if (early && admits_ && !identity_.empty() && reason != SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC)
        return fail(
            fmt::format("it calls itself \"{}\", and does not know this job's secret, or means another than "
                        "this one (TLS: {})",
                        identity_, what));
    if (reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC)
        return fail(
            fmt::format("what came is not what was sent: it was changed, injected, left out or sent again on the "
                        "way (TLS: {})",
                        what));
    if (is_alert) return fail(fmt::format("it says that what it got is not what was sent (TLS: {})", what));
    fail(fmt::format("what it says is not the TLS of a job with this secret, or was changed on the way (TLS: {})",
                     what));
}

void Tls::go_on() {
    if (state_ != State::shaking_hands) return;
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    if (result == 1) {
        const SSL_CIPHER* suite = SSL_get_current_cipher(ssl_);
        cipher_ = suite != nullptr ? SSL_CIPHER_get_name(suite) : "";
        state_ = State::open;
        // A server may do the handshake by a certificate in place of the key, which proves nothing here.
        if (SSL_session_reused(ssl_) != 1) fail("it does not know this job's secret: it showed a certificate instead");
    } else if (SSL_get_error(ssl_, result) != SSL_ERROR_WANT_READ) {
        note_failure();
    }
}

bool Tls::write(std::span<const std::byte> bytes) {
    if (!can_write()) return false;
    if (records_written_ >= records_max && !renew_key()) return false;
    ERR_clear_error();
    std::size_t written = 0;
    // The queue takes all that OpenSSL gives it, so that one call writes all.
    if (!bytes.empty() && SSL_write_ex(ssl_, bytes.data(), bytes.size(), &written) != 1) {
        note_failure();
        return false;
    }
    TUTTI_ASSERT(written == bytes.size() && records_written_ <= records_max);
    records_written_ += (written + record_bytes - 1) / record_bytes;
    return true;
}

bool Tls::renew_key() {
    if (!can_write()) return false;
    ERR_clear_error();
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl_) != 1) {
        note_failure();
        return false;
    }
    records_written_ = 0;
    return true;
}

std::size_t Tls::read(std::span<std::byte> into) {
    std::size_t total = 0;
    ERR_clear_error();
    while (total < into.size() && holds_record()) {
        std::size_t count = 0;
        if (SSL_read_ex(ssl_, into.data() + total, into.size() - total, &count) == 1) {
            total += count;
            continue;
        }
        const int error = SSL_get_error(ssl_, 0);
        if (error == SSL_ERROR_ZERO_RETURN)
            state_ = State::ended;
        else if (error != SSL_ERROR_WANT_READ)  // it wants more behind a record without data, such as a new key
            note_failure();
    }
    TUTTI_ASSERT(total <= into.size());
    return total;
}

// Bytes of the record that comes next, if all of it is here; 0: it is not. Of a record that is too long: the bytes at
// hand.
std::size_t Tls::whole_record() const noexcept {
    const auto bytes = input_.bytes();
    if (bytes.size() < header_bytes) return 0;
    const std::size_t length = std::to_integer<std::size_t>(bytes[3]) << 8U | std::to_integer<std::size_t>(bytes[4]);
    // Once it is open all records begin alike; of anything else the end may never come.
    constexpr std::array<std::byte, 3> beginning{std::byte{23}, std::byte{3}, std::byte{3}};
    const bool is_record = state_ == State::shaking_hands || std::ranges::equal(bytes.first(3), beginning);
    if (length > length_max || !is_record) return bytes.size();
    return bytes.size() >= header_bytes + length ? header_bytes + length : 0;
}

// OpenSSL gets whole records, so that one can tell from the queue whether there is another.
std::size_t Tls::give(std::span<std::byte> into) noexcept {
    if (record_left_ == 0) record_left_ = whole_record();
    const std::size_t size = std::min(record_left_, into.size());
    TUTTI_ASSERT(size <= input_.bytes().size());
    std::copy_n(input_.bytes().begin(), size, into.begin());
    input_.remove(size);
    record_left_ -= size;
    return size;
}

bool Tls::holds_record() const noexcept {
    return state_ == State::open && (SSL_pending(ssl_) > 0 || whole_record() > 0);
}

void Tls::end() {
    ERR_clear_error();
    if (can_write()) SSL_shutdown(ssl_);
}

}  // namespace tutti::security
