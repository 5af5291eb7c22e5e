#include "security/entrance.hpp"

#include <utility>

namespace tutti::security {
namespace {

constexpr std::size_t piece_bytes = 4096;

}  // namespace

Entrance::State Entrance::state() const noexcept {
    if (tls_) {
        switch (tls_->state()) {
            case Tls::State::shaking_hands: return State::needs_more;
            case Tls::State::failed: return State::failed;
            default: return State::done;
        }
    }
    switch (handshake_->state()) {
        case Handshake::State::needs_more: return State::needs_more;
        case Handshake::State::failed: return State::failed;
        default: return State::done;
    }
}

std::string_view Entrance::error() const noexcept {
    return tls_ ? std::string_view(tls_->error()) : handshake_->error();
}

bool Entrance::has_begun() const noexcept {
    return tls_ ? !tls_->identity().empty() : handshake_->has_begun();
}

std::size_t Entrance::wanted() const noexcept {
    return tls_ ? piece_bytes : handshake_->wanted();
}

std::size_t Entrance::consume(std::span<const std::byte> bytes) {
    if (bytes.empty()) return 0;
    if (!std::exchange(heard_, true) && Tls::begins_with(bytes.front()))
        tls_ = Tls::accepting(secret_, std::move(admits_));
    if (!tls_) return handshake_->consume(bytes);
    tls_->input().append(bytes);
    tls_->go_on();
    return bytes.size();
}

std::span<const std::byte> Entrance::output() const noexcept {
    return tls_ ? tls_->output().bytes() : handshake_->output();
}

void Entrance::sent(std::size_t count) noexcept {
    if (tls_)
        tls_->output().remove(count);
    else
        handshake_->sent(count);
}

}  // namespace tutti::security
