#include "world/departure.hpp"

#include "core/assert.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "failure/verdicts.hpp"
#include "operation/group_table.hpp"
#include "operation/member.hpp"
#include "progress/driver.hpp"
#include "progress/operations_in_flight.hpp"

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
bool Departure::wait_for_collectives(const Member* group, const Deadline& limit) {
    for (;;) {
        const std::shared_ptr<Operation> pending = flight_.collective_of(group);
        if (!pending) return true;
        try {
            pending->group->wait(*pending, limit);
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
    TUTTI_ASSERT(what != nullptr && awaited != nullptr);
    const Driver::Scope driving(driver_);
    std::vector<int> ranks;
    const Patience patience([&] {
        return fmt::format("{} to {}, before rank {} leaves group \"{}\"", rank_list(ranks), what, rank_, world_);
    });
    for (int idle = 0;; ++idle) {
        {
            const OperationsInFlight::Guard guard(flight_);
            const bool moved = flight_.progress();
            if (flight_.failure()) return true;
            ranks = awaited();
            if (ranks.empty()) return true;
            flight_.check();
            if (moved) idle = 0;
        }
        if (limit.expired() || interrupt_requested()) {
            TUTTI_WARN("group {}: rank {} leaves without waiting for {} to {}", world_, rank_, rank_list(ranks), what);
            return false;
        }
        patience::look();
        driver_.pause(idle + 1, std::chrono::milliseconds(idle < long_idle ? 1 : 10));
    }
}

// False: something has not ended in time.
bool Departure::finish(const Deadline& limit) {
    if (!wait_for_collectives(nullptr, limit)) return false;
    const Deadline end = earlier(limit, Deadline::after(timeout_));
    {
        const OperationsInFlight::Guard guard(flight_);
        if (flight_.failure()) return true;
        flight_.leave();
        groups_.leave_all();
        flight_.mailboxes().refuse_unmet();
    }
    if (!drive_until_none(
            "receive a message", [this] { return flight_.messages().awaited_receivers(nullptr); }, end))
        return false;
    {
        const std::lock_guard lock(flight_.mutex());
        flight_.links().stop_connecting();
    }
    return drive_until_none(
        "get all that was sent", [this] { return flight_.mailboxes().finish(); }, end);
}

void Departure::part() {
    std::exception_ptr disagreement;
    {
        const OperationsInFlight::Guard guard(flight_);
        if (left_) return;
        if (!flight_.failure()) {
            // Of two ranks that leave after collectives in which neither waited, the second sees the first.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            for (const auto& group : groups_.all()) group->collectives().check_last();
            disagreement = flight_.failure();
        }
        TUTTI_ASSERT(!left_);
        left_ = true;
        flight_.fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", world_))));
        TUTTI_ASSERT(flight_.failure() != nullptr);
        flight_.links().close();
    }
    membership_->flood({rendezvous::VerdictKind::left, rank_, {}});
    TUTTI_ASSERT(membership_ != nullptr);
    if (disagreement) std::rethrow_exception(disagreement);
}

bool Departure::is_over() {
    const std::lock_guard lock(flight_.mutex());
    return left_;
}

void Departure::leave() {
    if (is_over()) return;
    finish(Deadline::never());
    part();
}

void Departure::leave_by(const Deadline& limit, const std::string& reason) {
    if (is_over()) return;
    if (!finish(limit)) verdicts_.abort(reason);
    part();
}

void Departure::close() {
    TUTTI_ASSERT(membership_ != nullptr);
    membership_->leave();
}

void Departure::leave(Member& group) {
    wait_for_collectives(&group, Deadline::never());
    {
        const OperationsInFlight::Guard guard(flight_);
        groups_.leave(group.index());
        if (!flight_.failure()) group.mailbox().refuse_unmet();
    }
    drive_until_none(
        "receive a message", [&] { return flight_.messages().awaited_receivers(&group); }, Deadline::never());
    if (group.transport() != nullptr) {
        drive_until_none(
            "get all that was sent", [&] { return group.mailbox().finish(); }, Deadline::after(timeout_));
    }
    const OperationsInFlight::Guard guard(flight_);
    const bool well = !flight_.failure();
    if (well) group.collectives().check_last();
    groups_.forget(group.index());
    if (well && flight_.failure()) std::rethrow_exception(flight_.failure());
}

}  // namespace tutti::detail
