// What the recorder learns from the group, and what the ranks say together when an operation does not come to its end.
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

}  // namespace

record::Ticket Group::record_call(const Operation& operation) {
    if (!operation.is_collective) {
        const transport::Transfer& transfer = operation.transfer;
        return recorder_.begin({.fingerprint = transfer.fingerprint,
                                .bytes = transfer.bytes,
                                .peer = transfer.peer < 0 ? transfer.peer : rank_of(transfer.peer),
                                .kind = operation.is_receive ? Kind::receive : Kind::send},
                               record::State::started);
    }
    const algorithm::Request& request = operation.request;
    return recorder_.begin({.sequence = operation.sequence,
                            .fingerprint = operation.operands.fingerprint,
                            .bytes = bytes_of(request),
                            .peer = recorded_root(request.collective, request.root),
                            .kind = recorded_kind(request.collective)},
                           record::State::enqueued);
}

void Group::record_end(const Operation& operation, bool well) {
    recorder_.end(operation.ticket, well ? record::State::completed : record::State::failed);
}

void Group::record_failure(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& cause) {
        recorder_.dump_at_end(cause.what());
    }
}

void Group::note_waits(const Operation& operation, Instant since, Instant now) {
    for (const int peer : waits_for(operation)) recorder_.note_wait(peer, now - std::max(since, operation.started));
}

// Once: what this rank was doing when the trouble was noticed, for the others and for the dump.
void Group::publish_tail(const std::string& reason) {
    if (tail_published_.exchange(true)) return;
    inquiry_->publish(recorder_.snapshot("", record::Inquiry::tail_length));
    recorder_.dump_at_end(reason);
}

// All ranks hear of it, say what they were doing, and fail with one verdict.
void Group::fail_together(const record::Subject& subject, ErrorContext context) {
    using rendezvous::VerdictKind;
    publish_tail(subject.headline);
    world_->tell({subject.disagreement ? VerdictKind::mismatch : VerdictKind::timed_out, global(subject.peer),
                  subject.headline, index_},
                 false);
    std::vector<int> departed;
    for (const int gone : world_->departed()) {
        if (const int rank = rank_of(gone); rank >= 0) departed.push_back(rank);
    }
    fail_as_judged(inquiry_->decide(subject, size_, departed), std::move(context));
}

void Group::fail_as_told(const rendezvous::Verdict& verdict, const ErrorContext& context) {
    fail_as_judged(inquiry_->learn().value_or(
                       record::Judgement{.text = verdict.text,
                                         .peer = rank_of(verdict.rank),
                                         .sequence = context.sequence,
                                         .disagreement = verdict.kind == rendezvous::VerdictKind::mismatch}),
                   context);
}

void Group::fail_as_judged(const record::Judgement& judgement, ErrorContext context) {
    context.peer = global(judgement.peer);
    if (judgement.disagreement) {
        context.sequence = judgement.sequence;
        world_->fail(std::make_exception_ptr(CollectiveMismatch(judgement.text, context)));
    } else {
        world_->fail(std::make_exception_ptr(Timeout(judgement.text, context)));
    }
}

}  // namespace tutti::detail
