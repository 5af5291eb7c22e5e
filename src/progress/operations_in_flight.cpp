#include "progress/operations_in_flight.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "operation/recording.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace tutti::detail {
namespace {

// After the news of a death: as long as something moves, but survivors that keep sending to each other hear of it too.
constexpr std::chrono::milliseconds last_moves_max{100};
// After the news of a disagreement: until a library has ended calls that it cannot take back.
constexpr std::chrono::milliseconds last_calls_max{1000};

bool is_end_of_a_rank(const rendezvous::Verdict& verdict) {
    using rendezvous::VerdictKind;
    return verdict.kind == VerdictKind::peer_lost || verdict.kind == VerdictKind::host_lost ||
           verdict.kind == VerdictKind::left;
}

}  // namespace

OperationsInFlight::Guard::~Guard() {
    if (flight_.completed_.empty())
        flight_.mutex_.unlock();
    else
        flight_.completed_.deliver(flight_.mutex_);
}

OperationsInFlight::InFlight OperationsInFlight::any() const {
    TUTTI_ASSERT(active_.empty() || active_.front()->front() != nullptr);
    if (!active_.empty()) return {active_.front()->front(), &active_.front()->inquiry()};
    if (messages_.empty()) return {};
    return {messages_.front(), &messages_.front()->group->inquiry()};
}

Deadline OperationsInFlight::first_deadline(const Deadline& limit) const {
    Instant when = limit.when();
    for (const IssuedCollectives* collectives : active_) {
        if (const auto front = collectives->front()) when = std::min(when, front->deadline.when());
    }
    return Deadline::at(messages_.first_deadline(when));
}

std::shared_ptr<Operation> OperationsInFlight::collective_of(const Member* group) {
    const BiasedMutex::Lock lock(mutex_);
    for (const IssuedCollectives* active : active_) {
        if (group == nullptr || active->front()->group.get() == group) return active->front();
    }
    return nullptr;
}

// Other threads may have been anywhere: so this writes only the lock and the failure.
void OperationsInFlight::inherit(const std::exception_ptr& failure) noexcept {
    new (&mutex_) BiasedMutex;
    new (&failure_) std::exception_ptr(failure);
    failed_ = true;
}

void OperationsInFlight::activate(IssuedCollectives& collectives) {
    TUTTI_ASSERT(!failure_ && collectives.front() != nullptr);
    if (std::ranges::find(active_, &collectives) == active_.end()) active_.push_back(&collectives);
}

void OperationsInFlight::add(const std::shared_ptr<transport::Mailbox>& mailbox) {
    TUTTI_ASSERT(mailbox != nullptr);
    mailboxes_.add(mailbox);
    if (mailbox->has_threads()) has_threads_ = true;
}

void OperationsInFlight::post(const std::shared_ptr<Operation>& message) {
    TUTTI_ASSERT(!failure_ && message != nullptr && !message->done() && message->group != nullptr);
    messages_.add(message);
    transport::Transfer& transfer = message->transfer;
    const std::byte* at = message->is_receive ? transfer.target : transfer.source;
    if (ways_.huge_pages != nullptr && at != nullptr && transfer.bytes >= HugePages::least_bytes &&
        !ways_.neighbours->symmetric().find(at, transfer.bytes))
        ways_.huge_pages->used(at, transfer.bytes);
    TUTTI_ASSERT(at != nullptr || transfer.on_bytes || transfer.bytes == 0);
    if (message->is_receive)
        message->group->mailbox().post_receive(transfer);
    else
        message->group->mailbox().post_send(transfer);
    mailboxes_.heed();
}

OperationsInFlight::Share OperationsInFlight::native_share() const {
    bool some = messages_.use(*ways_.mailbox), all = messages_.use_only(*ways_.mailbox);
    for (const IssuedCollectives* one : active_) {
        const bool is_native = &one->mailbox_of_front() == ways_.mailbox;
        some |= is_native;
        all &= is_native;
    }
    TUTTI_ASSERT(!all || some || (active_.empty() && messages_.empty()));
    return !some ? Share::none : all ? Share::all : Share::some;
}

