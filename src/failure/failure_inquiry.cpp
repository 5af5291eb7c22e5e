#include "failure/failure_inquiry.hpp"

#include "core/assert.hpp"
#include "core/rethrow_about.hpp"
#include "operation/channel.hpp"
#include "operation/fingerprint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

namespace tutti::detail {

using group::Fingerprint;
using rendezvous::VerdictKind;

std::string FailureInquiry::title_of(const Operation& operation) const {
    TUTTI_ASSERT(operation.name != nullptr);
    const int tag = operation.is_collective ? -1 : Channel::tag(operation.transfer.channel);
    const std::string number = operation.is_collective ? fmt::format(" #{}", operation.run.sequence)
                               : tag > 0               ? fmt::format(" with tag {}", tag)
                                                       : std::string();
    return fmt::format("{}{} in group \"{}\" ({} ranks)", operation.name, number, group_, ranks_.size());
}

ErrorContext FailureInquiry::context_of(const Operation& operation) const {
    TUTTI_ASSERT(operation.name != nullptr);
    ErrorContext context;
    context.operation = operation.name;
    context.sequence = operation.run.sequence;
    context.group = group_;
    context.rank = ranks_.own_global();
    context.elapsed = Clock::now() - operation.run.started;
    if (operation.run.execution) context.phase = operation.run.execution->where();
    return context;
}

void FailureInquiry::refuse(const char* name, const std::exception_ptr& cause) const {
    rethrow_about(cause, fmt::format("{} in group \"{}\" ({} ranks) cannot start", name, group_, ranks_.size()),
                  {.operation = name, .group = group_, .rank = ranks_.own_global()});
}

std::vector<int> FailureInquiry::peer_of(const Operation& message) const {
    if (message.is_collective || message.transfer.peer < 0) return {};
    TUTTI_ASSERT(ranks_.rank_of(message.transfer.peer) >= 0);
    return {ranks_.rank_of(message.transfer.peer)};
}

// ---- Causes

void FailureInquiry::time_out(const Operation& operation, const std::vector<int>& missing) {
    TUTTI_ASSERT(std::ranges::all_of(missing, [this](int rank) { return rank >= 0 && rank < ranks_.size(); }));
    const ErrorContext context = context_of(operation);
    std::string text = fmt::format("{}: timed out after {:.3f} s of {:.3f} s", title_of(operation),
                                   std::chrono::duration<double>(context.elapsed).count(),
                                   std::chrono::duration<double>(operation.timeout).count());
    if (!missing.empty()) {
        text += fmt::format("; rank {} has nothing from rank {}", ranks_.own_global(),
                            fmt::join(ranks_.global(missing), ", "));
    }
    if (!context.phase.empty()) text += fmt::format("; {}", context.phase);
    const int peer = missing.empty() ? -1 : missing.front();
    fail_together(subject(ranks_.rank(), peer, operation.run.sequence, false, std::move(text)), context);
}

void FailureInquiry::mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine) {
    TUTTI_ASSERT(peer >= 0 && peer < ranks_.size());
    if (!group::is_message(theirs) || !group::is_message(mine)) {
        return mismatch(peer, sequence,
                        fmt::format("rank {} called {}, but rank {} called {}", ranks_.own_global(),
                                    Fingerprint::describe(mine), ranks_.global(peer), Fingerprint::describe(theirs)));
    }
    disagreed(peer, 0,
              fmt::format("group \"{}\": rank {} sent {}, but rank {} receives {}", group_, ranks_.global(peer),
                          Fingerprint::describe(theirs), ranks_.own_global(), Fingerprint::describe(mine)));
}

void FailureInquiry::mismatch_of_blocks(int peer, std::uint64_t sequence, std::uint64_t fingerprint,
                                        std::uint64_t their_bytes, std::uint64_t my_bytes) {
    TUTTI_ASSERT(their_bytes != my_bytes);
    mismatch(peer, sequence,
             Fingerprint::describe_block(fingerprint, ranks_.global(peer), their_bytes, ranks_.own_global(), my_bytes));
}

