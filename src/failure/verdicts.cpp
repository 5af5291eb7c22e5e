#include "failure/verdicts.hpp"

#include "core/assert.hpp"
#include "core/socket.hpp"
#include "operation/group_table.hpp"
#include "operation/member.hpp"
#include "rendezvous/failure_report.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::detail {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

namespace {

// Until all that can be reached have heard of an accusation, and until the rank that judges has done so.
constexpr std::chrono::milliseconds hearing_patience{2000}, judgement_patience{3000};

}  // namespace

void Verdicts::hear(const Verdict& verdict) {
    if (rendezvous::is_accusation(verdict.kind)) {
        if (const auto group = groups_.find(verdict.group)) group->inquiry().publish_tail(verdict.text);
    }
    health_.hear(verdict);
}

void Verdicts::tell(const Verdict& verdict, bool here) {
    TUTTI_ASSERT(verdict.rank < size_);
    if (here && !health_.blame(verdict)) return;
    membership_->flood(verdict);
}

std::optional<Verdict> Verdicts::gone(int peer, ForeignStreams* transport) const {
    TUTTI_ASSERT(peer >= 0 && peer < size_ && (transport != nullptr || (links_ != nullptr && mailbox_ != nullptr)));
    const transport::Mailbox& mailbox = transport != nullptr ? transport->mailbox() : *mailbox_;
    const auto is_connected = [&] {  // or may have connected before it left
        if (transport != nullptr) return transport->is_connected(peer);
        return links_->is_connected(peer) || !health_.has_said_goodbye(peer) || !links_->has_taken_all(peer);
    };
    return health_.gone(peer, mailbox.end_of(peer), mailbox.is_over(peer) || !is_connected(), Clock::now());
}

std::vector<int> Verdicts::departed() const {
    TUTTI_ASSERT(mailbox_ != nullptr);
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
        const transport::StreamEnd* end = mailbox_->end_of(rank);
        if (health_.has_said_goodbye(rank) || (end != nullptr && end->broken.empty())) ranks.push_back(rank);
    }
    return ranks;
}

void Verdicts::fail(const std::exception_ptr& error) {
    TUTTI_ASSERT(error != nullptr);
    if (membership_ != nullptr && !in_flight_.failing())  // else this rank has yet to join
        rendezvous::report_failure(error, rank_, size_, membership_->cards());
    in_flight_.fail(error);
}

bool Verdicts::failing() const {
    return in_flight_.failing();
}

void Verdicts::tell_of_failed_join(const std::exception& error) {
    TUTTI_ASSERT(membership_ != nullptr);
    membership_->flood(
        {VerdictKind::aborted, rank_, fmt::format("rank {} failed while joining: {}", rank_, error.what())});
}

bool Verdicts::accuse(const Verdict& accusation) {
    TUTTI_ASSERT(rendezvous::is_accusation(accusation.kind) && accusation.from == rank_);
    if (!membership_->flood(accusation)) return false;
    return health_.is_judge_of(
        accusation, [this] { return membership_->settled(); }, Deadline::after(hearing_patience));
}

void Verdicts::fail_as_told(ErrorContext context) {
    const Verdict told = health_.await_judgement(Deadline::after(judgement_patience));
    context.rank = rank_;
    context.peer = told.rank;
    if (const auto group = groups_.find(told.group)) return group->inquiry().fail_as_told(told, context);
    const auto judgement = record::read_judgement(told.text);
    const std::string text = fmt::format(
        "group \"{}\" ({} ranks): a group of other ranks has failed, and with it the "
        "world: {}",
        group_, size_, judgement ? judgement->text : told.text);
    const bool disagreement = judgement ? judgement->disagreement : told.kind == VerdictKind::mismatch;
    if (disagreement) return fail(std::make_exception_ptr(CollectiveMismatch(text, context)));
    fail(std::make_exception_ptr(Timeout(text, context)));
}

void Verdicts::apply() {
    const Verdict verdict = health_.take_news();
    if (in_flight_.failure()) return;
    std::string title = fmt::format("group \"{}\" ({} ranks)", group_, size_);
    ErrorContext context;
    // This rank's operation in flight, in the group of that operation.
    if (const auto [disturbed, inquiry] = in_flight_.any(); disturbed) {
        title = inquiry->title_of(*disturbed);
        context = inquiry->context_of(*disturbed);
    }
    if (context.group.empty()) context.group = group_;
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

void Verdicts::tell_of_damage(int from, const std::string& what) {
    TUTTI_ASSERT(from >= 0 && from < size_ && from != rank_);
    const auto host_of = [this](int rank) { return membership_->cards()[static_cast<std::size_t>(rank)].host_name; };
    tell({VerdictKind::damaged, from,
          fmt::format("what rank {} (host {}) sent to rank {} (host {}) over TCP was changed on the way: {}", from,
                      host_of(from), rank_, host_of(rank_), what)},
         true);
}

void Verdicts::fail_everywhere(const std::string& reason) {
    TUTTI_ASSERT(!reason.empty());
    tell({VerdictKind::aborted, rank_, reason}, true);
    apply();  // this verdict, or the one that came before
}

void Verdicts::abort(const std::string& reason) {
    membership_->flood({VerdictKind::aborted, rank_, reason});
    const auto error = std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was aborted: {}", group_, reason),
                                                       {.group = group_, .rank = rank_, .peer = rank_}));
    in_flight_.with_lock([&] { fail(error); });
    TUTTI_ASSERT(in_flight_.failure() != nullptr);
    for (const auto& group : groups_.all()) group->end_handed_over(in_flight_.failure());
}

bool Verdicts::is_deaf(int rank) const {
    TUTTI_ASSERT(rank >= 0 && rank < size_ && rank != rank_);
    const rendezvous::Card& card = membership_->cards()[static_cast<std::size_t>(rank)];
    return net::refuses({card.listen_host, card.listen_port}, Deadline::after(std::chrono::milliseconds(100)));
}

}  // namespace tutti::detail
