// Joining and leaving a world, and the thread that serves it meanwhile.
#include "rendezvous/membership.hpp"

#include "core/descriptors.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/thread.hpp"
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/tree.hpp"

#include <tutti/error.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti::rendezvous {

namespace {

constexpr int look_again_ms = 10;  // for ranks that owe a sign of life

}  // namespace

std::uint64_t random_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

Membership::Membership(MembershipOptions options)
    : options_(std::move(options)), silence_limit_(settings::lifeline_timeout()) {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    // At most a connection to and from each rank, where they do not share memory.
    descriptors::need(64 + 2 * static_cast<std::uint64_t>(options_.world_size));
    gone_.resize(static_cast<std::size_t>(options_.world_size));
    join();
    for (int r = options_.rank + 1; r < options_.world_size; ++r) {
        if (parent_of(r) == options_.rank) awaited_.push_back(r);
    }
    const auto escaped = [this](const std::exception_ptr&) noexcept {
        try {
            const Verdict verdict{
                VerdictKind::aborted, options_.rank,
                fmt::format("the thread of rank {} that hears of the others has failed", options_.rank)};
            flood(verdict);
            options_.on_verdict(verdict);
            wake();
        } catch (const std::exception& error) {
            TUTTI_ERROR("rank {}: {}", options_.rank, error.what());
        }
    };
    thread_ = thread::start({"tutti-member", "hearing of the other ranks", escaped}, [this] {
        serving = true;
        serve();
    });
    try {
        build_tree();
    } catch (...) {
        stop();
        throw;
    }
}

Membership::~Membership() {
    leaving_ = true;
    flood({VerdictKind::left, options_.rank, {}});
    linger();
    stop();
}

bool Membership::on_own_thread() noexcept {
    return serving;
}

void Membership::stop() {
    closing_.raise("this rank leaves");
    changed_.notify_all();
    stopping_ = true;
    (void)!::eventfd_write(stop_.get(), 1);
    thread_.join();
    if (mender_.joinable()) mender_.join();
    for (std::thread& messenger : messengers_) messenger.join();
    if (door_) ::shutdown(door_.get(), SHUT_RD);  // no connection comes any more
    accept_newcomers();                           // tells the latest arrivals that this rank has left
}

// One look may have begun already, and missed the last connection.
std::uint64_t Membership::next_round() const noexcept {
    return rounds_.load(std::memory_order_acquire) + 2;
}

bool Membership::is_through(std::uint64_t round) const noexcept {
    if (rounds_.load(std::memory_order_acquire) >= round) return true;
    ::eventfd_write(stop_.get(), 1);
    return false;
}

void Membership::wake() const {
    ::eventfd_write(wake_.get(), 1);
}

void Membership::serve() {
    while (!stopping_) {
        int patience = newcomers_.empty() ? 1000 : 100;
        if (mend_at_) patience = mending_ ? 5 : std::min(patience, 1 + static_cast<int>(mend_delay.count()));
        std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        std::vector<Edge*> edges;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& edge : edges_) {
                if (!edge->fd) continue;
                edges.push_back(edge.get());
                entries.push_back({edge->wire.to_poll(edge->fd.get()), POLLIN, 0});
                if (edge->process) entries.push_back({edge->process.get(), POLLIN, 0});
                if (edge->pulse && edge->pulse->fd() >= 0) entries.push_back({edge->pulse->fd(), POLLOUT, 0});
            }
            if (!ledger_.unheard().empty() || !untold_.empty()) patience = look_again_ms;
        }
        for (const auto& newcomer : newcomers_) entries.push_back({newcomer->fd.get(), POLLIN, 0});
        if (door_) entries.push_back({door_.get(), POLLIN, 0});
        ::poll(entries.data(), entries.size(), patience);
        eventfd_t value = 0;
        ::eventfd_read(stop_.get(), &value);
        if (stopping_) break;
        for (Edge* edge : edges) {
            while (read_edge(*edge)) {
            }
            look_at_process(*edge);
        }
        accept_newcomers();
        rounds_.fetch_add(1, std::memory_order_release);
        look_for_silent();
        hear_what_all_have();
        mend_when_due();
    }
}

}  // namespace tutti::rendezvous
