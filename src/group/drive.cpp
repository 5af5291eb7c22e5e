// Making progress: starting operations, running them, waiting for them, and noticing what is wrong.
#include "core/pause.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

constexpr int turns_before_yield = 8;
constexpr int turns_before_check = 16;
constexpr std::size_t plans_max = 64;

}  // namespace

bool Group::choose_way(Operation& operation) {
    if (make_small(operation)) return true;
    const std::lock_guard lock(mutex_);
    operation.schedule = plan_for(operation);
    return false;
}

void Group::submit(const std::shared_ptr<Operation>& operation, bool asynchronous) {
    if (operation->begin) operation->begin();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    operation->started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->started);
    operation->group = shared_from_this();
    if (operation->is_collective) {
        operation->sequence = ++sequence_;
        operation->ticket = record_call(*operation);
        collectives_.push_back(operation);
    } else {
        operation->ticket = record_call(*operation);
        messages_.push_back(operation);
        transport::Transfer& transfer = operation->transfer;
        if (operation->is_receive)
            mailbox_->post_receive(transfer);
        else
            mailbox_->post_send(transfer);
    }
    progress();
    if (!asynchronous || operation->done()) return;
    if (!progress_thread_.joinable()) progress_thread_ = std::thread([this] { run_progress_thread(); });
    work_arrived_.notify_one();
}

void Group::run(const std::shared_ptr<Operation>& operation) {
    submit(operation, false);
    wait(*operation, Deadline::never());
    if (const auto error = operation->error()) std::rethrow_exception(error);
}

std::shared_ptr<const schedule::Schedule> Group::plan_for(const Operation& operation) {
    const auto found = std::ranges::find(plans_, operation.request, &CachedPlan::request);
    if (found != plans_.end()) {
        plans_.splice(plans_.begin(), plans_, found);
    } else {
        plans_.push_front({operation.request,
                           std::make_shared<const schedule::Schedule>(algorithm::plan(layout_, operation.request))});
        if (plans_.size() > plans_max) plans_.pop_back();
    }
    return plans_.front().schedule;
}

void Group::start(Operation& operation) {
    const std::uint64_t fingerprint = operation.operands.fingerprint;
    remember(operation.sequence, fingerprint);
    recorder_.start(operation.ticket);
    if (make_small(operation)) {
        operation.small_state = begin_small();
        operation.small_state.ticket = operation.ticket;
    } else {
        begin_schedule(operation);
    }
}

void Group::begin_schedule(Operation& operation) {
    const std::uint64_t fingerprint = operation.operands.fingerprint;
    if (arena_ && size_ > 1) {
        // Of two ranks that disagree, the one that comes second sees the first: the fence keeps both from reading
        // before they have written. Not every disagreement meets a message, as when ranks name different roots.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        check_records(operation.sequence);
        if (failure_) return;
    }
    if (const std::uint64_t largest = operation.small_state.largest; largest != SmallState::unknown)
        operation.request.largest_count = largest / size_of(operation.operands.dtype);
    operation.operands.channel = transport::collective_channel | operation.sequence;
    if (size_ > 1) mailbox_->check_unexpected(operation.operands.channel, fingerprint);
    if (failure_) return;
    operation.execution = std::make_unique<engine::Execution>(
        operation.schedule ? operation.schedule : plan_for(operation), operation.operands, ground_);
}

void Group::remember(std::uint64_t sequence, std::uint64_t fingerprint) {
    if (!arena_) return history_.put(sequence, fingerprint);
    agreement_ = (agreement_ ^ fingerprint) * 0x9e3779b97f4a7c15ULL;
    agreement_ ^= agreement_ >> 32;
    auto& record = arena_->control(ground_.local_rank).records[sequence % transport::RankControl::record_count];
    // Who finds a new value under the old number finds the number gone when it looks again.
    record.sequence.store(0, std::memory_order_relaxed);
    record.fingerprint.store(fingerprint, std::memory_order_release);
    record.agreement.store(agreement_, std::memory_order_release);
    record.sequence.store(sequence, std::memory_order_release);
}