void FailureInquiry::disagreement(const Agreement::Disagreement& found) {
    TUTTI_ASSERT(found.peer != ranks_.rank() && found.sequence > 0);
    if (found.theirs != found.mine) return mismatch(found.peer, found.sequence, found.theirs, found.mine);
    mismatch(found.peer, found.sequence,
             fmt::format("ranks {} and {} have disagreed about a collective before it", ranks_.own_global(),
                         ranks_.global(found.peer)));
}

void FailureInquiry::mismatch(int peer, std::uint64_t sequence, const std::string& sides) {
    disagreed(peer, sequence,
              fmt::format("operation #{} in group \"{}\" ({} ranks): {}", sequence, group_, ranks_.size(), sides));
}

void FailureInquiry::disagreed(int peer, std::uint64_t sequence, const std::string& text) {
    if (court_.failing()) return;
    fail_together(subject(ranks_.rank(), peer, sequence, true, text),
                  {.sequence = sequence, .group = group_, .rank = ranks_.own_global()});
}

void FailureInquiry::give_up(int peer, const std::optional<rendezvous::Verdict>& cause) {
    TUTTI_ASSERT(peer >= 0 && peer < ranks_.size());
    const int rank = ranks_.global(peer);
    rendezvous::Verdict verdict =
        (cause ? cause : court_.gone(rank))
            .value_or(rendezvous::Verdict{VerdictKind::left, rank, fmt::format("rank {} has left the group", rank)});
    verdict.group = index_;
    court_.tell(verdict, true);
}

// ---- The verdict

record::Subject FailureInquiry::subject(int rank, int peer, std::uint64_t sequence, bool disagreement,
                                        std::string headline) const {
    TUTTI_ASSERT(rank < ranks_.size() && peer < ranks_.size());
    return {.headline = std::move(headline),
            .sequence = sequence,
            .rank = rank,
            .peer = peer,
            .disagreement = disagreement,
            .members = record::Members(ranks_.in_world())};
}

record::Absent FailureInquiry::absent() const {
    return {.departed = ranks_.ranks_of(court_.departed()), .silent = ranks_.ranks_of(court_.silent())};
}

void FailureInquiry::publish_tail(const std::string& reason) {
    if (tail_published_.exchange(true)) return;
    inquiry_.publish(recorder_.snapshot("", record::Inquiry::tail_length));
    recorder_.dump_at_end(reason, record::Recorder::End::failed);
}

// All ranks hear of it, say what they were doing, and fail with one verdict.
void FailureInquiry::fail_together(const record::Subject& subject, ErrorContext context) {
    publish_tail(subject.headline);
    const int own = ranks_.own_global();
    TUTTI_ASSERT(own >= 0 && !subject.headline.empty());
    if (!court_.accuse({subject.disagreement ? VerdictKind::mismatch : VerdictKind::timed_out,
                        ranks_.global(subject.peer), subject.headline, index_, own,
                        static_cast<std::uint32_t>(subject.sequence)}))
        return court_.fail_as_told(std::move(context));
    const record::Judgement judgement = inquiry_.decide(subject, ranks_.size(), absent());
    court_.tell({VerdictKind::judged, ranks_.global(judgement.peer), record::to_text(judgement), index_, own}, false);
    fail_as_judged(judgement, std::move(context));
}

void FailureInquiry::fail_as_told(const rendezvous::Verdict& told, const ErrorContext& context) {
    if (auto judgement = record::read_judgement(told.text)) return fail_as_judged(*judgement, context);
    if (auto judgement = inquiry_.learn()) return fail_as_judged(*judgement, context);
    const bool disagreement = told.kind == VerdictKind::mismatch;
    fail_as_judged(record::judge(subject(ranks_.rank_of(told.from), ranks_.rank_of(told.rank), context.sequence,
                                         disagreement, told.text),
                                 absent()),
                   context);
}

void FailureInquiry::fail_as_judged(const record::Judgement& judgement, ErrorContext context) {
    // The judgement may have come from the store, where others write.
    context.peer = judgement.peer < ranks_.size() ? ranks_.global(judgement.peer) : -1;
    if (judgement.disagreement) {
        context.sequence = judgement.sequence;
        court_.fail(std::make_exception_ptr(CollectiveMismatch(judgement.text, context)));
    } else {
        court_.fail(std::make_exception_ptr(Timeout(judgement.text, context)));
    }
}

}  // namespace tutti::detail
