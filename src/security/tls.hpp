// Tls: one end of a TLS 1.3 connection between two processes that know a secret. It does no I/O: its user, Wire or the
// event loop of the store's server, has the socket and moves the bytes.
//
// The secret is an external pre-shared key (RFC 8446, psk_dhe_ke): no certificates, and a fresh X25519 exchange for
// each connection, so that somebody who learns the secret later cannot decrypt recorded traffic. The key is derived for
// the identity that the connecting end sends, which names the connection's purpose and the ranks that it connects: an
// attacker cannot lead it to another rank or service, and its bytes played back to their sender mean nothing. There are
// no tickets and no early data, so that nothing can be replayed.
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
    /// Whether a connection of that identity is for this end.
    using Admits = std::function<bool(std::string_view identity)>;
    enum class State {
        shaking_hands,
        open,
        ended,  ///< the other end has said that it sends nothing more
        failed  ///< error() says why; nothing more can be read
    };
    static constexpr std::size_t record_bytes = std::size_t{1} << 14;  ///< the most of one record

    /// The end that connects; begins at once.
    static std::unique_ptr<Tls> connecting(const Secret& secret, std::string identity);
    static std::unique_ptr<Tls> accepting(const Secret& secret, Admits admits);
    /// Whether a connection that begins with this byte begins with TLS.
    static constexpr bool begins_with(std::byte first) { return first == std::byte{22}; }
    /// The answer of an accepting end that takes only TLS to a peer that begins otherwise: an alert in plain text. The
    /// connecting end recognises it by its first byte.
    static std::span<const std::byte> refusal() noexcept;
    static constexpr bool refuses_with(std::byte first) { return first == std::byte{21}; }

    ~Tls();
    Tls(const Tls&) = delete;
    Tls& operator=(const Tls&) = delete;

    State state() const noexcept { return state_; }
    const std::string& error() const noexcept { return error_; }
    /// Tells it that the transport has ended without TLS's close_notify.
    void cut() noexcept { fail("the connection was cut: it ended without TLS's close_notify"); }
    /// The name that the connecting end has given itself; unproved until the state is open.
    const std::string& identity() const noexcept { return identity_; }
    /// Once open: such as "TLS_AES_128_GCM_SHA256".
    const std::string& cipher() const noexcept { return cipher_; }

    /// Bytes from the other end: put them here, then go_on().
    ByteQueue& input() noexcept { return input_; }
    /// Bytes for the other end.
    ByteQueue& output() noexcept { return output_; }
    const ByteQueue& output() const noexcept { return output_; }
    /// Continues the handshake with the bytes that have come.
    void go_on();

    /// Once open. Encrypts all of the bytes into records in output(); false when it has failed.
    bool write(std::span<const std::byte> bytes);
    /// Decrypts bytes of input(). 0: input() holds no whole record, or see state().
    std::size_t read(std::span<std::byte> into);
    /// read() gives something, or finds an end, without further input.
    bool holds_record() const noexcept;
    /// Later records have a new key. write() calls this itself, long before a key has encrypted too much.
    bool renew_key();
    /// Says that nothing more will be written.
    void end();
    /// OpenSSL's part: takes bytes from input().
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
    Admits admits_;  // none: the connecting end
    std::string identity_;
    State state_ = State::shaking_hands;
    std::string error_;
    ByteQueue input_, output_;
    ssl_st* ssl_ = nullptr;
    std::size_t record_left_ = 0;        // of a record that OpenSSL has begun to take
    std::uint64_t records_written_ = 0;  // with the present key
    std::string cipher_;
};

}  // namespace tutti::security
