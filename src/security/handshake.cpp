#include "security/handshake.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/socket.hpp"
#include "security/tls.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::security {
namespace {

// The last byte is the version.
constexpr std::string_view magic = "TUTTIHS\x02";
// In place of a proof, for a peer that has another secret.
constexpr std::string_view refusal = "tutti: that is not this secret.\n";

}  // namespace

Handshake::Handshake(const Secret& secret, Role role, std::string_view purpose)
    : secret_(secret), role_(role), purpose_(purpose), input_wanted_(hello_bytes) {
    static_assert(magic.size() == magic_bytes && refusal.size() == mac_bytes);
    random_bytes(own_nonce_);
    if (role_ == Role::accepting) return;
    put(bytes_of(magic));
    put(own_nonce_);
}

std::size_t Handshake::wanted() const noexcept {
    TUTTI_ASSERT(input_size_ <= input_wanted_ && input_wanted_ <= input_.size());
    return state_ == State::needs_more ? input_wanted_ - input_size_ : 0;
}

std::size_t Handshake::consume(std::span<const std::byte> bytes) {
    std::size_t taken = 0;
    while (taken < bytes.size() && wanted() > 0) {
        const std::size_t count = std::min(bytes.size() - taken, wanted());
        std::memcpy(input_.data() + input_size_, bytes.data() + taken, count);
        taken += count;
        input_size_ += count;
        if (is_hello_due() && std::memcmp(input_.data(), magic.data(), std::min(input_size_, magic_bytes)) != 0)
            refuse_stranger();
        else if (wanted() == 0)
            is_hello_due() ? take_hello() : take_proof();
    }
    TUTTI_ASSERT(taken <= bytes.size() && (taken == bytes.size() || wanted() == 0));
    return taken;
}

// This notices a peer of another protocol at its first wrong byte.
void Handshake::refuse_stranger() {
    TUTTI_ASSERT(state_ == State::needs_more && input_size_ > 0);
    wants_tls_ = role_ == Role::connecting && Tls::refuses_with(input_.front());
    if (wants_tls_) return fail("the peer takes TLS alone: TUTTI_TLS is on there and off here");
    const bool is_version =
        input_size_ >= magic_bytes && std::memcmp(input_.data(), magic.data(), magic_bytes - 1) == 0;
    fail("the peer does not speak tutti's handshake, or another version of it");
    if (is_version && role_ == Role::accepting) put(bytes_of(magic));  // it should hear that
}

void Handshake::take_hello() {
    TUTTI_ASSERT(state_ == State::needs_more && input_size_ == hello_bytes);
    std::memcpy(peer_nonce_.data(), input_.data() + magic_bytes, nonce_bytes);
    input_size_ = 0;
    input_wanted_ = mac_bytes;
    if (role_ == Role::connecting) return put(proof(Role::connecting));
    put(bytes_of(magic));
    put(own_nonce_);
}

void Handshake::take_proof() {
    TUTTI_ASSERT(state_ == State::needs_more && input_size_ == mac_bytes);
    Mac claimed;
    std::memcpy(claimed.data(), input_.data(), claimed.size());
    const bool accepts = role_ == Role::accepting;
    if (equal(claimed, proof(accepts ? Role::connecting : Role::accepting))) {
        state_ = State::done;
        if (accepts) put(proof(Role::accepting));
    } else {
        fail("the peer does not know this job's secret");
        if (accepts) put(bytes_of(refusal));
    }
}

void Handshake::put(std::span<const std::byte> bytes) {
    TUTTI_ASSERT(sent_ <= output_size_ && bytes.size() <= output_.size());
    if (sent_ == output_size_) sent_ = output_size_ = 0;
    if (output_size_ + bytes.size() > output_.size()) {
        // The peer answered before our first message was all sent: it cannot have read it.
        return fail("the peer answered before it was asked");
    }
    std::memcpy(output_.data() + output_size_, bytes.data(), bytes.size());
    output_size_ += bytes.size();
}

Mac Handshake::proof(Role prover) const {
    const std::string_view label = prover == Role::connecting ? "tutti connect 2:" : "tutti accept 2:";
    const std::byte end{0};
    return secret_.mac(
        {bytes_of(label), bytes_of(purpose_), {&end, 1}, nonce_of(Role::connecting), nonce_of(Role::accepting)});
}

std::span<const std::byte> Handshake::nonce_of(Role role) const {
    return role == role_ ? std::span<const std::byte>(own_nonce_) : std::span<const std::byte>(peer_nonce_);
}

void Handshake::fail(std::string_view why) {
    TUTTI_ASSERT(!why.empty());
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
    TUTTI_ASSERT(fd >= 0 && !purpose.empty());
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
        // Part of the magic first, so that this also detects a peer whose messages are shorter than ours: TLS's alert.
        const std::size_t count = std::min({machine.wanted(), buffer.size(), heard ? buffer.size() : magic.size() - 1});
        heard = true;
        TUTTI_ASSERT(count > 0);
        net::recv_all(fd, std::span(buffer).first(count), limit, abort, operation);
        machine.consume(std::span(buffer).first(count));
    }
    if (machine.state() != Handshake::State::failed) return;
    if (machine.wants_tls())
        throw TlsWanted(fmt::format("{} ({}): {}; set TUTTI_TLS to the same on all hosts of the job", operation,
                                    purpose, machine.error()),
                        {.operation = operation, .hint = "set TUTTI_TLS to the same on all hosts"},
                        ErrorCode::security);
    throw DistNetworkError(
        fmt::format("{} ({}): {}; check TUTTI_JOB_SECRET", operation, purpose, machine.error()),
        {.operation = operation, .hint = "the peer does not know this job's secret: check TUTTI_JOB_SECRET"},
        ErrorCode::security);
}

}  // namespace tutti::security
