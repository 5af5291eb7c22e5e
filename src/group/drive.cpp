// Making progress in a world: running what is in flight, and waiting for it.
#include "core/log.hpp"
#include "core/thread.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tutti::detail {
namespace {

constexpr int turns_before_yield = 8;  // over sockets
constexpr int turns_before_check = 16;

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

World::Held::~Held() {
    const auto completed = std::exchange(world_.completed_, {});
    world_.mutex_.unlock();
    for (const auto& operation : completed) operation->run_continuations();
}

void World::activate(Group& group) {
    if (std::ranges::find(active_, &group) == active_.end()) active_.push_back(&group);
}

void World::post(const std::shared_ptr<Operation>& message) {
    messages_.push_back(message);
    transport::Transfer& transfer = message->transfer;
    const std::byte* at = message->is_receive ? transfer.target : transfer.source;
    if (layout_.pulls && at != nullptr && transfer.bytes >= HugePages::least_bytes &&
        !symmetric_.find(at, transfer.bytes))
        huge_pages_.used(at, transfer.bytes);
    if (message->is_receive)
        mailbox_->post_receive(transfer);
    else
        mailbox_->post_send(transfer);
}

void World::drive_in_background() {
    {
        const std::lock_guard lock(mutex_);
        if (!progress_thread_.joinable()) {
            try {
                start_progress_thread();
                lacks_thread_ = false;
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

void World::drive_for(Operation& operation, Driving driving) {
    if (!lacks_thread_ || operation.done() || operation.handed_over) return;
    if (driving == Driving::one_turn) {
        const Held held(*this);
        progress();
        slow_checks();
        return;
    }
    try {
        wait(operation, Deadline::never());
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the operation tells it
    }
}

void World::start_progress_thread() {
    const auto escaped = [this](const std::exception_ptr&) noexcept {
        try {
            abort(fmt::format("the progress thread of rank {} has failed", rank_));
        } catch (const std::exception& error) {
            TUTTI_ERROR("group {}: {}", name_, error.what());
        }
    };
    progress_thread_ =
        thread::start({"tutti-progress", fmt::format("what group \"{}\" has in flight", name_), escaped}, [this] {
            be_nicer_by(progress_nice_);
            run_progress_thread();
        });
}

void World::unpark() {
    work_waits_ = true;
    if (!parked_) return;                            // it will see that
    { const std::lock_guard lock(parking_mutex_); }  // it waits already
    unparked_.notify_one();
}

// A thread that took part in the lock while another one drives would cost that one two changes of context an operation.
bool World::park() {
    std::unique_lock lock(parking_mutex_);
    parked_ = true;
    const bool wanted =
        unparked_.wait_for(lock, wait_slice, [this] { return stopping_ || (work_waits_ && drivers_ == 0); });
    parked_ = false;
    work_waits_ = false;
    return wanted && !stopping_;
}

bool World::take_connections() {
    if (!membership_->has_incoming()) return false;
    bool moved = false;
    for (auto& [peer, fd] : membership_->take_incoming()) {
        if (shares_memory_with(peer)) continue;
        socket_to(peer).add(std::move(fd));
        mailbox_->activate(peer);
        moved = true;
    }
    return moved;
}

void World::hear() {
    if (has_verdict_.load(std::memory_order_acquire)) apply_verdict();
}

bool World::progress() {
    hear();
    if (failure_) return false;
    bool moved = take_connections();
    moved |= progress_collectives();
    if (failure_) return true;
    if (size_ > 1 && mailbox_->progress()) {
        moved = true;
        // What has come may complete an operation: at once, without another look at the sockets.
        if (!failure_) progress_collectives();
    }
    if (failure_) return true;
    return progress_messages() || moved;
}

bool World::progress_collectives() {
    bool moved = false;
    for (std::size_t i = 0; i < active_.size();) {
        Group& group = *active_[i];
        moved |= group.progress();
        if (failure_) return true;
        if (group.front() != nullptr)
            ++i;
        else
            active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return moved;
}

bool World::progress_messages() {
    bool moved = false;
    for (auto it = messages_.begin(); it != messages_.end();) {
        if (!(*it)->transfer.done) {
            ++it;
            continue;
        }
        std::shared_ptr<Operation> operation = *it;
        it = messages_.erase(it);
        complete(std::move(operation), nullptr);
        moved = true;
    }
    return moved;
}

bool World::run(engine::Running& execution) {
    executing_ = true;
    const bool moved = execution.progress();
    executing_ = false;
    if (deferred_) fail(std::exchange(deferred_, nullptr));
    return moved;
}

void World::complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error) {
    operation->group->record_end(*operation, error == nullptr);
    if (!error && operation->finish) operation->finish();
    operation->complete(error);
    completed_.push_back(std::move(operation));
}

World::Driver::~Driver() {
    --world_.drivers_;
    bool rest = false;
    {
        const std::lock_guard lock(world_.mutex_);
        rest = !world_.active_.empty() || !world_.messages_.empty();
    }
    if (rest) world_.unpark();
}

void World::wait(Operation& operation, const Deadline& deadline) {
    if (inherited_ && !operation.done()) std::rethrow_exception(failure_);
    if (operation.handed_over) return operation.group->wait_for_backend(operation, deadline);
    const Driver driver(*this);
    drive(operation, deadline);
}

void World::wait_for_call(Operation& operation) {
    try {
        if (operation.device.type != Device::Type::cpu) {
            operation.group->wait_until_issued(operation);
            operation.make_wait(operation.stream);
        } else {
            wait(operation, Deadline::never());
        }
    } catch (const Aborted& error) {
        if (error.code() == ErrorCode::interrupted) abort(fmt::format("rank {} was interrupted by a signal", rank_));
        throw;
    }
    if (const auto error = operation.error()) std::rethrow_exception(error);
}

void World::drive(Operation& operation, const Deadline& deadline) {
    int idle = 0;
    Waiting::Looks looks(waiting_);
    while (!operation.done()) {
        bool moved = false;
        {
            const Held held(*this);
            moved = progress();
        }
        if (moved) {
            if (idle > 0) waiting_.spared();
            idle = 0;
            looks = Waiting::Looks(waiting_);
            continue;
        }
        if (operation.done()) break;
        Waiting::Turn turn = waiting_.turn(++idle);
        // A turn over sockets costs a system call anyway, and ranks of other hosts (containers, say) may be waiting for
        // this very core: it is offered to them from the start.
        if (turn == Waiting::Turn::look && !uses_shared_memory_only() && idle > turns_before_yield)
            turn = Waiting::Turn::yield;
        if (turn == Waiting::Turn::look) {
            looks.pause();
            continue;
        }
        if (turn == Waiting::Turn::yield) waiting_.yield(Clock::now());
        if (turn == Waiting::Turn::sleep || idle % turns_before_check == 0) {
            if (deadline.expired()) {
                const std::lock_guard lock(mutex_);
                if (operation.done()) break;
                const Group& group = *operation.group;
                throw Timeout(fmt::format("{}: wait timed out; the operation goes on", group.title_of(operation)),
                              group.context_of(operation));
            }
            if (interrupt_requested()) {
                clear_interrupt();
                throw Aborted(fmt::format("{}: interrupted by a signal", operation.name), {.operation = operation.name},
                              ErrorCode::interrupted);
            }
            const Held held(*this);
            slow_checks();
        }
        if (turn == Waiting::Turn::sleep) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                std::min(deadline, operation.deadline, [](auto a, auto b) { return a.when() < b.when(); }).remaining());
            sleep(std::clamp(left, std::chrono::milliseconds(1), wait_slice));
            waiting_.slept(Clock::now());
        }
    }
}

// What a waiting rank looks after now and then: deadlines, ranks that left, mismatches that no message shows.
void World::slow_checks() {
    if (failure_) return;
    const Instant now = Clock::now();
    if (now < next_slow_check_) return;
    next_slow_check_ = now + std::chrono::milliseconds(10);
    for (Group* group : active_) group->note_waits(*group->front(), last_slow_check_, now);
    for (const auto& operation : messages_) operation->group->note_waits(*operation, last_slow_check_, now);
    for (Group* group : active_) {
        if (!group->recorder().counts_operations()) continue;
        for (const int rank : departed()) group->note_gone(rank);
    }
    last_slow_check_ = now;
    if (leaving_) return;  // leave() looks after what is left
    std::vector<std::shared_ptr<Operation>> in_vain;
    for (const auto& operation : messages_) {
        if (operation->deadline.expired(now)) return operation->group->time_out(*operation);
        if (operation->group->is_in_vain(*operation)) in_vain.push_back(operation);
    }
    for (const auto& operation : in_vain) {
        if (!operation->is_receive) {
            give_up(operation);
            continue;
        }
        // What its peer sent before it left may have come since this rank looked last.
        if (progress() || failure_ || operation->done()) return;
        return operation->group->give_up(operation->group->rank_of(operation->transfer.peer));
    }
    for (Group* group : active_) {
        group->check_front(now);
        if (failure_) return;
    }
    if (!active_.empty()) return;
    for (const auto& group : groups()) {  // their last collectives, in which this rank may not have waited
        group->check_last();
        if (failure_) return;
    }
}

void World::sleep(std::chrono::milliseconds limit) {
    // A rank has one flag that tells that it sleeps: the first of its threads that wakes would clear it for the others.
    if (asleep_.exchange(true)) {
        ::poll(nullptr, 0, 1);
        return;
    }
    struct Wake {
        std::atomic<bool>& asleep;
        ~Wake() { asleep = false; }
    } wake{asleep_};
    std::vector<transport::Pollable> sockets;
    {
        const std::lock_guard lock(mutex_);
        mailbox_->pollables(sockets);
    }
    const auto ready = [this] {
        const Held held(*this);
        return failure_ != nullptr || progress();
    };
    if (arena_ && sockets.empty() && uses_shared_memory_only()) {
        arena_->sleep(local_of(rank_), limit, ready);
        return;
    }
    std::vector<pollfd> entries{{membership_->wake_fd(), POLLIN, 0}};
    for (const auto& socket : sockets) {
        entries.push_back({socket.fd, static_cast<short>(socket.output ? POLLOUT : POLLIN), 0});
    }
    const auto poll = [&] { ::poll(entries.data(), entries.size(), static_cast<int>(limit.count())); };
    if (!arena_) return poll();
    arena_->sleep_by_bell(local_of(rank_), ready, [&](int bell) {
        entries.push_back({bell, POLLIN, 0});
        poll();
    });
}

// Beside a computation on the same core a thread that yields comes last (core/waiting): so this one yields only where
// that costs little.
void World::run_progress_thread() {
    using std::chrono::microseconds;
    constexpr microseconds shortest{50}, longest{2000};
    // Who starts an operation often waits for one soon, and drives then: it is not interrupted for that. The longer,
    // the more often this thread came for nothing.
    microseconds head_start = shortest;
    bool just_came = false;
    int idle = 0;
    while (!stopping_) {
        bool work = drivers_ == 0;
        if (work) {
            const Held held(*this);
            work = !active_.empty() || !messages_.empty();
            if (work && std::exchange(just_came, false)) head_start = shortest;
            if (work && progress()) {
                idle = 0;
                continue;
            }
            if (work) slow_checks();
        }
        if (!work) {
            if (just_came) head_start = std::min(2 * head_start, longest);
            just_came = park();
            if (just_came) std::this_thread::sleep_for(head_start);
            idle = 0;
            continue;
        }
        if (background_waiting_.turn(++idle) != Waiting::Turn::sleep) {
            background_waiting_.yield(Clock::now());
            continue;
        }
        sleep(std::chrono::milliseconds(10));
        background_waiting_.slept(Clock::now());
    }
}

}  // namespace tutti::detail
