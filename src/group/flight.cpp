#include "group/flight.hpp"

#include "core/log.hpp"
#include "core/per_thread.hpp"
#include "group/channel.hpp"
#include "group/group.hpp"
#include "group/recording.hpp"

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
constexpr std::size_t spare_messages_max = 4096;

bool is_end_of_a_rank(const rendezvous::Verdict& verdict) {
    using rendezvous::VerdictKind;
    return verdict.kind == VerdictKind::peer_lost || verdict.kind == VerdictKind::host_lost ||
           verdict.kind == VerdictKind::left;
}

using Completed = std::vector<std::shared_ptr<Operation>>;

// The memory of this thread's last list of completed operations, for its next one.
struct Spare {
    Completed list;
};

}  // namespace

Flight::Guard::~Guard() {
    if (flight_.completed_.empty()) {
        flight_.mutex_.unlock();
        return;
    }
    // Memory that changes hands: a callback may complete others, so each level has its own.
    Completed& spare = PerThread<Spare>::get().list;
    auto completed = std::exchange(flight_.completed_, std::exchange(spare, {}));
    flight_.mutex_.unlock();
    for (const auto& operation : completed) operation->run_continuations();
    completed.clear();
    spare = std::move(completed);
}

Flight::InFlight Flight::any() const {
    if (!active_.empty()) return {active_.front()->front(), &active_.front()->inquest()};
    if (messages_.empty()) return {};
    return {messages_.front(), &messages_.front()->group->inquest()};
}

Deadline Flight::first_deadline(const Deadline& limit) const {
    Instant when = limit.when();
    for (const Collectives* collectives : active_) {
        if (const auto front = collectives->front()) when = std::min(when, front->deadline.when());
    }
    for (const auto& message : messages_) when = std::min(when, message->deadline.when());
    return Deadline::at(when);
}

std::shared_ptr<Operation> Flight::collective_of(const Group* group) {
    const std::lock_guard lock(mutex_);
    for (const Collectives* active : active_) {
        if (group == nullptr || active->front()->group.get() == group) return active->front();
    }
    return nullptr;
}

// Other threads may have been anywhere: so this writes only the lock and the failure.
void Flight::inherit(const std::exception_ptr& failure) noexcept {
    new (&mutex_) BiasedMutex;
    new (&failure_) std::exception_ptr(failure);
}

void Flight::activate(Collectives& collectives) {
    if (std::ranges::find(active_, &collectives) == active_.end()) active_.push_back(&collectives);
}

void Flight::post(const std::shared_ptr<Operation>& message) {
    keep(message);
    transport::Transfer& transfer = message->transfer;
    const std::byte* at = message->is_receive ? transfer.target : transfer.source;
    if (ways_.huge_pages != nullptr && at != nullptr && transfer.bytes >= HugePages::least_bytes &&
        !ways_.neighbours->symmetric().find(at, transfer.bytes))
        ways_.huge_pages->used(at, transfer.bytes);
    if (message->is_receive)
        message->group->mailbox().post_receive(transfer);
    else
        message->group->mailbox().post_send(transfer);
    heed_mailboxes();
}

// ---- Mailboxes

template <class F>
void Flight::for_each_mailbox(F f) {
    f(*ways_.mailbox);
    for (const auto& other : others_) {
        if (const auto mailbox = other.lock()) f(*mailbox);
    }
}

void Flight::add(const std::shared_ptr<transport::Mailbox>& mailbox) {
    const std::lock_guard lock(mutex_);
    std::erase_if(others_, [](const auto& other) { return other.expired(); });
    others_.push_back(mailbox);
}

void Flight::refuse_unmet() {
    for_each_mailbox([](transport::Mailbox& mailbox) { mailbox.refuse_unmet(); });
}

std::vector<int> Flight::finish() {
    std::vector<int> late;
    for_each_mailbox([&](transport::Mailbox& mailbox) {
        for (const int peer : mailbox.finish()) {
            if (std::ranges::find(late, peer) == late.end()) late.push_back(peer);
        }
    });
    return late;
}

// Whether something is in flight whose bytes the world's own streams and memory carry.
bool Flight::has_native() const {
    return std::ranges::any_of(active_, [&](Collectives* one) { return &one->mailbox() == ways_.mailbox; }) ||
           std::ranges::any_of(messages_, [&](const auto& one) { return &one->group->mailbox() == ways_.mailbox; });
}

// ---- For the driver

bool Flight::move() {
    const Guard guard(*this);
    return progress();
}

bool Flight::is_busy() {
    const std::lock_guard lock(mutex_);
    return !active_.empty() || !messages_.empty();
}

void Flight::look_after() {
    const Guard guard(*this);
    check();
}

bool Flight::has_failed() {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
}

