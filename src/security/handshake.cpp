#include "security/handshake.hpp"

#include "core/env.hpp"
#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::security {
namespace {
constexpr std::size_t nonce_bytes = 32;
}

Handshake::Handshake(Secret secret, Role role, std::string_view purpose)
    : secret_(std::move(secret)), role_(role), purpose_(purpose) {
    std::vector<std::byte>& own = role == Role::client ? client_nonce_ : server_nonce_;
    own.resize(nonce_bytes);
    fill_random(own);
    if (role == Role::client) {
        std::ranges::copy(bytes_of(magic), std::back_inserter(output_));
        output_.insert(output_.end(), own.begin(), own.end());
        wanted_ = magic.size() + nonce_bytes + sizeof(Digest);
    } else {
        wanted_ = magic.size() + nonce_bytes;
    }
}

Digest Handshake::proof(std::string_view label) const {
    return secret_.sign({bytes_of(label), bytes_of(purpose_), client_nonce_, server_nonce_});
}

void Handshake::consume(std::span<const std::byte> bytes) {
    if (state_ != State::running) return;
    received_.insert(received_.end(), bytes.begin(), bytes.end());
    // A stranger is known by its first byte.
    const std::size_t check = stage_ == 0 ? std::min(received_.size(), magic.size()) : 0;
    if (!std::equal(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(check), bytes_of(magic).begin())) {
        state_ = State::failed;
        return;
    }
    if (received_.size() == wanted_) advance();
}

void Handshake::advance() {
    const std::span<const std::byte> got(received_);
    const auto equal = [](std::span<const std::byte> a, const Digest& b) {
        return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), b.size()) == 0;
    };
    if (role_ == Role::server && stage_ == 0) {
        const auto nonce = got.subspan(magic.size(), nonce_bytes);
        client_nonce_.assign(nonce.begin(), nonce.end());
        std::ranges::copy(bytes_of(magic), std::back_inserter(output_));
        output_.insert(output_.end(), server_nonce_.begin(), server_nonce_.end());
        std::ranges::copy(proof("server"), std::back_inserter(output_));
        wanted_ = sizeof(Digest);
    } else if (role_ == Role::server) {
        state_ = equal(got, proof("client")) ? State::done : State::failed;
        if (state_ == State::done) output_.push_back(std::byte{'+'});
    } else if (stage_ == 0) {
        const auto nonce = got.subspan(magic.size(), nonce_bytes);
        server_nonce_.assign(nonce.begin(), nonce.end());
        if (!equal(got.subspan(magic.size() + nonce_bytes), proof("server"))) {
            state_ = State::failed;
            return;
        }
        std::ranges::copy(proof("client"), std::back_inserter(output_));
        wanted_ = 1;
    } else {
        state_ = got[0] == std::byte{'+'} ? State::done : State::failed;
    }
    ++stage_;
    received_.clear();
    if (state_ != State::running) wanted_ = 0;
}

std::vector<std::byte> Handshake::take_output() { return std::exchange(output_, {}); }

void authenticate(int fd, const Secret& secret, Handshake::Role role, std::string_view purpose, const Deadline& deadline,
                  const AbortFlag* abort) {
    Handshake handshake(secret, role, purpose);
    constexpr const char* refused =
        "the peer does not know this job's secret, or is not tutti: check TUTTI_JOB_SECRET and the address";
    for (;;) {
        const auto output = handshake.take_output();
        std::array<std::byte, 128> buffer;
        try {
            net::send_all(fd, output, deadline, abort, "handshake");
            if (handshake.state() != Handshake::State::running) break;
            const auto want = std::span(buffer).first(std::min(buffer.size(), handshake.wanted()));
            net::recv_all(fd, want, deadline, abort, "handshake");
            handshake.consume(want);
        } catch (const DistNetworkError&) {
            throw DistNetworkError(refused, {.operation = "handshake"}, ErrorCode::security);
        }
    }
    if (handshake.state() == Handshake::State::failed) {
        throw DistNetworkError(refused, {.operation = "handshake"}, ErrorCode::security);
    }
}

std::chrono::milliseconds handshake_timeout() {
    return std::chrono::milliseconds(env::get_int("TUTTI_HANDSHAKE_TIMEOUT_MS", 1, 3'600'000).value_or(5000));
}

}  // namespace tutti::security
