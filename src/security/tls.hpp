// Tls: one end of a TLS 1.3 connection between two processes that know a secret. It does no I/O: its user (Wire, or the
// event loop of the store's server) owns the socket and moves the bytes.
//
// The secret is an external pre-shared key (RFC 8446, psk_dhe_ke): no certificates, and a fresh X25519 exchange for
// each connection, so that somebody who learns the secret later cannot decrypt recorded traffic. The key is derived for
// the identity that the connecting end sends, which names the connection's purpose and the ranks that it connects: an
// attacker can neither redirect a connection to another rank or service nor reflect bytes to their sender. There are no
// tickets and no early data, so that nothing can be replayed.
//
// Threads: one at a time.
#pragma once

#include "security/byte_queue.hpp"
#include "security/secret.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

// OpenSSL's
struct bio_method_st;
struct evp_md_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace tutti::security {

class Tls {
 public:
    /// Whether this end accepts a connection with this identity.
    using Admits = std::function<bool(std::string_view identity)>;
    enum class State {
        shaking_hands,
        open,
        ended,  ///< the peer has sent close_notify: it sends nothing more
        failed  ///< error() says why; nothing more can be read
    };
    static constexpr std::size_t record_bytes = std::size_t{1} << 14;  ///< the most data in one record

    /// Makes the connecting end, which starts the handshake at once.
    static std::unique_ptr<Tls> connecting(const Secret& secret, std::string identity);
    static std::unique_ptr<Tls> accepting(const Secret& secret, Admits admits);
    /// Whether a connection that begins with this byte begins with TLS.
    static constexpr bool begins_with(std::byte first) { return first == std::byte{22}; }
    /// The answer of an accepting end that takes only TLS to a peer that begins without TLS: an alert in plain text.
    /// The connecting end recognises it by its first byte.
    static std::span<const std::byte> refusal() noexcept;
    static constexpr bool refuses_with(std::byte first) { return first == std::byte{21}; }

    ~Tls();
    Tls(const Tls&) = delete;
    Tls& operator=(const Tls&) = delete;

    State state() const noexcept { return state_; }
    const std::string& error() const noexcept { return error_; }
    /// To be called when the transport has ended without TLS's close_notify.
    void cut() noexcept { fail("the connection was cut: it ended without TLS's close_notify"); }
    /// The identity that the connecting end claims; not proved until the state is open.
    const std::string& identity() const noexcept { return identity_; }
    /// The cipher, once open: such as "TLS_AES_128_GCM_SHA256".
    const std::string& cipher() const noexcept { return cipher_; }

    /// The bytes from the peer: append them here, then call go_on().
    ByteQueue& input() noexcept { return input_; }
    /// The bytes to send to the peer.
    ByteQueue& output() noexcept { return output_; }
    const ByteQueue& output() const noexcept { return output_; }
    /// Continues the handshake with the bytes that have come.
    void go_on();

    /// Encrypts all of the bytes into records in output(), once open; false if the connection has failed.
    bool write(std::span<const std::byte> bytes);
    /// Decrypts bytes of input(); returns their number. 0: input() holds no whole record, or see state().
    std::size_t read(std::span<std::byte> into);
    /// Whether read() would return bytes, or detect an end, without further input.
    bool holds_record() const noexcept;
    /// Changes the key for later records. write() calls this, long before it has encrypted too much with one key.
    bool renew_key();
    /// Writes close_notify to output(): nothing more will be written.
    void end();
    /// For OpenSSL's BIO: takes bytes from input().
    std::size_t give(std::span<std::byte> into) noexcept;

 private:
    Tls(const Secret& secret, Admits admits, std::string identity);
    static int use_key(ssl_st*, const evp_md_st*, const unsigned char**, std::size_t*, ssl_session_st**);
    static int find_key(ssl_st*, const unsigned char*, std::size_t, ssl_session_st**);
    static ssl_ctx_st& context();
    static const bio_method_st* queues();
    ssl_session_st* session() const;
    std::size_t whole_record() const noexcept;
    bool can_write() const noexcept { return state_ == State::open || state_ == State::ended; }
    void fail(std::string why) noexcept;
    void note_failure();

    Secret secret_;
    Admits admits_;  // empty at the connecting end
    std::string identity_;
    State state_ = State::shaking_hands;
    std::string error_;
    ByteQueue input_, output_;
    ssl_st* ssl_ = nullptr;
    std::size_t record_left_ = 0;        // bytes of a record that OpenSSL has read in part
    std::uint64_t records_written_ = 0;  // with the current key
    std::string cipher_;
};

}  // namespace tutti::security