void Flight::pollables(std::vector<transport::Pollable>& into) {
    into.clear();
    const std::lock_guard lock(mutex_);
    for_each_mailbox([&](const transport::Mailbox& mailbox) {
        mailbox.pollables(of_mailbox_);
        into.insert(into.end(), of_mailbox_.begin(), of_mailbox_.end());
    });
    for (const Collectives* collectives : active_) {
        if (const auto front = collectives->front(); front && front->run.execution)
            front->run.execution->pollables(into);
    }
    // Ranks that all share memory wake each other without descriptors, but not one that polls a transport's.
    if (!into.empty() && ways_.neighbours->are_all() && has_native()) into.push_back({-1, false});
}

void Flight::end_of_thread() noexcept {
    try {
        verdicts_.abort("its progress thread has failed");
    } catch (const std::exception& error) {
        TUTTI_ERROR("{}", error.what());
    }
}

// ---- Progress

bool Flight::take_connections() {
    const std::vector<int> arrived = ways_.links->take_arrived();
    for (const int peer : arrived) ways_.mailbox->activate(peer);
    if (const auto unreachable = ways_.links->take_unreachable()) {
        const auto& [peer, why] = *unreachable;
        verdicts_.hear(
            {rendezvous::VerdictKind::peer_lost, peer, fmt::format("rank {} cannot be reached: {}", peer, why)});
    }
    return !arrived.empty();
}

void Flight::hear() {
    if (!verdicts_.health().has_news()) return;
    if (const auto cause = verdicts_.health().cause(); cause && is_end_of_a_rank(*cause)) take_what_has_come();
    verdicts_.apply();
}

// News of a rank travel apart from its data, and overtake them while this rank does not look.
void Flight::take_what_has_come() {
    const Deadline limit = Deadline::after(last_moves_max);
    while (!failure_ && move_all() && !limit.expired()) {
    }
}

bool Flight::progress() {
    hear();
    return !failure_ && move_all();
}

bool Flight::move_all() {
    bool moved = take_connections();
    moved |= progress_collectives();
    if (failure_) return true;
    bool mail = false;
    for_each_mailbox([&](transport::Mailbox& mailbox) { mail |= mailbox.progress(); });
    if (mail) {
        moved = true;
        heed_mailboxes();
        // The messages that have come may complete an operation: at once, without another look at the sockets.
        if (!failure_) progress_collectives();
    }
    if (failure_) return true;
    return progress_messages() || moved;
}