// ---- For the driver

bool OperationsInFlight::is_moved_by_threads() {
    if (!has_threads_) return false;
    const BiasedMutex::Lock lock(mutex_);
    if (active_.empty() && messages_.empty()) return false;
    return messages_.are_moved_by_threads() &&
           std::ranges::all_of(active_, [](IssuedCollectives* one) { return one->mailbox_of_front().has_threads(); });
}

bool OperationsInFlight::move() {
    const Guard guard(*this);
    return progress();
}

bool OperationsInFlight::is_busy() {
    const BiasedMutex::Lock lock(mutex_);
    return !active_.empty() || !messages_.empty();
}

bool OperationsInFlight::only_awaits_sockets() {
    const BiasedMutex::Lock lock(mutex_);
    return active_.empty() && !messages_.empty() && messages_.only_await_requests();
}

void OperationsInFlight::look_after() {
    const Guard guard(*this);
    check();
}

bool OperationsInFlight::has_failed() {
    const BiasedMutex::Lock lock(mutex_);
    return failure_ != nullptr;
}

void OperationsInFlight::pollables(std::vector<transport::Pollable>& into) {
    const BiasedMutex::Lock lock(mutex_);
    const Share native = native_share();
    // Those of a transport that nothing waits for would keep this rank from being woken by a change in memory.
    mailboxes_.pollables(into, native == Share::all ? Mailboxes::Which::own : Mailboxes::Which::all);
    for (const IssuedCollectives* collectives : active_) {
        if (const auto front = collectives->front(); front && front->run.execution)
            front->run.execution->pollables(into);
    }
    // Ranks that all share memory wake each other without descriptors, but not one that polls a transport's.
    if (!into.empty() && ways_.neighbours->are_all() && native != Share::none) into.push_back({-1, false});
}

void OperationsInFlight::end_of_thread() noexcept {
    try {
        verdicts_.abort("its progress thread has failed");
    } catch (const std::exception& error) {
        TUTTI_ERROR("{}", error.what());
    }
}

// ---- Progress

bool OperationsInFlight::take_connections() {
    const std::vector<int> arrived = ways_.links->take_arrived();
    for (const int peer : arrived) ways_.mailbox->activate(peer);
    if (const auto unreachable = ways_.links->take_unreachable()) {
        const auto& [peer, why] = *unreachable;
        verdicts_.hear(
            {rendezvous::VerdictKind::peer_lost, peer, fmt::format("rank {} cannot be reached: {}", peer, why)});
    }
    return !arrived.empty();
}

void OperationsInFlight::hear() {
    if (!verdicts_.health().has_news()) return;
    if (const auto cause = verdicts_.health().cause()) end_what_precedes(*cause);
    verdicts_.apply();
}

// News of a rank travel apart from its data, and overtake them while this rank does not look; and those of a
// disagreement reach ranks that are in a call of a library before it.
void OperationsInFlight::end_what_precedes(const rendezvous::Verdict& news) {
    const bool is_about_a_rank = is_end_of_a_rank(news);
    if (!is_about_a_rank && news.kind != rendezvous::VerdictKind::mismatch) return;
    const Deadline limit = Deadline::after(is_about_a_rank ? last_moves_max : last_calls_max);
    const auto has_to_end = [&](const IssuedCollectives* one) { return one->ends_before(news); };
    while (!failure_ && (is_about_a_rank || std::ranges::any_of(active_, has_to_end))) {
        const bool moved = move_all();
        if (limit.expired() || (is_about_a_rank && !moved)) return;
    }
}

bool OperationsInFlight::progress() {
    hear();
    return !failure_ && move_all();
}

bool OperationsInFlight::move_all() {
    bool moved = take_connections();
    moved |= progress_collectives();
    if (failure_) return true;
    if (mailboxes_.progress()) {
        moved = true;
        mailboxes_.heed();
        // The messages that have come may complete an operation: at once, without another look at the sockets.
        if (!failure_) progress_collectives();
    }
    if (failure_) return true;
    return messages_.end_done() || moved;
}

