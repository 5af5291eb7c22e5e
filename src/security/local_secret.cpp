#include "security/local_secret.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/names.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/unix_socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

namespace tutti::security {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view insecure_secret = "tutti: no secret (TUTTI_INSECURE=1)";

std::string socket_name(std::uint16_t port) {
    return fmt::format("tutti-secret-{}", port);
}

/// Everything until the end of the stream.
std::optional<Secret> read_secret(int fd, const Deadline& deadline, const AbortFlag* abort) {
    std::array<char, 4097> buffer;
    TUTTI_ASSERT(fd >= 0);
    std::size_t size = 0;
    while (size < buffer.size()) {
        const ssize_t got = ::recv(fd, buffer.data() + size, buffer.size() - size, MSG_DONTWAIT);
        if (got > 0) {
            size += static_cast<std::size_t>(got);
        } else if (got == 0) {
            break;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            net::wait_for(fd, POLLIN, deadline, abort, "fetch of the local secret");
        } else if (errno != EINTR) {
            return std::nullopt;
        }
    }
    if (size == 0 || size == buffer.size()) return std::nullopt;
    return Secret::from_text({buffer.data(), size});
}

// Whether a job needs a secret depends on its host.
void await_host(const std::string& host, const Deadline& deadline, const AbortFlag* abort) {
    if (host.empty()) return;
    const Instant start = Clock::now();
    const Patience patience([&] { return fmt::format("the address of {}: {}", host, net::why_unknown(host)); });
    const net::Answer answer = net::await_name(host, deadline, abort);
    if (answer.is_known()) return;
    throw DistNetworkError(
        fmt::format("whether {} is this host, so that the job needs no secret, is not known (tried for {:.1f} s): {}",
                    host, std::chrono::duration<double>(Clock::now() - start).count(), answer.cause),
        {.operation = "security", .hint = "check the host's name, or set TUTTI_JOB_SECRET"});
}

}  // namespace

LocalSecretServer::LocalSecretServer(std::uint16_t port, Secret secret)
    : secret_(std::move(secret)), listener_(net::listen_unix(socket_name(port))) {}

void LocalSecretServer::serve() {
    while (const auto asker = net::try_accept(listener_.get())) {
        const uid_t uid = net::peer_uid(asker->get());
        TUTTI_ASSERT(asker->get() >= 0);
        if (uid != ::geteuid()) {
            if (const auto times = refused_->happened()) {
                TUTTI_WARN("user {} asked for the secret of a job of user {} and did not get it{}", uid, ::geteuid(),
                           *times == 1 ? "" : fmt::format(" ({} such requests since the last line)", *times));
            }
            continue;
        }
        // Fits into the buffer of a fresh socket, and stays readable after the close.
        const std::string& text = secret_.to_text();
        if (::send(asker->get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            static_cast<ssize_t>(text.size())) {
            TUTTI_DEBUG("a process asked for the job's secret and left");
        }
        // A process that this one forks just now has the socket too: closing it here would not end the stream.
        ::shutdown(asker->get(), SHUT_WR);
    }
}

std::optional<Secret> fetch_local_secret(std::uint16_t port, const Deadline& deadline, const AbortFlag* abort) {
    const Patience patience([&] {
        return fmt::format(
            "the secret of the job on port {} of this host, which its master hands to processes of this user; if the "
            "master has a TUTTI_JOB_SECRET, set it here too",
            port);
    });
    while (true) {
        const Deadline attempt = Deadline::after(std::min<Clock::duration>(deadline.remaining(), 1s));
        try {
            const UniqueFd fd = net::connect_unix(socket_name(port), attempt, abort);
            if (net::peer_uid(fd.get()) != ::geteuid()) return std::nullopt;
            if (auto secret = read_secret(fd.get(), deadline, abort)) return secret;
        } catch (const DistNetworkError&) {
            // Nobody there (yet), or gone while we asked.
        }
        check_wait(Deadline::never(), abort, "fetch of the local secret");
        if (deadline.expired()) return std::nullopt;
        ::poll(nullptr, 0, deadline.poll_ms(10ms));
    }
}

JobSecret resolve_secret(const SecretRequest& request, const Deadline& deadline, const AbortFlag* abort) {
    if (request.explicit_secret)
        return {.secret = Secret::given(*request.explicit_secret, "TCPStore: secret"), .is_given = true};
    if (auto secret = Secret::from_environment()) return {.secret = std::move(*secret), .is_given = true};
    await_host(request.host, deadline, abort);
    const ErrorContext context{.operation = "security", .hint = "set TUTTI_JOB_SECRET to the same text on all hosts"};
    if (net::is_loopback(request.host)) {
        if (request.is_master) return {.secret = Secret::generate(), .serve_locally = true};
        if (auto secret = fetch_local_secret(request.port, deadline, abort)) return {.secret = std::move(*secret)};
        throw DistNetworkError(
            fmt::format(
                "no process of this user serves the secret of a job on {}: is its master running? If the master "
                "has a TUTTI_JOB_SECRET, set it here too",
                net::to_string({request.host, request.port})),
            context, ErrorCode::security);
    }
    if (env::get_bool("TUTTI_INSECURE", false)) return {.secret = Secret::from_text(insecure_secret)};
    throw DistNetworkError(
        fmt::format("{} is not a loopback address, and a job on several hosts needs a secret: set TUTTI_JOB_SECRET "
                    "(tutti run does) or TUTTI_INSECURE=1",
                    request.host.empty() ? "every address" : request.host),
        context, ErrorCode::security);
}

}  // namespace tutti::security
