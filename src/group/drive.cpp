// Making progress in a world: running what is in flight, and waiting for it.
#include "core/log.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tutti::detail {
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
        !neighbours_->symmetric().find(at, transfer.bytes))
        huge_pages_.used(at, transfer.bytes);
    if (message->is_receive)
        mailbox_->post_receive(transfer);
    else
        mailbox_->post_send(transfer);
    heed_mailbox();
}

void World::drive_for(Operation& operation, Driving driving) {
    if (!driver_.lacks_thread() || operation.done() || operation.handed_over) return;
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

// ---- What the driver asks for

bool World::move() {
    const Held held(*this);
    return progress();
}

bool World::is_busy() {
    const std::lock_guard lock(mutex_);
    return !active_.empty() || !messages_.empty();
}

void World::look_after() {
    const Held held(*this);
    slow_checks();
}

bool World::has_failed() {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
}

std::vector<transport::Pollable> World::pollables() {
    std::vector<transport::Pollable> sockets;
    const std::lock_guard lock(mutex_);
    mailbox_->pollables(sockets);
    return sockets;
}

void World::end_of_thread() noexcept {
    try {
        abort(fmt::format("the progress thread of rank {} has failed", rank_));
    } catch (const std::exception& error) {
        TUTTI_ERROR("group {}: {}", name_, error.what());
    }
}

// ---- Progress

bool World::take_connections() {
    const std::vector<int> arrived = links_->take_arrived();
    for (const int peer : arrived) mailbox_->activate(peer);
    if (const auto unreachable = links_->take_unreachable()) {
        const auto& [peer, why] = *unreachable;
        on_verdict({rendezvous::VerdictKind::peer_lost, peer, fmt::format("rank {} cannot be reached: {}", peer, why)});
    }
    return !arrived.empty();
}

void World::hear() {
    if (health_.has_news()) apply_verdict();
}

bool World::progress() {
    hear();
    if (failure_) return false;
    bool moved = take_connections();
    moved |= progress_collectives();
    if (failure_) return true;
    if (size_ > 1 && mailbox_->progress()) {
        moved = true;
        heed_mailbox();
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
    heed_mailbox();
    if (deferred_) fail(std::exchange(deferred_, nullptr));
    return moved;
}

void World::complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error) {
    operation->group->record_end(*operation, error == nullptr);
    if (!error && operation->finish) operation->finish();
    operation->complete(error);
    completed_.push_back(std::move(operation));
}

void World::wait(Operation& operation, const Deadline& deadline) {
    if (inherited_ && !operation.done()) std::rethrow_exception(failure_);
    if (operation.handed_over) return operation.group->wait_for_backend(operation, deadline);
    const auto waited = driver_.wait([&] { return operation.done(); }, deadline, operation.deadline);
    if (waited == Driver::Waited::expired) {
        const std::lock_guard lock(mutex_);
        if (operation.done()) return;
        const Group& group = *operation.group;
        throw Timeout(fmt::format("{}: wait timed out; the operation goes on", group.title_of(operation)),
                      group.context_of(operation));
    }
    if (waited == Driver::Waited::interrupted) {
        throw Aborted(fmt::format("{}: interrupted by a signal", operation.name), {.operation = operation.name},
                      ErrorCode::interrupted);
    }
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
    for (const auto& group : groups_.all()) {  // their last collectives, in which this rank may not have waited
        group->check_last();
        if (failure_) return;
    }
}

}  // namespace tutti::detail
