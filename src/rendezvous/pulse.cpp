#include "rendezvous/pulse.hpp"

#include "core/log.hpp"

#include <tutti/error.hpp>

#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <future>
#include <system_error>

namespace tutti::rendezvous {
namespace {

constexpr std::chrono::seconds between_looks{1};
constexpr std::chrono::seconds attempt_limit{5};
// A process that has left and ended said so before, perhaps on a packet that was lost.
constexpr std::chrono::seconds grace{1};

// ThreadSanitizer follows descriptors by their numbers, and takes those of two tables for the same: there is no pulse.
#if defined(__SANITIZE_THREAD__)
constexpr bool can_have_own_table = false;
#else
constexpr bool can_have_own_table = true;
#endif

// Gives this thread a descriptor table of its own, with one descriptor of the process's.
bool keep_only(int fd) {
    const auto kept = static_cast<unsigned>(fd);
    if (::close_range(kept + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return false;
    return kept == 0 || ::close_range(0, kept - 1, 0) == 0;
}

void let_in(int listener, int stop) {
    pollfd entries[] = {{listener, POLLIN, 0}, {stop, POLLIN, 0}};
    while (entries[1].revents == 0) {
        ::poll(entries, 2, -1);
        while (net::try_accept(listener)) {
        }
    }
}

}  // namespace

Pulse::Pulse(const std::string& host) : stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!stop_ || !can_have_own_table) return;
    std::promise<std::uint16_t> port;
    try {
        thread_ = std::thread([&port, host, stop = stop_.get()] {
            ::pthread_setname_np(::pthread_self(), "tutti-pulse");
            UniqueFd listener;
            try {
                if (keep_only(stop)) listener = net::listen_tcp(host, 0);
                port.set_value(listener ? net::local_address(listener.get()).port : std::uint16_t{0});
            } catch (const std::exception& error) {
                TUTTI_DEBUG("no pulse: {}", error.what());
                port.set_value(0);
                return;
            }
            if (listener) let_in(listener.get(), stop);
        });
        port_ = port.get_future().get();
    } catch (const std::system_error& error) {
        TUTTI_DEBUG("no pulse: {}", error.what());
    }
}

void Pulse::end() {
    if (!thread_.joinable()) return;
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
    port_ = 0;
}

bool PulseWatch::look(Instant now) {
    if (refused_) return now - *refused_ >= grace;
    if (!attempt_) {
        if (now < next_) return false;
        next_ = now + between_looks;
        if (const int error = net::begin_connect(address_, attempt_); error != 0) learn(error, now);
        return false;
    }
    pollfd entry{attempt_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) != 1) {
        if (now >= next_ + attempt_limit) attempt_.reset();  // a lost host is seen by its lifelines
        return false;
    }
    learn(net::connect_error(attempt_.get()), now);
    attempt_.reset();
    return false;
}

void PulseWatch::learn(int error, Instant now) {
    answered_ |= error == 0;
    if (error == ECONNREFUSED && answered_) refused_ = now;
}

}  // namespace tutti::rendezvous
