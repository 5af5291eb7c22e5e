// What others say, what the mailbox finds, and failures.
#include "core/log.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::detail {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

namespace {

// Until all that can be reached have heard of an accusation, and until the rank that judges has done so.
constexpr std::chrono::milliseconds hearing_patience{2000}, judgement_patience{3000};

}  // namespace

// ---- What the mailbox has found

void World::heed_mailbox() {
    using Kind = transport::Finding::Kind;
    if (!mailbox_->has_findings()) return;
    for (const transport::Finding& finding : mailbox_->take_findings()) {
        switch (finding.kind) {
            case Kind::mismatch: mismatch(finding); break;
            case Kind::damaged: damaged(finding); break;
            case Kind::left_group: groups_.note_left(Channel::group(finding.channel), finding.peer); break;
        }
    }
}

void World::mismatch(const transport::Finding& finding) {
    const auto group = groups_.find(Channel::group(finding.channel));
    if (!group) return;
    const int from = group->rank_of(finding.peer);
    const std::uint64_t sequence = Channel::sequence(finding.channel);
    if (finding.theirs == finding.mine)
        return group->mismatch_of_blocks(from, sequence, finding.mine, finding.their_bytes, finding.my_bytes);
    group->mismatch(from, sequence, finding.theirs, finding.mine);
}

void World::damaged(const transport::Finding& finding) {
    const auto host_of = [this](int rank) { return membership_->cards()[static_cast<std::size_t>(rank)].host_name; };
    const int from = finding.peer;
    tell({VerdictKind::damaged, from,
          fmt::format("what rank {} (host {}) sent to rank {} (host {}) over TCP was changed on the way: {}", from,
                      host_of(from), rank_, host_of(rank_), finding.what)},
         true);
}

// ---- What others say

void World::on_verdict(const Verdict& verdict) {
    if (rendezvous::is_accusation(verdict.kind)) {
        if (const auto group = groups_.find(verdict.group)) group->publish_tail(verdict.text);
    }
    health_.hear(verdict);
}

void World::tell(const Verdict& verdict, bool here) {
    if (here && !health_.blame(verdict)) return;
    membership_->flood(verdict);
}

std::optional<Verdict> World::gone(int peer) const {
    return health_.gone(peer, mailbox_->end_of(peer), !links_->is_connected(peer) || mailbox_->is_over(peer),
                        Clock::now());
}

std::vector<int> World::departed() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
        const transport::StreamEnd* end = mailbox_->end_of(rank);
        if (health_.has_said_goodbye(rank) || (end != nullptr && end->broken.empty())) ranks.push_back(rank);
    }
    return ranks;
}

bool World::accuse(const Verdict& accusation) {
    if (!membership_->flood(accusation)) return false;
    return health_.is_judge_of(
        accusation, [this] { return membership_->settled(); }, Deadline::after(hearing_patience));
}

void World::fail_as_told(ErrorContext context) {
    const Verdict told = health_.await_judgement(Deadline::after(judgement_patience));
    context.rank = rank_;
    context.peer = told.rank;
    if (const auto group = groups_.find(told.group)) return group->fail_as_told(told, context);
    const auto judgement = record::read_judgement(told.text);
    const std::string text = fmt::format(
        "group \"{}\" ({} ranks): a group of other ranks has failed, and with it the "
        "world: {}",
        name_, size_, judgement ? judgement->text : told.text);
    const bool disagreement = judgement ? judgement->disagreement : told.kind == VerdictKind::mismatch;
    if (disagreement) return fail(std::make_exception_ptr(CollectiveMismatch(text, context)));
    fail(std::make_exception_ptr(Timeout(text, context)));
}

std::vector<int> World::gone_for_good() const {
    return health_.gone_for_good(membership_->cards());
}

void World::apply_verdict() {
    const Verdict verdict = health_.take_news();
    if (failure_) return;
    std::string title = fmt::format("group \"{}\" ({} ranks)", name_, size_);
    ErrorContext context;
    // What this rank has in flight, in the group in which it is.
    std::shared_ptr<Operation> disturbed;
    if (!active_.empty())
        disturbed = active_.front()->front();
    else if (!messages_.empty())
        disturbed = messages_.front();
    if (disturbed) {
        title = disturbed->group->title_of(*disturbed);
        context = disturbed->group->context_of(*disturbed);
    }
    if (context.group.empty()) context.group = name_;
    context.rank = rank_;
    context.peer = verdict.rank;
    switch (verdict.kind) {
        case VerdictKind::mismatch:
        case VerdictKind::timed_out: return fail_as_told(context);
        case VerdictKind::aborted:
            return fail(std::make_exception_ptr(
                Aborted(fmt::format("{}: aborted by rank {}: {}", title, verdict.rank, verdict.text), context)));
        case VerdictKind::damaged:
            return fail(std::make_exception_ptr(
                DistBackendError(fmt::format("{}: {}", title, verdict.text), context, ErrorCode::network)));
        case VerdictKind::peer_lost:
        case VerdictKind::host_lost:
        case VerdictKind::left:
            return fail(std::make_exception_ptr(PeerLost(fmt::format("{}: {}", title, verdict.text), context)));
        case VerdictKind::silent:
        case VerdictKind::judged: return;  // they are not a verdict by themselves
    }
}

// ---- Failing

void World::fail(const std::exception_ptr& error) {
    if (failure_) return;
    if (executing_) {
        if (!deferred_) deferred_ = error;
        return;
    }
    progress_messages();  // what has been sent, or has come, succeeded
    failure_ = error;
    if (neighbours_) neighbours_->withdraw_offers();
    if (mailbox_) mailbox_->drop_all();
    for (Group* group : std::exchange(active_, {})) group->drop(error);
    for (auto& operation : std::exchange(messages_, {})) complete(operation, error);
    for (const auto& group : groups_.all()) group->record_failure(error);
}

void World::abort(const std::string& reason) {
    if (inherited_) std::rethrow_exception(failure_);
    membership_->flood({VerdictKind::aborted, rank_, reason});
    {
        const Held held(*this);
        fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was aborted: {}", name_, reason))));
    }
    for (const auto& group : groups_.all()) group->end_backends(failure_);
}

bool World::end(const std::string& reason) {
    if (inherited_) std::rethrow_exception(failure_);
    {
        const Held held(*this);
        if (left_) return false;
        progress();  // a verdict that nobody has looked at is the cause
        if (failure_) return true;
    }
    abort(reason);
    return true;
}

}  // namespace tutti::detail
