// Entrance: the accepting end of a fresh connection, whose peer may begin with TLS or with the plain handshake
// (handshake.hpp). It does no I/O: its user moves the bytes between it and the socket.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "security/handshake.hpp"
#include "security/tls.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace tutti::security {

class Entrance {
 public:
    enum class State { needs_more, done, failed };
    enum class Ways { both, tls_alone };

    /// `admits` decides which TLS connections are for this end. With tls_alone, a peer that does not begin with TLS
    /// gets an alert, and no answer that depends on the secret.
    Entrance(const Secret& secret, std::string_view purpose, Tls::Admits admits, Ways ways)
        : secret_(secret),
          admits_(std::move(admits)),
          handshake_(secret, Role::accepting, purpose),
          takes_tls_alone_(ways == Ways::tls_alone) {}

    State state() const noexcept;
    std::string_view error() const noexcept;
    /// Whether it failed because it accepts only TLS and the peer did not begin with TLS.
    bool lacks_tls() const noexcept { return lacks_tls_; }

    /// The most bytes to read from the peer next, so that consume() takes all of them.
    std::size_t wanted() const noexcept;
    /// Consumes bytes from the peer; returns how many. Bytes after the handshake are left to the caller or, with TLS,
    /// kept in the Tls object.
    std::size_t consume(std::span<const std::byte> bytes);
    std::span<const std::byte> output() const noexcept;
    void sent(std::size_t count) noexcept;

    /// Once done. Null: the connection is not encrypted.
    std::unique_ptr<Tls> take_tls() {
        TUTTI_ASSERT(state() == State::done);
        return std::move(tls_);
    }

 private:
    Secret secret_;
    Tls::Admits admits_;
    Handshake handshake_;
    std::unique_ptr<Tls> tls_;
    std::span<const std::byte> refusal_;
    bool takes_tls_alone_;
    bool heard_ = false, lacks_tls_ = false;
};

}  // namespace tutti::security
