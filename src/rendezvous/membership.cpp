#include "rendezvous/membership.hpp"

#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "core/thread.hpp"
#include "rendezvous/joining.hpp"
#include "rendezvous/linger.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

namespace tutti::rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds between_rounds{1000}, between_rounds_with_newcomers{100};

thread_local bool serving = false;  // a membership's service thread

UniqueFd make_wakeup() {
    return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

}  // namespace

Membership::Membership(MembershipOptions options)
    : options_(std::move(options)),
      silence_limit_(settings::lifeline_timeout()),
      owner_wakeup_(make_wakeup()),
      service_wakeup_(make_wakeup()),
      roster_(Joining(options_, endpoint_).run()),
      dialer_(roster_),
      reception_(endpoint_, roster_),
      dials_([this](int to, const Deadline& deadline,
                    const AbortFlag* abort) { return dialer_.attach(to, deadline, abort); },
             [this] { wake_service(); }),
      lifelines_(roster_, {silence_limit_, [this](int rank) { return is_stopped(roster_.card(rank).process); }}) {
    start_service();
    try {
        attach_to_parent();
    } catch (...) {
        stop();
        throw;
    }
}

Membership::~Membership() {
    leave();
}

void Membership::leave() {
    if (leaving_.exchange(true)) return;
    {
        const MutexLock lock(mutex_);
        lifelines_.leave(Clock::now());
        perform();
    }
    wake_service();
    linger();
    stop();
}

bool Membership::on_own_thread() noexcept {
    return serving;
}

void Membership::start_service() {
    const auto escaped = [this](const std::exception_ptr&) noexcept {
        try {
            const Verdict verdict{
                VerdictKind::aborted, options_.rank,
                fmt::format("the thread of rank {} that hears of the others has failed", options_.rank)};
            flood(verdict);
            options_.on_verdict(verdict);
            wake_owner();
        } catch (const std::exception& error) {
            TUTTI_ERROR("rank {}: {}", options_.rank, error.what());
        }
    };
    thread_ = thread::start({"tutti-member", "hearing of the other ranks", escaped}, [this] {
        serving = true;
        serve();
    });
}

// A parent that came much earlier may have left again: then the next, which tells the news so far.
void Membership::attach_to_parent() {
    std::vector<int> parents;
    {
        const MutexLock lock(mutex_);
        parents = lifelines_.tree().possible_parents();
    }
    for (const int parent : parents) {
        if (UniqueFd fd = dialer_.attach_unseen(parent))
            return attach(parent, Role::parent, false, {std::move(fd), {}});
        const Card& card = roster_.card(parent);
        const Patience patience([&] {
            return fmt::format("the lifeline of rank {} to rank {} at {}", options_.rank, parent,
                               net::to_string({card.listen_host, card.listen_port}));
        });
        try {
            return attach(parent, Role::parent, true, dialer_.attach(parent, options_.deadline, nullptr));
        } catch (const DistNetworkError& error) {
            if (parent != parents.back() && !options_.deadline.expired()) continue;
            if (error.context().peer == parent) throw;  // it names the rank already
            throw DistNetworkError(
                fmt::format(
                    "rank {} cannot reach rank {} (host {}), which has ended, has aborted the group, or is cut off: {}",
                    options_.rank, parent, card.host_name, error.what()),
                {.operation = "init", .rank = options_.rank, .peer = parent, .hint = error.context().hint},
                error.code());
        }
    }
}

security::Connection Membership::connect(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    return dialer_.connect(rank, deadline, abort);
}

UniqueFd Membership::request_memory(int rank, const Deadline& deadline, const AbortFlag* abort) const {
    return dialer_.request_memory(rank, deadline, abort);
}

std::vector<std::pair<int, security::Connection>> Membership::take_incoming() {
    const MutexLock lock(mutex_);
    eventfd_t value = 0;
    ::eventfd_read(owner_wakeup_.get(), &value);
    has_incoming_.store(false, std::memory_order_release);
    return std::exchange(incoming_, {});
}

// One look may have begun already, and missed the last connection.
std::uint64_t Membership::next_round() const noexcept {
    return rounds_.load(std::memory_order_acquire) + 2;
}

