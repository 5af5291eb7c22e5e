// How a rank leaves a group, or the world: it waits until its peers have what it sent them, and takes back what they do
// not take.
//
// Who leaves takes no further message, and refuses those that others announce: of ranks that all leave none waits for
// another. When it has nothing more to send it ends its streams, behind all that it sent (Stream::end), and stays until
// its peers' kernels have it; so a peer can tell what is still to come from what will never come, without a clock.
// What its peers have not taken in time is withdrawn before its memory is let go (Offers).
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace tutti::detail {
namespace {

// What is under way when a program ends without having left its groups.
constexpr std::chrono::milliseconds time_at_exit{2000};
constexpr int long_idle = 400;  // turns in vain after which it looks more seldom

Deadline earlier(const Deadline& a, const Deadline& b) {
    return a.when() < b.when() ? a : b;
}

}  // namespace

// Of one group, or of all. False: the time has passed first. Ends at the first failure: then there is nothing more to
// wait for.
bool World::wait_for_collectives(const Group* group, const Deadline& limit) {
    for (;;) {
        std::shared_ptr<Operation> pending;
        {
            const std::lock_guard lock(mutex_);
            for (Group* active : active_) {
                if (group == nullptr || active == group) pending = active->front();
            }
        }
        if (!pending) return true;
        try {
            wait(*pending, limit);
        } catch (const DistError& error) {
            if (error.code() == ErrorCode::interrupted) request_interrupt();  // who called shall hear of it
            return pending->done();
        }
    }
}

// Its receiver has left without it, which concerns nobody else: the streams are as they were.
void World::give_up(const std::shared_ptr<Operation>& send) {
    mailbox_->cancel_send(send->transfer);
    std::erase(messages_, send);
    ErrorContext context = send->group->context_of(*send);
    context.peer = send->transfer.peer;
    complete(send, std::make_exception_ptr(
                       PeerLost(fmt::format("{}: rank {} has left the group, and has not received this message",
                                            send->group->title_of(*send), context.peer),
                                std::move(context))));
}

// Under the lock: the ranks that have yet to take what was sent to them, in one group or in all, or to finish sending
// what a receive has met. Other messages end here.
std::vector<int> World::awaited_receivers(const Group* group) {
    std::vector<int> awaited;
    for (auto it = messages_.begin(); it != messages_.end();) {
        const std::shared_ptr<Operation> message = *it++;
        transport::Transfer& transfer = message->transfer;
        if ((group != nullptr && message->group.get() != group) || transfer.done) continue;
        const bool in_vain = message->group->is_in_vain(*message);
        if (!message->is_receive && (transfer.peer == rank_ || in_vain)) {
            give_up(message);
        } else if (message->is_receive && mailbox_->cancel_receive(transfer)) {
            std::erase(messages_, message);
            complete(message, std::make_exception_ptr(
                                  Aborted(fmt::format("group \"{}\" was destroyed", message->group->name()))));
        } else if (!in_vain) {
            awaited.push_back(transfer.peer);
        }
    }
    return awaited;
}

// Drives until `awaited`, which is asked under the lock, names no rank that has still to do `what`. False: the time has
// passed first, or a signal wants this to end.
bool World::drive_until_none(const char* what, const std::function<std::vector<int>()>& awaited,
                             const Deadline& limit) {
    const Driver::Scope driving(driver_);
    std::vector<int> ranks;
    const Patience patience([&] {
        return fmt::format("{} to {}, before rank {} leaves group \"{}\"", rank_list(ranks), what, rank_, name_);
    });
    for (int idle = 0;; ++idle) {
        {
            const Held held(*this);
            const bool moved = progress();
            if (failure_) return true;
            ranks = awaited();
            if (ranks.empty()) return true;
            slow_checks();
            if (moved) idle = 0;
        }
        if (limit.expired() || interrupt_requested()) {
            TUTTI_WARN("group {}: rank {} leaves without waiting for {} to {}", name_, rank_, rank_list(ranks), what);
            return false;
        }
        patience::look();
        driver_.pause(idle + 1, std::chrono::milliseconds(idle < long_idle ? 1 : 10));
    }
}

// False: something has not ended in time.
bool World::finish(const Deadline& limit) {
    if (!wait_for_collectives(nullptr, limit)) return false;
    const Deadline end = earlier(limit, Deadline::after(timeout_));
    {
        const Held held(*this);
        if (failure_) return true;
        leaving_ = true;
        groups_.leave_all();
        mailbox_->refuse_unmet();
    }
    if (!drive_until_none(
            "receive a message", [this] { return awaited_receivers(nullptr); }, end))
        return false;
    {
        const std::lock_guard lock(mutex_);
        links_->stop_connecting();
    }
    return drive_until_none(
        "get all that was sent", [this] { return mailbox_->finish(); }, end);
}

void World::part() {
    std::exception_ptr disagreement;
    {
        const Held held(*this);
        if (left_) return;
        if (!failure_ && neighbours_->arena() && size_ > 1) {
            // Of two ranks that leave after collectives in which neither waited, the second sees the first.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            for (const auto& group : groups_.all()) group->check_last();
            disagreement = failure_;
        }
        left_ = true;
        fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", name_))));
        links_->close();
    }
    membership_->flood({rendezvous::VerdictKind::left, rank_, {}});
    if (disagreement) std::rethrow_exception(disagreement);
}

void World::leave() {
    {
        const std::lock_guard lock(mutex_);
        if (left_) return;
    }
    finish(Deadline::never());
    part();
}

void World::leave(Group& group) {
    wait_for_collectives(&group, Deadline::never());
    {
        const Held held(*this);
        groups_.leave(group.index());
        if (!failure_) mailbox_->refuse_unmet();
    }
    drive_until_none(
        "receive a message", [&] { return awaited_receivers(&group); }, Deadline::never());
    const Held held(*this);
    const bool well = !failure_;
    if (well) group.check_last();
    groups_.forget(group.index());
    if (well && failure_) std::rethrow_exception(failure_);
}

// ---- The end of the program

void World::leave_all(std::chrono::milliseconds limit, const std::string& reason) noexcept {
    const Deadline end = Deadline::after(limit);
    for (const auto& world : all()) {
        try {
            {
                const std::lock_guard lock(world->mutex_);
                if (world->left_) continue;
            }
            if (!world->finish(end)) world->abort(reason);
            world->part();
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
        }
    }
}

// Once, before anything that a world uses is made. On a thread of its own: this one's variables have gone already.
void World::leave_at_exit() {
    struct AtExit {
        ~AtExit() {
            if (all().empty()) return;
            try {
                std::thread([] { leave_all(time_at_exit, "its program has ended"); }).join();
            } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then they learn that it is gone
            }
        }
    };
    static const AtExit once;
}

}  // namespace tutti::detail
