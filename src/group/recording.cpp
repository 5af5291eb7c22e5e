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
                                .peer = transfer.peer,
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

// The operations in flight end with it.
void Group::record_failure(const std::exception_ptr& error) {
    for (const auto& operation : collectives_) recorder_.end(operation->ticket, record::State::failed);
    for (const auto& operation : messages_) recorder_.end(operation->ticket, record::State::failed);
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& cause) {
        recorder_.dump_at_end(cause.what());
    }
}

void Group::note_waits(const Operation& operation, Instant now) {
    for (const int peer : waits_for(operation))
        recorder_.note_wait(peer, now - std::max(last_slow_check_, operation.started));
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
    membership_->flood(
        {subject.disagreement ? VerdictKind::mismatch : VerdictKind::timed_out, subject.peer, subject.headline});
    std::vector<int> departed;
    {
        const std::lock_guard lock(verdict_mutex_);
        departed = gone_;
    }
    fail_as_judged(inquiry_->decide(subject, size_, departed), std::move(context));
}

void Group::fail_as_judged(const record::Judgement& judgement, ErrorContext context) {
    context.peer = judgement.peer;
    if (judgement.disagreement) {
        context.sequence = judgement.sequence;
        fail(std::make_exception_ptr(CollectiveMismatch(judgement.text, context)));
    } else {
        fail(std::make_exception_ptr(Timeout(judgement.text, context)));
    }
}

}  // namespace tutti::detail
