#include "security/entrance.hpp"

#include "core/assert.hpp"

#include <utility>

namespace tutti::security {
namespace {

constexpr std::size_t piece_bytes = 4096;

}  // namespace

Entrance::State Entrance::state() const noexcept {
    if (lacks_tls_) return State::failed;
    if (tls_) {
        switch (tls_->state()) {
            case Tls::State::shaking_hands: return State::needs_more;
            case Tls::State::failed: return State::failed;
            default: return State::done;
        }
    }
    switch (handshake_.state()) {
        case Handshake::State::needs_more: return State::needs_more;
        case Handshake::State::failed: return State::failed;
        default: return State::done;
    }
}

std::string_view Entrance::error() const noexcept {
    if (lacks_tls_) return "it began without TLS, and TUTTI_TLS is on here";
    return tls_ ? std::string_view(tls_->error()) : handshake_.error();
}

std::size_t Entrance::wanted() const noexcept {
    return tls_ ? piece_bytes : handshake_.wanted();
}

std::size_t Entrance::consume(std::span<const std::byte> bytes) {
    if (bytes.empty() || lacks_tls_) return 0;
    if (!std::exchange(heard_, true)) {
        TUTTI_ASSERT(!tls_);
        if (Tls::begins_with(bytes.front())) {
            tls_ = Tls::accepting(secret_, std::move(admits_));
        } else if (takes_tls_alone_) {
            lacks_tls_ = true;
            refusal_ = Tls::refusal();
            return bytes.size();
        }
    }
    if (!tls_) return handshake_.consume(bytes);
    tls_->input().append(bytes);
    tls_->go_on();
    return bytes.size();
}

std::span<const std::byte> Entrance::output() const noexcept {
    if (lacks_tls_) return refusal_;
    return tls_ ? tls_->output().bytes() : handshake_.output();
}

void Entrance::sent(std::size_t count) noexcept {
    TUTTI_ASSERT(count <= output().size());
    if (lacks_tls_)
        refusal_ = refusal_.subspan(count);
    else if (tls_)
        tls_->output().remove(count);
    else
        handshake_.sent(count);
}

}  // namespace tutti::security
