#include "security/handshake.hpp"

#include "core/env.hpp"
#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::security {
namespace {

// The last byte is the version.
constexpr std::string_view magic = "TUTTIHS\x01";

}  // namespace

Handshake::Handshake(const Secret& secret, Role role, std::string_view purpose)
    : secret_(secret), role_(role), purpose_(purpose) {
    static_assert(magic.size() == magic_bytes);
    random_bytes(own_nonce_);
    if (role_ == Role::connecting) {
        put(bytes_of(magic));
        put(own_nonce_);
        input_wanted_ = answer_bytes;
    } else {
        input_wanted_ = hello_bytes;
    }
}

std::size_t Handshake::wanted() const noexcept {
    return state_ == State::needs_more ? input_wanted_ - input_size_ : 0;
}

std::size_t Handshake::consume(std::span<const std::byte> bytes) {
    std::size_t taken = 0;
    while (taken < bytes.size() && wanted() > 0) {
        const std::size_t count = std::min(bytes.size() - taken, wanted());
        std::memcpy(input_.data() + input_size_, bytes.data() + taken, count);
        taken += count;
        input_size_ += count;
        // This detects a peer of another protocol at its first wrong byte. The connecting end's second message
        // is a proof alone.
        const bool has_magic = input_wanted_ != mac_bytes;
        if (has_magic && std::memcmp(input_.data(), magic.data(), std::min(input_size_, magic_bytes)) != 0) {
            fail("the peer does not speak tutti's handshake, or another version of it");
        } else if (wanted() == 0) {
            finish_message();
        }
    }
    return taken;
}

void Handshake::finish_message() {
    const auto copy_nonce = [&] { std::memcpy(peer_nonce_.data(), input_.data() + magic_bytes, nonce_bytes); };
    const auto proved_at = [&](std::size_t offset, Role prover) {
        Mac claimed;
        std::memcpy(claimed.data(), input_.data() + offset, claimed.size());
        return equal(claimed, proof(prover));
    };
    if (role_ == Role::connecting) {
        copy_nonce();
        if (!proved_at(hello_bytes, Role::accepting)) return fail("the peer does not know this job's secret");
        put(proof(Role::connecting));
        state_ = State::done;
    } else if (input_wanted_ == hello_bytes) {
        copy_nonce();
        put(bytes_of(magic));
        put(own_nonce_);
        put(proof(Role::accepting));
        input_size_ = 0;
        input_wanted_ = mac_bytes;
    } else if (!proved_at(0, Role::connecting)) {
        fail("the peer does not know this job's secret");
    } else {
        state_ = State::done;
    }
}

void Handshake::put(std::span<const std::byte> bytes) {
    if (sent_ == output_size_) sent_ = output_size_ = 0;
    if (output_size_ + bytes.size() > output_.size()) {
        // The peer answered before our first message was all sent: it cannot have read it.
        return fail("the peer answered before it was asked");
    }
    std::memcpy(output_.data() + output_size_, bytes.data(), bytes.size());
    output_size_ += bytes.size();
}

Mac Handshake::proof(Role prover) const {
    const std::string_view label = prover == Role::connecting ? "tutti connect 1:" : "tutti accept 1:";
    const std::byte end{0};
    return secret_.mac(
        {bytes_of(label), bytes_of(purpose_), {&end, 1}, nonce_of(Role::connecting), nonce_of(Role::accepting)});
}

std::span<const std::byte> Handshake::nonce_of(Role role) const {
    return role == role_ ? std::span<const std::byte>(own_nonce_) : std::span<const std::byte>(peer_nonce_);
}

void Handshake::fail(std::string_view why) {
    state_ = State::failed;
    error_ = why;
    output_size_ = sent_ = 0;
}

std::chrono::milliseconds handshake_timeout() {
    return std::chrono::milliseconds(env::get_int("TUTTI_HANDSHAKE_TIMEOUT_MS", 1, 3'600'000).value_or(5000));
}

void authenticate(int fd, const Secret& secret, Role role, std::string_view purpose, const Deadline& deadline,
                  const AbortFlag* abort) {
    static constexpr const char* operation = "handshake";
    const Deadline limit = role == Role::accepting
                               ? Deadline::after(std::min<Clock::duration>(deadline.remaining(), handshake_timeout()))
                               : deadline;
    Handshake machine(secret, role, purpose);
    std::array<std::byte, 128> buffer;
    bool heard = false;
    while (true) {
        if (const auto output = machine.output(); !output.empty()) {
            net::send_all(fd, output, limit, abort, operation);
            machine.sent(output.size());
        }
        if (machine.state() != Handshake::State::needs_more) break;
        // One magic first, so that this also detects a peer whose messages are shorter than ours.
        const std::size_t count = std::min({machine.wanted(), buffer.size(), heard ? buffer.size() : magic.size()});
        heard = true;
        net::recv_all(fd, std::span(buffer).first(count), limit, abort, operation);
        machine.consume(std::span(buffer).first(count));
    }
    if (machine.state() == Handshake::State::failed) {
        throw DistNetworkError(
            fmt::format("{} ({}): {}; check TUTTI_JOB_SECRET", operation, purpose, machine.error()),
            {.operation = operation, .hint = "the peer does not know this job's secret: check TUTTI_JOB_SECRET"},
            ErrorCode::security);
    }
}

}  // namespace tutti::security