bool Membership::is_through(std::uint64_t round) const noexcept {
    if (rounds_.load(std::memory_order_acquire) >= round) return true;
    wake_service();
    return false;
}

bool Membership::flood(const Verdict& verdict) {
    const MutexLock lock(mutex_);
    const bool is_new = lifelines_.flood(verdict, Clock::now());
    perform();
    wake_service();  // it looks after the answers
    return is_new;
}

bool Membership::settled() {
    const MutexLock lock(mutex_);
    return lifelines_.settled();
}

void Membership::wake_owner() const {
    ::eventfd_write(owner_wakeup_.get(), 1);
}

void Membership::wake_service() const {
    ::eventfd_write(service_wakeup_.get(), 1);
}

// ---- The service thread

void Membership::serve() {
    while (!stopping_) {
        std::vector<pollfd> entries{{service_wakeup_.get(), POLLIN, 0}};
        std::vector<LineId> lines;
        reception_.pollables(entries);
        int patience_ms = 0;
        {
            const MutexLock lock(mutex_);
            for (const auto& [line, socket] : sockets_) {
                lines.push_back(line);
                socket->pollables(entries);
            }
            patience_ms = poll_ms();
        }
        ::poll(entries.data(), entries.size(), patience_ms);
        eventfd_t value = 0;
        ::eventfd_read(service_wakeup_.get(), &value);
        if (stopping_) break;
        for (const LineId line : lines) look_at(line);
        accept();
        rounds_.fetch_add(1, std::memory_order_release);
        take_dials();
        {
            const MutexLock lock(mutex_);
            lifelines_.on_time(Clock::now());
            perform();
        }
        follow_up();
    }
}

int Membership::poll_ms() {
    const milliseconds most = reception_.has_newcomers() ? between_rounds_with_newcomers : between_rounds;
    const Instant now = Clock::now();
    const auto look = lifelines_.next_look(now);
    return look ? Deadline::at(*look).poll_ms(most, now) : static_cast<int>(most.count());
}

void Membership::accept() {
    for (Arrival& arrival : reception_.accept()) {
        switch (arrival.purpose) {
            case Hello::Purpose::lifeline:
                attach(arrival.rank, Role::child, false, std::move(arrival.connection));
                break;
            case Hello::Purpose::memory:
                if (options_.on_memory_request) options_.on_memory_request(arrival.connection.fd);
                break;
            case Hello::Purpose::data: {
                const MutexLock lock(mutex_);
                incoming_.emplace_back(arrival.rank, std::move(arrival.connection));
                has_incoming_.store(true, std::memory_order_release);
                wake_owner();
                break;
            }
        }
    }
}

// Any thread.
void Membership::attach(int rank, Role role, bool confirmed, security::Connection connection) {
    auto socket = std::make_unique<LifelineSocket>(std::move(connection), roster_, rank, silence_limit_);
    const MutexLock lock(mutex_);
    sockets_.emplace(lifelines_.attach(rank, role, confirmed, Clock::now()), std::move(socket));
    perform();
    wake_service();  // it looks at its lifelines again
}

// Only the service thread erases sockets: it may go on with this one without the lock.
LifelineSocket* Membership::socket_of(LineId line) {
    const MutexLock lock(mutex_);
    const auto found = sockets_.find(line);
    return found == sockets_.end() ? nullptr : found->second.get();
}

void Membership::look_at(LineId line) {
    LifelineSocket* const socket = socket_of(line);
    if (socket == nullptr) return;
    while (receive(line, *socket)) {
    }
    if (socket_of(line) == nullptr || !socket->has_process_ended(Clock::now())) return;
    // The messages that the process sent before it ended are in its lifeline.
    while (receive(line, *socket)) {
    }
    if (socket_of(line) != nullptr) end(line, *socket, LineEnd::How::outlived);
}

// False if there was nothing (more).
bool Membership::receive(LineId line, LifelineSocket& socket) {
    std::array<std::byte, 1024> buffer;
    const auto [bytes, its_end] = socket.receive(buffer);
    if (its_end) end(line, socket, *its_end);
    if (its_end || bytes == 0) return false;
    bool makes_sense = true;
    {
        const MutexLock lock(mutex_);
        makes_sense = lifelines_.on_bytes(line, std::span(buffer).first(bytes), Clock::now());
        perform();
    }
    follow_up();
    if (!makes_sense) end(line, socket, LineEnd::How::closed);
    return makes_sense;
}