bool OperationsInFlight::progress_collectives() {
    bool moved = false;
    for (std::size_t i = 0; i < active_.size();) {
        IssuedCollectives& collectives = *active_[i];
        moved |= collectives.progress();
        if (failure_) return true;
        if (collectives.front() != nullptr)
            ++i;
        else
            active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return moved;
}

bool OperationsInFlight::run(engine::Running& execution) {
    TUTTI_ASSERT(!executing_);
    executing_ = true;
    bool moved = true;
    std::optional<std::string> broken;
    try {
        moved = execution.progress();
    } catch (const engine::StepFailed& error) {
        broken = error.what();
    }
    TUTTI_ASSERT(executing_);
    executing_ = false;
    mailboxes_.heed();
    if (deferred_) fail(std::exchange(deferred_, nullptr));
    if (broken && !failure_) verdicts_.fail_everywhere(*broken);
    return moved;
}

void OperationsInFlight::complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error) {
    TUTTI_ASSERT(operation != nullptr && !operation->done());
    if (!error && operation->finish) operation->finish();
    operation->complete(error);
    completed_.add(std::move(operation));
}

// ---- Failing

void OperationsInFlight::fail(const std::exception_ptr& error) {
    TUTTI_ASSERT(error != nullptr);
    if (failure_) return;
    if (executing_) {
        if (!deferred_) deferred_ = error;
        return;
    }
    TUTTI_ASSERT(!deferred_);
    messages_.end_done();  // messages that have been sent, or have come, succeeded
    failure_ = error;
    failed_ = true;
    if (ways_.neighbours != nullptr) ways_.neighbours->withdraw_offers();
    mailboxes_.drop_all();
    for (IssuedCollectives* collectives : std::exchange(active_, {})) collectives->drop(error);
    messages_.drop(error);
    TUTTI_ASSERT(active_.empty() && messages_.empty());
    for (const auto& group : groups_.all()) recording::failure(group->recorder(), group->ranks(), error);
}

void OperationsInFlight::check() {
    if (failure_) return;
    const Instant now = Clock::now();
    if (now < next_check_) return;
    next_check_ = now + std::chrono::milliseconds(10);
    TUTTI_ASSERT(last_check_ <= now);
    for (IssuedCollectives* collectives : active_) collectives->record_waits(last_check_, now);
    messages_.record_waits(last_check_, now);
    mailboxes_.record_unmatched();
    last_check_ = now;
    if (leaving_ || !check_messages(now) || !check_collectives(now)) return;
    if (active_.empty()) check_last_collectives();
}

bool OperationsInFlight::check_messages(Instant now) {
    if (const auto overdue = messages_.overdue(now)) {
        FailureInquiry& inquiry = overdue->group->inquiry();
        inquiry.time_out(*overdue, inquiry.peer_of(*overdue));
        return false;
    }
    for (const auto& message : messages_.in_vain()) {
        if (!message->is_receive) {
            messages_.give_up(message);
            continue;
        }
        // Messages of its peer from before it left may have come since this rank looked last.
        if (progress() || failure_ || message->done()) return false;
        Member& group = *message->group;
        const int peer = message->transfer.peer;
        group.inquiry().give_up(group.ranks().rank_of(peer), verdicts_.gone(peer, group.transport()));
        return false;
    }
    return true;
}

bool OperationsInFlight::check_collectives(Instant now) {
    checked_ = active_;
    for (IssuedCollectives* collectives : checked_) {
        if (collectives->front() == nullptr) continue;  // the look at another one has brought it to its end
        collectives->check_front(now);
        if (failure_) return false;
    }
    return true;
}

// Of the groups' last collectives, in which this rank may not have waited.
void OperationsInFlight::check_last_collectives() {
    std::vector<std::shared_ptr<Member>> groups = std::exchange(no_groups_, {});
    groups_.add_all(groups);
    for (const auto& group : groups) {
        group->collectives().check_last();
        if (failure_) return;
    }
    groups.clear();
    no_groups_ = std::move(groups);
}

}  // namespace tutti::detail
