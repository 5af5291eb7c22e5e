#include "atb/door.hpp"

#include "core/interrupt.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "security/secret.hpp"

#include <tutti/atb.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace tutti::atb {
namespace {

using namespace std::chrono_literals;

constexpr auto between_knocks = 5ms;
constexpr auto closing_time =
    1s;  // of the door of a domain that has come together, whose ranks may be quicker than its root
constexpr auto answer_time = 2s;  // of a process that has opened a door, and may be stopped
constexpr std::uint32_t magic = 0x61746201;

/// A door's answer, in this host's byte order.
struct Answer {
    std::uint32_t magic = 0;
    std::uint32_t port = 0;
    std::uint64_t meeting = 0;
};

std::uint64_t random_number() {
    std::uint64_t number = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&number, 1)));
    return number;
}

// The process that has the door open; -1: none, any more.
pid_t who_opened(const std::string& name) {
    try {
        return net::peer_pid(net::connect_unix(name, Deadline::after(Clock::duration::zero()), nullptr).get());
    } catch (const DistNetworkError&) {
        return -1;
    }
}

// The root of the domain before may be another process, which is about to close its door.
UniqueFd open(const std::string& name) {
    const Deadline closed = Deadline::after(closing_time);
    for (;;) {
        try {
            return net::listen_unix(name);
        } catch (const DistNetworkError&) {
            if (!closed.expired()) {
                check_wait(Deadline::never(), nullptr, "opening the door of a domain");
                std::this_thread::sleep_for(between_knocks);
                continue;
            }
            const pid_t other = who_opened(name);
            if (other < 0) throw;
            throw Error(ERROR_INVALID_PARAM,
                        fmt::format("AllToAllVV2Param: process {} is the root (rankRoot) of a domain of this "
                                    "commDomain, and looks for its ranks now: expected one root",
                                    other));
        }
    }
}

// Nothing: no process of this user opens.
std::optional<Answer> ask(const std::string& name) {
    try {
        const UniqueFd fd = net::connect_unix(name, Deadline::after(Clock::duration::zero()), nullptr);
        if (net::peer_uid(fd.get()) != ::geteuid()) return std::nullopt;
        Answer answer;
        net::recv_all(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), Deadline::after(answer_time), nullptr,
                      "asking who meets here");
        if (answer.magic == magic) return answer;
    } catch (const DistNetworkError&) {  // no door there yet, or it was closed meanwhile
    } catch (const Timeout&) {
    }
    return std::nullopt;
}

}  // namespace

Door::Door(const std::vector<std::string>& names, std::uint16_t port)
    : behind_{.meeting = random_number(), .port = port} {
    for (const std::string& name : names) listeners_.emplace_back(open(name));
    thread_.emplace(thread::start({"tutti-door", "the door of a domain"}, [this] { answer(); }));
}

Door::~Door() {
    closing_.store(true);
    for (const auto& listener : listeners_) ::shutdown(listener.get(), SHUT_RDWR);  // wakes the thread
    thread_.reset();
}

void Door::answer() {
    std::vector<pollfd> watched;
    for (const auto& listener : listeners_) watched.push_back({listener.get(), POLLIN, 0});
    const Answer words{magic, behind_.port, behind_.meeting};
    while (!closing_.load()) {
        ::poll(watched.data(), watched.size(), -1);
        for (const auto& listener : listeners_) {
            while (const auto visitor = closing_.load() ? std::nullopt : net::try_accept(listener.get())) {
                if (net::peer_uid(visitor->get()) != ::geteuid()) continue;
                // Fits into the buffer of a fresh socket, and stays readable after the close.
                (void)!::send(visitor->get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
    }
}

Behind knock(const std::vector<std::string>& names, const std::function<bool(std::uint64_t meeting)>& is_new,
             const std::function<std::string()>& awaited, const Deadline& deadline) {
    const Patience patience(awaited);
    for (;;) {
        for (const std::string& name : names) {
            const auto answer = ask(name);
            if (answer && is_new(answer->meeting))
                return {.meeting = answer->meeting, .port = static_cast<std::uint16_t>(answer->port)};
        }
        if (deadline.expired()) {
            throw Timeout(fmt::format("AllToAllVV2: there is no sign of {}", awaited()),
                          {.operation = "init", .hint = "is that rank missing, or started in another way?"});
        }
        check_wait(Deadline::never(), nullptr, "looking for the other ranks of a domain");
        std::this_thread::sleep_for(std::min<Clock::duration>(between_knocks, deadline.remaining()));
    }
}

}  // namespace tutti::atb
