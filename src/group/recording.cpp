// The group's reports to the recorder, and the joint report of the ranks when an operation does not end.
#include "group/group.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <numeric>

namespace tutti::detail {
namespace {

using record::Kind;

std::uint64_t bytes_of(const algorithm::Request& r) {
    const auto sum = [](const auto& counts) { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); };
    const auto rank = static_cast<std::size_t>(r.rank);
    switch (r.collective) {
        case Collective::all_to_all: return sum(r.send_counts) * r.element_bytes;
        case Collective::reduce_scatter: return sum(r.counts) * r.element_bytes;
        default: return (rank < r.counts.size() ? r.counts[rank] : r.count) * r.element_bytes;
    }
}

// As metrics name it.
const char* cause_of(const std::exception& error) {
    if (dynamic_cast<const Timeout*>(&error) != nullptr) return "timeout";
    if (dynamic_cast<const PeerLost*>(&error) != nullptr) return "peer_lost";
    if (dynamic_cast<const CollectiveMismatch*>(&error) != nullptr) return "mismatch";
    if (dynamic_cast<const Aborted*>(&error) != nullptr) return "aborted";
    return "other";
}

}  // namespace

record::Ticket Group::record_call(const Operation& operation) {
    if (!operation.is_collective) {
        const transport::Transfer& transfer = operation.transfer;
        const int peer = transfer.peer < 0 ? transfer.peer : rank_of(transfer.peer);
        const Kind kind = operation.is_receive ? Kind::receive : Kind::send;
        return recorder_.begin({.sequence = recorder_.number_message(kind, peer),
                                .fingerprint = transfer.fingerprint,
                                .bytes = transfer.bytes,
                                .peer = peer,
                                .kind = kind},
                               record::State::started);
    }
    const algorithm::Request& request = operation.request;
    const record::Ticket ticket = recorder_.begin({.sequence = operation.sequence,
                                                   .fingerprint = operation.operands.fingerprint,
                                                   .bytes = bytes_of(request),
                                                   .peer = recorded_root(request.collective, request.root),
                                                   .kind = recorded_kind(request.collective)},
                                                  record::State::enqueued);
    if (request.collective == Collective::all_to_all && recorder_.keeps_splits())
        recorder_.note_splits(ticket, request.send_counts, request.receive_counts);
    return ticket;
}

void Group::record_end(const Operation& operation, bool well) {
    if (well && operation.is_receive) recorder_.note_source(operation.ticket, rank_of(operation.transfer.peer));
    recorder_.end(operation.ticket, well ? record::State::completed : record::State::failed);
}

void Group::record_failure(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& cause) {
        recorder_.note_failure(cause_of(cause));
        if (const auto* lost = dynamic_cast<const PeerLost*>(&cause)) note_gone(lost->context().peer);
        recorder_.dump_at_end(cause.what(), record::Recorder::End::failed);
    }
}

void Group::note_waits(const Operation& operation, Instant since, Instant now) {
    for (const int peer : waits_for(operation)) recorder_.note_wait(peer, now - std::max(since, operation.started));
}

void Group::note_gone(int global) {
    if (const int rank = rank_of(global); rank >= 0) recorder_.note_gone(rank);
}

// Once: this rank's operations at the time of the trouble, for the others and for the dump.
void Group::publish_tail(const std::string& reason) {
    if (tail_published_.exchange(true)) return;
    inquiry_->publish(recorder_.snapshot("", record::Inquiry::tail_length));
    recorder_.dump_at_end(reason, record::Recorder::End::failed);
}

// All ranks hear of it, say what they were doing, and fail with one verdict.
void Group::fail_together(const record::Subject& subject, ErrorContext context) {
    using rendezvous::VerdictKind;
    publish_tail(subject.headline);
    const rendezvous::Verdict accusation{subject.disagreement ? VerdictKind::mismatch : VerdictKind::timed_out,
                                         global(subject.peer), subject.headline, index_, world_->rank()};
    if (!world_->verdicts().accuse(accusation)) return world_->verdicts().fail_as_told(context);
    const record::Judgement judgement = inquiry_->decide(subject, size(), absent());
    world_->verdicts().tell(
        {VerdictKind::judged, global(judgement.peer), record::to_text(judgement), index_, world_->rank()}, false);
    fail_as_judged(judgement, std::move(context));
}

record::Absent Group::absent() const {
    return {.departed = ranks_.ranks_of(world_->verdicts().departed()), .silent = ranks_.ranks_of(world_->verdicts().health().silent())};
}

// `told`: a judgement, or, where none has come, an accusation.
void Group::fail_as_told(const rendezvous::Verdict& told, const ErrorContext& context) {
    if (auto judgement = record::read_judgement(told.text)) return fail_as_judged(*judgement, context);
    if (auto judgement = inquiry_->learn()) return fail_as_judged(*judgement, context);
    const record::Subject subject{.headline = told.text,
                                  .sequence = context.sequence,
                                  .rank = rank_of(told.from),
                                  .peer = rank_of(told.rank),
                                  .disagreement = told.kind == rendezvous::VerdictKind::mismatch,
                                  .members = record::Members(ranks_.in_world())};
    fail_as_judged(record::judge(subject, absent()), context);
}

void Group::fail_as_judged(const record::Judgement& judgement, ErrorContext context) {
    // The judgement may have come from the store, where others write.
    context.peer = judgement.peer < size() ? global(judgement.peer) : -1;
    if (judgement.disagreement) {
        context.sequence = judgement.sequence;
        world_->flight().fail(std::make_exception_ptr(CollectiveMismatch(judgement.text, context)));
    } else {
        world_->flight().fail(std::make_exception_ptr(Timeout(judgement.text, context)));
    }
}

}  // namespace tutti::detail