std::uint64_t Group::fingerprint_at(std::uint64_t sequence) const {
    if (!arena_) return history_.find(sequence);
    const auto& record = arena_->control(ground_.local_rank).records[sequence % transport::RankControl::record_count];
    return record.sequence.load(std::memory_order_relaxed) == sequence
               ? record.fingerprint.load(std::memory_order_relaxed)
               : 0;
}

bool Group::progress() {
    if (has_verdict_.load(std::memory_order_acquire)) apply_verdict();
    if (failure_) return false;
    bool moved = false;
    if (membership_->has_incoming()) {
        for (auto& [peer, fd] : membership_->take_incoming()) {
            if (shares_memory_with(peer)) continue;
            socket_to(peer).accepted(std::move(fd));
            mailbox_->activate(peer);
            moved = true;
        }
    }
    moved |= progress_collective();
    if (failure_) return true;
    if (size_ > 1 && mailbox_->progress()) {
        moved = true;
        // What has come may complete an operation: at once, without another look at the sockets.
        if (!failure_) progress_collective();
    }
    if (failure_) return true;
    return progress_messages() || moved;
}

bool Group::progress_collective() {
    bool moved = false;
    while (!collectives_.empty()) {
        const std::shared_ptr<Operation> operation = collectives_.front();
        if (operation->small_state.sequence == 0 && !operation->execution) {
            start(*operation);
            if (failure_) return true;
            moved = true;
        }
        SmallState& small = operation->small_state;
        if (small.sequence != 0 && !operation->execution) {
            if (!advance(operation->small, small, operation->sequence)) return moved;
            if (!failure_ && small.large) begin_schedule(*operation);
            if (failure_) return true;
        }
        if (operation->execution) {
            executing_ = true;
            moved |= operation->execution->progress();
            executing_ = false;
            if (deferred_) fail(std::exchange(deferred_, nullptr));
            if (failure_) return true;
            if (const auto& other = operation->execution->mismatch(); other && !failure_) {
                const auto [peer, theirs] = *other;
                mismatch(peer, operation->sequence, theirs, operation->operands.fingerprint);
            }
            if (failure_) return true;
            if (!operation->execution->done()) return moved;
            operation->execution.reset();
        }
        collectives_.pop_front();
        recorder_.end(operation->ticket, record::State::completed);
        if (operation->finish) operation->finish();
        operation->complete(nullptr);
        moved = true;
    }
    return moved;
}

bool Group::progress_messages() {
    bool moved = false;
    for (auto it = messages_.begin(); it != messages_.end();) {
        if (!(*it)->transfer.done) {
            ++it;
            continue;
        }
        const std::shared_ptr<Operation> operation = *it;
        it = messages_.erase(it);
        recorder_.end(operation->ticket, record::State::completed);
        if (operation->finish) operation->finish();
        operation->complete(nullptr);
        moved = true;
    }
    return moved;
}

void Group::wait(Operation& operation, const Deadline& deadline) {
    ++drivers_;
    struct Leave {
        Group& group;
        ~Leave() {
            --group.drivers_;
            const std::lock_guard lock(group.mutex_);
            if (!group.collectives_.empty() || !group.messages_.empty()) group.work_arrived_.notify_one();
        }
    } leave{*this};
    drive(operation, deadline);
}

