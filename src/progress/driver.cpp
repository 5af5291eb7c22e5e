#include "progress/driver.hpp"

#include "core/assert.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

using std::chrono::milliseconds;

constexpr int turns_before_yield = 8;  // over sockets
constexpr int turns_before_check = 16;
constexpr milliseconds memory_nap{1};  // beside descriptors, where nothing tells of changes in memory

void be_nicer_by(int change) {
    if (change == 0) return;
    const int now = ::getpriority(PRIO_PROCESS, 0);  // of this thread
    const int wanted = std::clamp(now + change, -20, 19);
    const bool may = ::setpriority(PRIO_PROCESS, 0, wanted) == 0;
    static std::once_flag said;
    std::call_once(said, [&] {
        if (may)
            TUTTI_INFO("the thread of asynchronous operations has niceness {}, as TUTTI_PROGRESS_NICE={} asks", wanted,
                       change);
        else
            TUTTI_WARN(
                "TUTTI_PROGRESS_NICE={}: the thread of asynchronous operations keeps niceness {}; less takes the right "
                "to it (CAP_SYS_NICE, or ulimit -e)",
                change, now);
    });
}

}  // namespace

void Driver::attach(Driven& driven, const transport::Neighbours& neighbours) {
    TUTTI_ASSERT(driven_ == nullptr);
    driven_ = &driven;
    neighbours_ = &neighbours;
}

Driver::Scope::~Scope() {
    TUTTI_ASSERT(driver_.drivers_ > 0);
    --driver_.drivers_;
    if (driver_.driven_->is_busy()) driver_.unpark();
}

// TUTTI_WAIT=spin looks all the same.
Waiting::Turn Driver::turn(const Waiting& waiting, int idle) {
    const Waiting::Turn usual = waiting.turn(idle);
    const bool may_sleep = usual != Waiting::Turn::sleep && waiting.learns();
    return may_sleep && driven_->is_moved_by_threads() ? Waiting::Turn::sleep : usual;
}

Driver::Waited Driver::wait(const std::function<bool()>& done, const Deadline& limit, const Deadline& deadline,
                            Waiting& waiting) {
    TUTTI_ASSERT(driven_ != nullptr && neighbours_ != nullptr);
    const Scope scope(*this);
    int idle = 0;
    Waiting::Looks looks(waiting);
    while (!done()) {
        if (driven_->move()) {
            if (idle > 0) waiting.spared();
            idle = 0;
            looks = Waiting::Looks(waiting);
            continue;
        }
        if (done()) break;
        Waiting::Turn next = turn(waiting, ++idle);
        // A turn over sockets costs a system call anyway, and ranks of other hosts (containers, say) may be waiting for
        // this very core: so this rank offers it to them from the start.
        if (next == Waiting::Turn::look && !neighbours_->are_all() && idle > turns_before_yield)
            next = Waiting::Turn::yield;
        if (next == Waiting::Turn::look) {
            looks.pause();
            continue;
        }
        if (next == Waiting::Turn::yield) waiting.yield(Clock::now());
        if (next == Waiting::Turn::sleep || idle % turns_before_check == 0) {
            if (limit.expired()) return done() ? Waited::done : Waited::expired;
            if (interrupt_requested()) {
                clear_interrupt();
                return Waited::interrupted;
            }
            driven_->look_after();
        }
        if (next == Waiting::Turn::sleep) {
            const Deadline first = Deadline::at(std::min(limit.when(), deadline.when()));
            sleep(std::clamp(std::chrono::ceil<milliseconds>(first.remaining()), milliseconds(1), wait_slice), done);
            waiting.slept(Clock::now());
        }
    }
    return Waited::done;
}

void Driver::pause(int idle, milliseconds nap) {
    TUTTI_ASSERT(idle > 0 && nap.count() > 0);
    if (waiting_.turn(idle) != Waiting::Turn::sleep) {
        waiting_.yield(Clock::now());
        return;
    }
    sleep(nap, [] { return false; });
    waiting_.slept(Clock::now());
}

void Driver::drive_in_background(Start start) {
    TUTTI_ASSERT(driven_ != nullptr && neighbours_ != nullptr);
    if (start == Start::at_once) work_is_urgent_ = true;
    {
        const std::lock_guard lock(starting_);
        if (!thread_.joinable()) {
            try {
                start_thread();
                lacks_thread_ = false;
                driven_->note_thread(true);
            } catch (const DistBackendError& error) {
                if (!lacks_thread_.exchange(true))
                    TUTTI_WARN(
                        "{}; without it operations go on only while a thread waits for one or asks for its future",
                        error.what());
            }
        }
    }
    unpark();
}

void Driver::start_thread() {
    TUTTI_ASSERT(!thread_.joinable());
    if (!wake_) wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) throw DistBackendError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
    const auto escaped = [this](const std::exception_ptr&) noexcept { driven_->end_of_thread(); };
    thread_ =
        thread::start({"tutti-progress", fmt::format("what group \"{}\" has in flight", group_), escaped}, [this] {
            be_nicer_by(niceness_);
            run_thread();
        });
}

