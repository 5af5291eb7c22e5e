// Entrance: the accepting end of a fresh connection, which the other end may begin by TLS or by the handshake. Bytes go
// in and come out, as of Handshake and Tls.
//
// Threads: one at a time.
#pragma once

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

    /// `admits`: which connections by TLS are for this end. By TLS alone: one that begins otherwise gets an alert, and
    /// no answer that depends on the secret.
    Entrance(const Secret& secret, std::string_view purpose, Tls::Admits admits, Ways ways)
        : secret_(secret),
          admits_(std::move(admits)),
          handshake_(secret, Role::accepting, purpose),
          takes_tls_alone_(ways == Ways::tls_alone) {}

    State state() const noexcept;
    std::string_view error() const noexcept;
    /// It failed since TLS alone is taken, and the peer began otherwise.
    bool lacks_tls() const noexcept { return lacks_tls_; }

    /// How many bytes to read: nothing that the caller would have to keep.
    std::size_t wanted() const noexcept;
    /// Takes bytes; returns how many. Bytes behind the handshake stay with the caller, or with the Tls.
    std::size_t consume(std::span<const std::byte> bytes);
    std::span<const std::byte> output() const noexcept;
    void sent(std::size_t count) noexcept;

    /// Once done; null: bytes go as they are.
    std::unique_ptr<Tls> take_tls() { return std::move(tls_); }

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