bool Flight::progress_collectives() {
    bool moved = false;
    for (std::size_t i = 0; i < active_.size();) {
        Collectives& collectives = *active_[i];
        moved |= collectives.progress();
        if (failure_) return true;
        if (collectives.front() != nullptr)
            ++i;
        else
            active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return moved;
}

bool Flight::progress_messages() {
    bool moved = false;
    for (auto it = messages_.begin(); it != messages_.end();) {
        if (!(*it)->transfer.done) {
            ++it;
            continue;
        }
        const std::shared_ptr<Operation> operation = std::move(*it);
        it = remove(it);
        operation->group->end(operation, nullptr);
        moved = true;
    }
    return moved;
}

void Flight::keep(const std::shared_ptr<Operation>& message) {
    if (spare_messages_.empty()) return messages_.push_back(message);
    spare_messages_.front() = message;
    messages_.splice(messages_.end(), spare_messages_, spare_messages_.begin());
}

Flight::Messages::iterator Flight::remove(Messages::iterator message) {
    const auto next = std::next(message);
    if (spare_messages_.size() >= spare_messages_max) return messages_.erase(message);
    message->reset();
    spare_messages_.splice(spare_messages_.begin(), messages_, message);
    return next;
}

bool Flight::run(engine::Running& execution) {
    executing_ = true;
    bool moved = true;
    std::optional<std::string> broken;
    try {
        moved = execution.progress();
    } catch (const engine::StepFailed& error) {
        broken = error.what();
    }
    executing_ = false;
    heed_mailboxes();
    if (deferred_) fail(std::exchange(deferred_, nullptr));
    if (broken && !failure_) verdicts_.fail_everywhere(*broken);
    return moved;
}

void Flight::complete(std::shared_ptr<Operation> operation, const std::exception_ptr& error) {
    if (!error && operation->finish) operation->finish();
    operation->complete(error);
    completed_.push_back(std::move(operation));
}

// ---- Findings of mailboxes

void Flight::heed_mailboxes() {
    for_each_mailbox([this](transport::Mailbox& mailbox) { heed(mailbox); });
}

void Flight::heed(transport::Mailbox& mailbox) {
    using Kind = transport::Finding::Kind;
    if (!mailbox.has_findings()) return;
    for (const transport::Finding& finding : mailbox.take_findings()) {
        switch (finding.kind) {
            case Kind::mismatch: mismatch(finding); break;
            case Kind::damaged: verdicts_.tell_of_damage(finding.peer, finding.what); break;
            case Kind::left_group: groups_.note_left(Channel::group(finding.channel), finding.peer); break;
        }
    }
}

void Flight::mismatch(const transport::Finding& finding) {
    const auto group = groups_.find(Channel::group(finding.channel));
    if (!group) return;
    const int from = group->rank_of(finding.peer);
    const std::uint64_t sequence = Channel::sequence(finding.channel);
    if (finding.theirs == finding.mine)
        return group->inquest().mismatch_of_blocks(from, sequence, finding.mine, finding.their_bytes, finding.my_bytes);
    group->inquest().mismatch(from, sequence, finding.theirs, finding.mine);
}

// ---- Failing

void Flight::fail(const std::exception_ptr& error) {
    if (failure_) return;
    if (executing_) {
        if (!deferred_) deferred_ = error;
        return;
    }
    progress_messages();  // messages that have been sent, or have come, succeeded
    failure_ = error;
    if (ways_.neighbours != nullptr) ways_.neighbours->withdraw_offers();
    if (ways_.mailbox != nullptr) for_each_mailbox([](transport::Mailbox& mailbox) { mailbox.drop_all(); });
    for (Collectives* collectives : std::exchange(active_, {})) collectives->drop(error);
    for (const auto& operation : std::exchange(messages_, {})) operation->group->end(operation, error);
    for (const auto& group : groups_.all()) recording::failure(group->recorder(), group->ranks(), error);
}

void Flight::check() {
    if (failure_) return;
    const Instant now = Clock::now();
    if (now < next_check_) return;
    next_check_ = now + std::chrono::milliseconds(10);
    record_waits(now);
    if (leaving_) return;
    std::vector<std::shared_ptr<Operation>> in_vain;
    for (const auto& operation : messages_) {
        Group& group = *operation->group;
        if (operation->deadline.expired(now))
            return group.inquest().time_out(*operation, group.inquest().peer_of(*operation));
        if (is_in_vain(*operation)) in_vain.push_back(operation);
    }
    for (const auto& operation : in_vain) {
        if (!operation->is_receive) {
            give_up(operation);
            continue;
        }
        // Messages of its peer from before it left may have come since this rank looked last.
        if (progress() || failure_ || operation->done()) return;
        Group& group = *operation->group;
        const int peer = operation->transfer.peer;
        return group.inquest().give_up(group.rank_of(peer), verdicts_.gone(peer, group.backends().transport()));
    }
    checked_ = active_;
    for (Collectives* collectives : checked_) {
        if (collectives->front() == nullptr) continue;  // the look at another one has brought it to its end
        collectives->check_front(now);
        if (failure_) return;
    }
    if (!active_.empty()) return;
    // Their last collectives, in which this rank may not have waited.
    std::vector<std::shared_ptr<Group>> groups = std::exchange(no_groups_, {});
    groups_.add_all(groups);
    for (const auto& group : groups) {
        group->collectives().check_last();
        if (failure_) return;
    }
    groups.clear();
    no_groups_ = std::move(groups);
}

void Flight::record_waits(Instant now) {
    for (Collectives* collectives : active_) collectives->record_waits(last_check_, now);
    for (const auto& operation : messages_) {
        if (operation->transfer.peer < 0) continue;
        Group& group = *operation->group;
        const int peer = group.rank_of(operation->transfer.peer);
        recording::waits(group.recorder(), *operation, {&peer, 1}, last_check_, now);
    }
    last_check_ = now;
}

// Whether the other side of a message has left without it, as far as this rank has looked.
bool Flight::is_in_vain(const Operation& message) const {
    const transport::Transfer& transfer = message.transfer;
    if (transfer.done || transfer.peer < 0 || transfer.peer == verdicts_.rank()) return false;
    return transfer.refused || verdicts_.gone(transfer.peer, message.group->backends().transport()).has_value();
}

// Its receiver has left without it, which concerns no other rank: the streams are as they were.
void Flight::give_up(const std::shared_ptr<Operation>& send) {
    send->group->mailbox().cancel_send(send->transfer);
    std::erase(messages_, send);
    ErrorContext context = send->group->inquest().context_of(*send);
    context.peer = send->transfer.peer;
    send->group->end(send, std::make_exception_ptr(
                               PeerLost(fmt::format("{}: rank {} has left the group, and has not received this message",
                                                    send->group->inquest().title_of(*send), context.peer),
                                        std::move(context))));
}

std::vector<int> Flight::awaited_receivers(const Group* group) {
    std::vector<int> awaited;
    for (auto it = messages_.begin(); it != messages_.end();) {
        const std::shared_ptr<Operation> message = *it++;
        transport::Transfer& transfer = message->transfer;
        if ((group != nullptr && message->group.get() != group) || transfer.done) continue;
        const bool in_vain = is_in_vain(*message);
        if (!message->is_receive && (transfer.peer == verdicts_.rank() || in_vain)) {
            give_up(message);
        } else if (message->is_receive && message->group->mailbox().cancel_receive(transfer)) {
            std::erase(messages_, message);
            message->group->end(
                message,
                std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", message->group->name()))));
        } else if (!in_vain) {
            awaited.push_back(transfer.peer);
        }
    }
    return awaited;
}

}  // namespace tutti::detail
