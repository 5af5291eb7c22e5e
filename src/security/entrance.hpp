// Entrance: the accepting end of a fresh connection, which the other end may begin by TLS or by the handshake. Bytes go
// in and come out, as of Handshake and Tls.
//
// Threads: one at a time.
#pragma once

#include "security/handshake.hpp"
#include "security/tls.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::security {

class Entrance {
 public:
    enum class State { needs_more, done, failed };

    /// `admits`: which connections by TLS are for this end.
    Entrance(const Secret& secret, std::string_view purpose, Tls::Admits admits)
        : secret_(secret),
          purpose_(purpose),
          admits_(std::move(admits)),
          handshake_(std::in_place, secret, Role::accepting, purpose) {}

    State state() const noexcept;
    std::string_view error() const noexcept;
    /// The peer has begun in one of our ways. A peer that leaves then has found out that it knows another secret.
    bool has_begun() const noexcept;
    bool by_tls() const noexcept { return tls_ != nullptr; }

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
    std::string purpose_;
    Tls::Admits admits_;
    std::optional<Handshake> handshake_;
    std::unique_ptr<Tls> tls_;
    bool heard_ = false;
};

}  // namespace tutti::security