void Group::drive(Operation& operation, const Deadline& deadline) {
    int idle = 0;
    while (!operation.done()) {
        bool moved = false;
        {
            const std::lock_guard lock(mutex_);
            moved = progress();
        }
        if (moved) {
            idle = 0;
            continue;
        }
        if (operation.done()) break;
        if (++idle <= spins_) {
            // A turn over sockets costs a system call anyway, and ranks of other hosts (containers, say) may be waiting
            // for this very core: it is offered to them from the start.
            if (uses_shared_memory_only() || idle <= turns_before_yield) {
                pause_cpu();
                continue;
            }
            ::sched_yield();
            if (idle % turns_before_check != 0) continue;  // on a busy machine every turn may take milliseconds
        }
        if (idle % turns_before_check == 0 || idle > spins_ + yields_) {
            if (deadline.expired()) {
                const std::lock_guard lock(mutex_);
                if (operation.done()) break;
                throw Timeout(fmt::format("{}: wait timed out; the operation goes on", title_of(operation)),
                              context_of(operation));
            }
            if (interrupt_requested()) {
                clear_interrupt();
                throw Aborted(fmt::format("{}: interrupted by a signal", operation.name), {.operation = operation.name},
                              ErrorCode::interrupted);
            }
            const std::lock_guard lock(mutex_);
            slow_checks();
        }
        if (idle <= spins_ + yields_) {
            ::sched_yield();
        } else {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                std::min(deadline, operation.deadline, [](auto a, auto b) { return a.when() < b.when(); }).remaining());
            sleep(std::clamp(left, std::chrono::milliseconds(1), wait_slice));
        }
    }
}

// What a waiting rank looks after now and then: deadlines, ranks that left, mismatches that no message shows.
void Group::slow_checks() {
    if (failure_) return;
    const Instant now = Clock::now();
    if (now < next_slow_check_) return;
    next_slow_check_ = now + std::chrono::milliseconds(10);
    if (const auto* operation = collectives_.empty() ? nullptr : collectives_.front().get())
        note_waits(*operation, now);
    for (const auto& operation : messages_) note_waits(*operation, now);
    last_slow_check_ = now;
    for (const auto& operation : messages_) {
        if (operation->deadline.expired(now)) return time_out(*operation);
    }
    if (collectives_.empty()) {
        if (arena_) check_records(sequence_);  // the last one, in which this rank may not have waited
        return;
    }
    const std::shared_ptr<Operation> operation = collectives_.front();
    if (operation->deadline.expired(now)) return time_out(*operation);
    if (arena_) check_records(operation->sequence);
    if (failure_ || now < next_probe_) return;
    next_probe_ = now + std::chrono::milliseconds(200);
    for (const int peer : waits_for(*operation)) {
        if (now - operation->started < std::chrono::milliseconds(100)) break;
        if (peer_has_left(peer)) return;
        if (ground_.arena == nullptr || ground_.local_of[static_cast<std::size_t>(peer)] < 0) {
            mailbox_->probe(peer, operation->operands.channel, operation->operands.fingerprint);
        }
    }
}

// Compares what the ranks of this host have done up to this collective, which has begun here.
void Group::check_records(std::uint64_t sequence) {
    const std::size_t index = sequence % transport::RankControl::record_count;
    const auto& own = arena_->control(ground_.local_rank).records[index];
    if (sequence == 0 || own.sequence.load(std::memory_order_relaxed) != sequence) return;
    const std::uint64_t mine = own.agreement.load(std::memory_order_relaxed);
    for (std::size_t local = 0; local < rank_of_local_.size(); ++local) {
        const auto& record = arena_->control(static_cast<int>(local)).records[index];
        if (record.sequence.load(std::memory_order_acquire) != sequence) continue;
        const std::uint64_t theirs = record.agreement.load(std::memory_order_acquire);
        if (theirs == mine || record.sequence.load(std::memory_order_relaxed) != sequence) continue;
        return disagreement(rank_of_local_[local], sequence);
    }
}

// Finds the first collective about which this rank and a peer disagree: the latest, or an earlier one in which neither
// had to wait for the other.
void Group::disagreement(int peer, std::uint64_t sequence) {
    using transport::RankControl;
    const auto& records = arena_->control(ground_.local_of[static_cast<std::size_t>(peer)]).records;
    std::uint64_t first = sequence, theirs = 0, mine = 0;
    for (std::uint64_t s = sequence; s > 0 && sequence - s < RankControl::record_count; --s) {
        const RankControl::Record& record = records[s % RankControl::record_count];
        if (record.sequence.load(std::memory_order_acquire) != s) continue;
        const std::uint64_t fingerprint = record.fingerprint.load(std::memory_order_acquire);
        if (record.sequence.load(std::memory_order_relaxed) != s || fingerprint == fingerprint_at(s)) continue;
        first = s, theirs = fingerprint, mine = fingerprint_at(s);
    }
    if (theirs != mine) return mismatch(peer, first, theirs, mine);
    mismatch(peer, sequence, fmt::format("ranks {} and {} have disagreed about a collective before it", rank_, peer));
}

