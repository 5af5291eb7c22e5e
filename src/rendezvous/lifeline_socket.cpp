#include "rendezvous/lifeline_socket.hpp"

#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti::rendezvous {
namespace {

// A peer that does not answer any more, in contrast to one that has closed.
bool is_silence(int error) {
    switch (error) {
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case EHOSTDOWN:
        case ENETUNREACH:
        case ENETDOWN: return true;
        default: return false;
    }
}

// Nothing for a connection that has ended already.
std::optional<PulseWatch> watch_pulse(int fd, std::uint16_t port) {
    try {
        return PulseWatch(net::Address{net::peer_address(fd).host, port});
    } catch (const DistNetworkError&) {
        return std::nullopt;
    }
}

}  // namespace

// The end of a process shows on its lifeline and on the process itself: an unknown child of it may keep the lifeline
// open.
LifelineSocket::LifelineSocket(security::Connection connection, const Roster& roster, int rank,
                               std::chrono::milliseconds silence_limit)
    : rank_(rank), is_near_(roster.is_near(rank)), wire_(std::move(connection.wire)) {
    const int fd = connection.fd.get();
    net::end_when_silent(fd, silence_limit);
    const Card& card = roster.card(rank);
    if (roster.can_watch(rank))
        process_ = UniqueFd(static_cast<int>(::syscall(__NR_pidfd_open, card.process, 0)));
    else if (card.pulse_port != 0 && !is_near_)
        pulse_ = watch_pulse(fd, card.pulse_port);
    fd_ = fork_guard::GuardedFd(std::move(connection.fd));
}

void LifelineSocket::send(std::span<const std::byte> bytes) {
    if (!wire_.post(fd_.get(), bytes) && is_silence(errno)) send_error_ = errno;
}

void LifelineSocket::end_sending() {
    ::shutdown(fd_.get(), SHUT_WR);
}

LifelineSocket::Input LifelineSocket::receive(std::span<std::byte> into) {
    const ssize_t count = wire_.receive(fd_.get(), into);
    if (count > 0) return {.bytes = static_cast<std::size_t>(count)};
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (count < 0 && errno == EBADMSG) return {.end = LineEnd::How::altered};
    const int error = count < 0 && send_error_ == 0 ? errno : send_error_.load();
    return {.end = is_silence(error) && !is_near_ ? LineEnd::How::host_lost : LineEnd::How::closed};
}

bool LifelineSocket::has_process_ended(Instant now) {
    pollfd entry{process_.get(), POLLIN, 0};
    return (process_ && ::poll(&entry, 1, 0) == 1) || (pulse_ && pulse_->look(now));
}

void LifelineSocket::pollables(std::vector<pollfd>& into) const {
    into.push_back({wire_.to_poll(fd_.get()), POLLIN, 0});
    if (process_) into.push_back({process_.get(), POLLIN, 0});
    if (pulse_ && pulse_->fd() >= 0) into.push_back({pulse_->fd(), POLLOUT, 0});
}

}  // namespace tutti::rendezvous