void Driver::stop() {
    TUTTI_ASSERT(!is_own_thread());
    stopping_ = true;
    unpark();
    if (thread_.joinable()) thread_.join();
}

void Driver::unpark() {
    work_waits_ = true;
    if (dozing_ && (stopping_ || !driven_->only_awaits_sockets())) (void)!::eventfd_write(wake_.get(), 1);
    if (!parked_) return;                            // it will see that
    { const std::lock_guard lock(parking_mutex_); }  // it waits already
    unparked_.notify_one();
}

// A thread that competed for the lock while another one drives would cost that one two context switches an operation.
bool Driver::park() {
    std::unique_lock lock(parking_mutex_);
    parked_ = true;
    const bool wanted =
        unparked_.wait_for(lock, wait_slice, [this] { return stopping_ || (work_waits_ && drivers_ == 0); });
    parked_ = false;
    work_waits_ = false;
    TUTTI_ASSERT(lock.owns_lock());
    return wanted && !stopping_;
}

// The progress thread's sleep where only sockets can bring what is in flight. Beside it other threads make calls that
// end within a moment: so it leaves the flag alone that would let neighbours wake this rank for each of them, and does
// not compete for the lock. Who adds other work wakes it.
void Driver::doze() {
    std::vector<transport::Pollable> sockets;
    driven_->pollables(sockets);
    milliseconds limit = wait_slice;
    std::vector<pollfd> entries{{driven_->news_fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (const auto& socket : sockets) {
        if (socket.fd < 0) limit = memory_nap;
        entries.push_back({socket.fd, static_cast<short>(socket.output ? POLLOUT : POLLIN), 0});
    }
    dozing_ = true;
    if (!stopping_ && driven_->only_awaits_sockets())
        ::poll(entries.data(), entries.size(), static_cast<int>(limit.count()));
    dozing_ = false;
    eventfd_t times = 0;
    (void)!::eventfd_read(wake_.get(), &times);
}

void Driver::sleep(milliseconds limit, const std::function<bool()>& done) {
    TUTTI_ASSERT(limit.count() > 0);
    // A rank has one flag that says that it sleeps: the first of its threads that wakes would clear it for the others.
    if (asleep_.exchange(true)) {
        ::poll(nullptr, 0, 1);
        return;
    }
    struct Wake {
        std::atomic<bool>& asleep;
        ~Wake() { asleep = false; }
    } wake{asleep_};
    driven_->pollables(sockets_);
    // A change in memory that this thread waits for, such as a window's signal, moves nothing.
    const auto ready = [&] { return driven_->has_failed() || driven_->move() || done(); };
    const auto& arena = neighbours_->arena();
    if (sockets_.empty() && neighbours_->are_all()) {
        TUTTI_ASSERT(arena != nullptr);
        arena->sleep(neighbours_->own_local(), limit, ready);
        return;
    }
    entries_.assign(1, {driven_->news_fd(), POLLIN, 0});
    for (const auto& socket : sockets_) {
        if (socket.fd < 0) limit = std::min(limit, memory_nap);
        entries_.push_back({socket.fd, static_cast<short>(socket.output ? POLLOUT : POLLIN), 0});
    }
    const auto poll = [&] { ::poll(entries_.data(), entries_.size(), static_cast<int>(limit.count())); };
    if (!arena || neighbours_->are_all()) return poll();  // there are bells only where some ranks are elsewhere
    arena->sleep_by_bell(neighbours_->own_local(), ready, [&](int bell) {
        entries_.push_back({bell, POLLIN, 0});
        poll();
    });
}

void Driver::wake() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the news before, and the load after it
    if (!asleep_) return;                                 // it looks for news before it sleeps
    TUTTI_ASSERT(neighbours_ != nullptr);
    if (const auto& arena = neighbours_->arena()) arena->ring_doorbell(neighbours_->own_local());
}

// Beside a computation on the same core a thread that yields comes last (core/waiting): so this one yields only where
// that costs little.
void Driver::run_thread() {
    TUTTI_ASSERT(driven_ != nullptr);
    using std::chrono::microseconds;
    constexpr microseconds shortest{50}, longest{2000};
    // A thread that starts an operation often waits for one soon, and drives then: this thread leaves it a head start.
    // The more often this thread came for nothing, the longer.
    microseconds head_start = shortest;
    bool just_came = false;
    int idle = 0;
    while (!stopping_) {
        const bool work = drivers_ == 0 && driven_->is_busy();
        if (!work) {
            if (just_came) head_start = std::min(2 * head_start, longest);
            just_came = park();
            if (just_came && !work_is_urgent_.exchange(false)) std::this_thread::sleep_for(head_start);
            idle = 0;
            continue;
        }
        if (std::exchange(just_came, false)) head_start = shortest;
        if (driven_->move()) {
            idle = 0;
            continue;
        }
        driven_->look_after();
        if (driven_->only_awaits_sockets()) {
            doze();
            continue;
        }
        if (turn(background_waiting_, ++idle) != Waiting::Turn::sleep) {
            background_waiting_.yield(Clock::now());
            continue;
        }
        sleep(milliseconds(10), [] { return false; });
        background_waiting_.slept(Clock::now());
    }
}

}  // namespace tutti::detail