void Membership::end(LineId line, LifelineSocket& socket, LineEnd::How how) {
    LineEnd its_end{.how = how};
    bool is_missed = false;
    {
        const MutexLock lock(mutex_);
        is_missed = lifelines_.would_be_missed(line);
    }
    if (how == LineEnd::How::altered)
        its_end.fault = socket.fault();
    else if (is_missed && how != LineEnd::How::host_lost && roster_.can_watch(socket.rank()))
        its_end.process_end = end_of(roster_.card(socket.rank()).process);
    {
        const MutexLock lock(mutex_);
        lifelines_.on_end(line, its_end, Clock::now());
        perform();
    }
    follow_up();
}

// Does at once what concerns the lifelines; keeps the rest for follow_up().
void Membership::perform() {
    for (Effect& effect : lifelines_.take_effects()) {
        if (const auto* sent = std::get_if<SendBytes>(&effect))
            sockets_.at(sent->line)->send(std::as_bytes(std::span(sent->bytes)));
        else if (const auto* ended = std::get_if<EndSending>(&effect))
            sockets_.at(ended->line)->end_sending();
        else if (const auto* closed = std::get_if<CloseLine>(&effect))
            sockets_.erase(closed->line);
        else
            follow_ups_.push_back(std::move(effect));
    }
    changed_.notify_all();
}

void Membership::follow_up() {
    for (;;) {
        std::vector<Effect> effects;
        {
            const MutexLock lock(mutex_);
            effects.swap(follow_ups_);
        }
        if (effects.empty()) return;
        for (const Effect& effect : effects) {
            if (const auto* wanted = std::get_if<Dial>(&effect)) dial(*wanted);
            if (const auto* news = std::get_if<Inform>(&effect)) inform(*news);
        }
    }
}

// A neighbour of a silent rank is turned to at once where that takes no time; a parent has to say that it stays.
void Membership::dial(const Dial& wanted) {
    if (wanted.role == Role::beside) {
        if (UniqueFd fd = dialer_.attach_unseen(wanted.rank))
            return attach(wanted.rank, wanted.role, false, {std::move(fd), {}});
    }
    try {
        dials_.start(wanted);
    } catch (const DistBackendError& error) {
        if (wanted.role == Role::parent && !std::exchange(lacks_threads_, true))
            TUTTI_WARN("rank {}: {}; it tries again", options_.rank, error.what());
        const MutexLock lock(mutex_);
        lifelines_.on_dial_failed(wanted, DialFailure::no_thread, Clock::now());
    }
}

void Membership::take_dials() {
    for (BackgroundDials::Result& result : dials_.take()) {
        if (result.connection.fd) {
            attach(result.dial.rank, result.dial.role, true, std::move(result.connection));
            continue;
        }
        const MutexLock lock(mutex_);
        lifelines_.on_dial_failed(result.dial, result.failure, Clock::now());
        perform();
    }
}

void Membership::inform(const Inform& news) {
    // The rank that left may have connected to this one before.
    if (news.verdict.kind == VerdictKind::left) accept();
    if (!leaving_) {
        options_.on_verdict(news.verdict);
        wake_owner();
    }
    if (!news.id) return;
    const MutexLock lock(mutex_);
    lifelines_.informed(*news.id);
    perform();
}

// ---- The end

// It passes on news meanwhile.
void Membership::linger() {
    Linger stay(Clock::now());
    const MutexLock lock(mutex_);
    while (lifelines_.is_counted_on() && !stay.is_over(Clock::now())) changed_.wait_for(mutex_, Linger::longest_look);
}

void Membership::stop() {
    stopping_ = true;
    wake_service();
    thread_.join();
    dials_.stop();
    endpoint_.close_local();
    // The latest connections, made by this rank and to it, learn that it has left.
    take_dials();
    accept();
}

}  // namespace tutti::rendezvous
