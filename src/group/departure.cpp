#include "group/departure.hpp"

#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::detail {
namespace {

constexpr int long_idle = 400;  // turns in vain after which it looks more seldom

Deadline earlier(const Deadline& a, const Deadline& b) {
    return a.when() < b.when() ? a : b;
}

}  // namespace

// Of one group, or of all. False: the time ran out. Ends at the first failure: then there is nothing more to wait for.
bool Departure::wait_for_collectives(const Group* group, const Deadline& limit) {
    for (;;) {
        const std::shared_ptr<Operation> pending = world_.flight().collective_of(group);
        if (!pending) return true;
        try {
            world_.wait(*pending, limit);
        } catch (const DistError& error) {
            if (error.code() == ErrorCode::interrupted) request_interrupt();  // the caller shall hear of it
            return pending->done();
        }
    }
}

// Drives until `awaited`, which is asked under the lock, names no rank that has still to do `what`. False: the time ran
// out, or a signal came.
bool Departure::drive_until_none(const char* what, const std::function<std::vector<int>()>& awaited,
                                 const Deadline& limit) {
    const Driver::Scope driving(world_.driver());
    std::vector<int> ranks;
    const Patience patience([&] {
        return fmt::format("{} to {}, before rank {} leaves group \"{}\"", rank_list(ranks), what, world_.rank(),
                           world_.name());
    });
    for (int idle = 0;; ++idle) {
        {
            const Flight::Guard guard(world_.flight());
            const bool moved = world_.flight().progress();
            if (world_.flight().failure()) return true;
            ranks = awaited();
            if (ranks.empty()) return true;
            world_.flight().check();
            if (moved) idle = 0;
        }
        if (limit.expired() || interrupt_requested()) {
            TUTTI_WARN("group {}: rank {} leaves without waiting for {} to {}", world_.name(), world_.rank(),
                       rank_list(ranks), what);
            return false;
        }
        patience::look();
        world_.driver().pause(idle + 1, std::chrono::milliseconds(idle < long_idle ? 1 : 10));
    }
}

// False: something has not ended in time.
bool Departure::finish(const Deadline& limit) {
    if (!wait_for_collectives(nullptr, limit)) return false;
    const Deadline end = earlier(limit, Deadline::after(world_.setup().timeout));
    {
        const Flight::Guard guard(world_.flight());
        if (world_.flight().failure()) return true;
        world_.flight().leave();
        world_.groups().leave_all();
        world_.flight().mailboxes().refuse_unmet();
    }
    if (!drive_until_none(
            "receive a message", [this] { return world_.flight().messages().awaited_receivers(nullptr); }, end))
        return false;
    {
        const std::lock_guard lock(world_.flight().mutex());
        world_.links().stop_connecting();
    }
    return drive_until_none(
        "get all that was sent", [this] { return world_.flight().mailboxes().finish(); }, end);
}

void Departure::part() {
    std::exception_ptr disagreement;
    {
        const Flight::Guard guard(world_.flight());
        if (left_) return;
        if (!world_.flight().failure() && world_.neighbours().arena() && world_.size() > 1) {
            // Of two ranks that leave after collectives in which neither waited, the second sees the first.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            for (const auto& group : world_.groups().all()) group->collectives().check_last();
            disagreement = world_.flight().failure();
        }
        left_ = true;
        world_.flight().fail(
            std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", world_.name()))));
        world_.links().close();
    }
    membership_->flood({rendezvous::VerdictKind::left, world_.rank(), {}});
    if (disagreement) std::rethrow_exception(disagreement);
}

bool Departure::is_over() {
    const std::lock_guard lock(world_.flight().mutex());
    return left_;
}

void Departure::leave() {
    if (is_over()) return;
    finish(Deadline::never());
    part();
}

void Departure::leave_by(const Deadline& limit, const std::string& reason) {
    if (is_over()) return;
    if (!finish(limit)) world_.abort(reason);
    part();
}

void Departure::close() {
    membership_->leave();
}

void Departure::leave(Group& group) {
    wait_for_collectives(&group, Deadline::never());
    {
        const Flight::Guard guard(world_.flight());
        world_.groups().leave(group.index());
        if (!world_.flight().failure()) group.mailbox().refuse_unmet();
    }
    drive_until_none(
        "receive a message", [&] { return world_.flight().messages().awaited_receivers(&group); }, Deadline::never());
    if (group.backends().transport() != nullptr) {
        drive_until_none(
            "get all that was sent", [&] { return group.mailbox().finish(); }, Deadline::after(world_.setup().timeout));
    }
    const Flight::Guard guard(world_.flight());
    const bool well = !world_.flight().failure();
    if (well) group.collectives().check_last();
    world_.groups().forget(group.index());
    if (well && world_.flight().failure()) std::rethrow_exception(world_.flight().failure());
}

}  // namespace tutti::detail