// A rank that is waited for has left: nobody can finish this operation, and everybody learns the same cause.
bool Group::peer_has_left(int peer) {
    const rendezvous::Verdict verdict{rendezvous::VerdictKind::left, peer,
                                      fmt::format("rank {} has left the group", peer)};
    {
        const std::lock_guard lock(verdict_mutex_);
        if (std::ranges::find(gone_, peer) == gone_.end() || verdict_) return false;
        verdict_ = verdict;
        has_verdict_ = true;
    }
    membership_->flood(verdict);
    return true;
}

std::vector<int> Group::waits_for(const Operation& operation) const {
    if (operation.execution) return operation.execution->waits_for();
    if (operation.small_state.sequence != 0) return missing(operation.small, operation.small_state);
    if (!operation.is_collective && operation.transfer.peer >= 0) return {operation.transfer.peer};
    return {};
}

void Group::time_out(Operation& operation) {
    ErrorContext context = context_of(operation);
    const std::vector<int> missing = waits_for(operation);
    if (!missing.empty()) context.peer = missing.front();
    const double waited = std::chrono::duration<double>(context.elapsed).count();
    std::string text = fmt::format("{}: timed out after {:.3f} s of {:.3f} s", title_of(operation), waited,
                                   std::chrono::duration<double>(operation.timeout).count());
    if (!missing.empty()) text += fmt::format("; rank {} has nothing from rank {}", rank_, fmt::join(missing, ", "));
    if (!context.phase.empty()) text += fmt::format("; {}", context.phase);
    fail_together({.headline = text, .sequence = operation.sequence, .rank = rank_, .peer = context.peer}, context);
}

void Group::sleep(std::chrono::milliseconds limit) {
    // A rank has one flag that tells that it sleeps: the first of its threads that wakes would clear it for the others.
    if (asleep_.exchange(true)) {
        ::poll(nullptr, 0, 1);
        return;
    }
    struct Wake {
        std::atomic<bool>& asleep;
        ~Wake() { asleep = false; }
    } wake{asleep_};
    std::vector<transport::Mailbox::Pollable> sockets;
    {
        const std::lock_guard lock(mutex_);
        mailbox_->pollables(sockets);
    }
    const auto ready = [this] {
        const std::lock_guard lock(mutex_);
        return failure_ != nullptr || progress();
    };
    if (arena_ && sockets.empty() && uses_shared_memory_only()) {
        arena_->sleep(ground_.local_rank, limit, ready);
        return;
    }
    std::vector<pollfd> entries{{membership_->wake_fd(), POLLIN, 0}};
    for (const auto& socket : sockets) {
        entries.push_back({socket.fd, static_cast<short>(socket.output ? POLLOUT : POLLIN), 0});
    }
    const auto poll = [&] { ::poll(entries.data(), entries.size(), static_cast<int>(limit.count())); };
    if (!arena_) return poll();
    arena_->sleep_by_bell(ground_.local_rank, ready, [&](int bell) {
        entries.push_back({bell, POLLIN, 0});
        poll();
    });
}

void Group::run_progress_thread() {
    std::unique_lock lock(mutex_);
    int idle = 0;
    while (!stopping_) {
        const bool pending = !collectives_.empty() || !messages_.empty();
        if (!pending || drivers_.load() > 0) {
            work_arrived_.wait_for(lock, wait_slice);
            idle = 0;
            continue;
        }
        if (progress()) {
            idle = 0;
            continue;
        }
        slow_checks();
        lock.unlock();
        if (++idle < yields_)
            ::sched_yield();
        else
            sleep(std::chrono::milliseconds(10));
        lock.lock();
    }
}

}  // namespace tutti::detail
