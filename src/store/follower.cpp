#include "store/follower.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"
#include "store/wire.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

constexpr auto look_time = 100ms;
constexpr auto send_time = 1s;
/// The loop is behind by as much at most.
constexpr std::size_t input_max = std::size_t{64} << 20U;
constexpr auto probe_time = 20ms;
constexpr int probes = 5;

}  // namespace

Follower::Follower(const net::Address& primary, const security::Secret& secret, std::uint16_t listens,
                   const Deadline& deadline, const AbortFlag* abort)
    : hears_(primary, secret, fmt::format("TCPStore({})", net::to_string(primary)), deadline, abort),
      speaks_(primary, secret, fmt::format("TCPStore({})", net::to_string(primary)), deadline, abort),
      primary_(net::peer_address(hears_.raw().fd)) {
    const auto port = encode_number(listens);
    const std::string_view field(port.data(), port.size());
    const std::string answer = hears_.call(Op::stand_by, {&field, 1}, deadline, abort);
    const auto number = split_fields(answer);
    if (!number)
        throw DistStoreError("TCPStore: what the primary answers to its standby is not the protocol of a store");
    speaks_.call(Op::report, *number, deadline, abort);
}

Follower::~Follower() {
    stop();
}

void Follower::stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
}

void Follower::start(std::function<void()> news) {
    TUTTI_ASSERT(news != nullptr && !thread_.joinable());
    news_ = std::move(news);
    thread_ = thread::start({"tutti-standby", "the standby of a TCPStore"}, [this] { read(); });
    const auto ready = encode({Op::have, 0, 0});  // nothing yet: the primary begins to send
    send({ready.data(), ready.size()});
}

void Follower::read() {
    const TcpClient::Raw raw = hears_.raw();
    std::vector<char> buffer(std::size_t{256} << 10U);
    while (!stop_) {
        pollfd item{raw.wire.to_poll(raw.fd), POLLIN, 0};
        if (::poll(&item, 1, Deadline::never().poll_ms(look_time)) <= 0) continue;
        const ssize_t got = raw.wire.receive(raw.fd, std::as_writable_bytes(std::span(buffer)));
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        while (!stop_) {
            std::unique_lock lock(mutex_);
            if (input_.size() > input_max) {
                lock.unlock();
                std::this_thread::sleep_for(1ms);
                continue;
            }
            if (got > 0) input_.append(buffer.data(), static_cast<std::size_t>(got));
            // TLS ends with a word of its own, which a process that was killed has not said.
            if (got <= 0) state_ = got == 0 && raw.wire.error().empty() ? State::ended : State::broken;
            break;
        }
        news_();
        if (got <= 0) return;
    }
}

Follower::State Follower::take(std::string& bytes) {
    const std::lock_guard lock(mutex_);
    bytes = std::exchange(input_, {});
    return state_;
}

void Follower::send(std::string_view bytes) {
    const TcpClient::Raw raw = speaks_.raw();
    try {
        raw.wire.send_all(raw.fd, std::as_bytes(std::span(bytes)), Deadline::after(send_time), nullptr, "standby");
    } catch (const DistError& error) {
        TUTTI_DEBUG("TCPStore standby: {}", error.what());
        net::end_by_reset(raw.fd);
    }
}

// A process that has just been killed may take connections for a moment.
bool nobody_listens(const net::Address& address) {
    for (int i = 0; i < probes; ++i) {
        if (net::refuses(address, Deadline::after(probe_time))) return true;
        std::this_thread::sleep_for(probe_time / 2);
    }
    return false;
}

}  // namespace tutti::store
