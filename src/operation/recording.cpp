#include "operation/recording.hpp"

#include "core/assert.hpp"
#include "operation/channel.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <vector>

namespace tutti::detail::recording {
namespace {

using record::Kind;

// As metrics name it.
const char* cause_of(const std::exception& error) {
    if (dynamic_cast<const Timeout*>(&error) != nullptr) return "timeout";
    if (dynamic_cast<const PeerLost*>(&error) != nullptr) return "peer_lost";
    if (dynamic_cast<const CollectiveMismatch*>(&error) != nullptr) return "mismatch";
    if (dynamic_cast<const Aborted*>(&error) != nullptr) return "aborted";
    return "other";
}

}  // namespace

record::Ticket begin(record::Recorder& recorder, const Ranks& ranks, const Operation& operation) {
    TUTTI_ASSERT(operation.run.ticket == 0);
    if (operation.is_of_service) return 0;
    if (!operation.is_collective) {
        const transport::Transfer& transfer = operation.transfer;
        const int peer = transfer.peer < 0 ? transfer.peer : ranks.rank_of(transfer.peer);
        const Kind kind = operation.is_receive ? Kind::receive : Kind::send;
        // A probe waits as a receive does, and receives nothing.
        const bool is_probe = transfer.match != transport::Transfer::Match::take;
        const bool any_tag = is_probe && ~transfer.channel_bits != 0;
        return recorder.begin({.sequence = is_probe ? 0 : recorder.number_message(kind, peer),
                               .fingerprint = transfer.fingerprint,
                               .bytes = transfer.bytes,
                               .peer = peer,
                               .tag = any_tag ? -1 : Channel::tag(transfer.channel),
                               .kind = kind},
                              record::State::started);
    }
    const engine::CollectiveCall& call = operation.call;
    TUTTI_ASSERT(operation.run.sequence > 0);
    const std::uint64_t bytes =
        operation.quantized ? operation.quantized->counted_bytes : call.contributed_bytes(ranks.rank(), ranks.size());
    const record::Ticket ticket = recorder.begin({.sequence = operation.run.sequence,
                                                  .fingerprint = call.fingerprint,
                                                  .bytes = bytes,
                                                  .peer = recorded_root(call.collective, call.root),
                                                  .kind = recorded_kind(call.collective)},
                                                 record::State::enqueued);
    note_splits(recorder, ranks, call, ticket);
    return ticket;
}

void note_splits(record::Recorder& recorder, const Ranks& ranks, const engine::CollectiveCall& call,
                 record::Ticket ticket) {
    if (!traits_of(call.collective).exchanges() || !recorder.keeps_splits()) return;
    TUTTI_ASSERT(call.send_counts.empty() || call.send_counts.size() == static_cast<std::size_t>(ranks.size()));
    if (!call.send_counts.empty()) return recorder.note_splits(ticket, call.send_counts, call.receive_counts);
    const std::vector<std::uint64_t> even(static_cast<std::size_t>(ranks.size()), call.count);
    recorder.note_splits(ticket, even, even);
}

void end(record::Recorder& recorder, const Ranks& ranks, const Operation& operation, bool well) {
    if (well && operation.is_receive && operation.transfer.match == transport::Transfer::Match::take)
        recorder.note_source(operation.run.ticket, ranks.rank_of(operation.transfer.peer));
    TUTTI_ASSERT(!operation.done());
    recorder.end(operation.run.ticket, well ? record::State::completed : record::State::failed);
}

void failure(record::Recorder& recorder, const Ranks& ranks, const std::exception_ptr& error) {
    TUTTI_ASSERT(error != nullptr);
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& cause) {
        recorder.note_failure(cause_of(cause));
        if (const auto* lost = dynamic_cast<const PeerLost*>(&cause)) gone(recorder, ranks, lost->context().peer);
        recorder.dump_at_end(cause.what(), record::Recorder::End::failed);
    }
}

void gone(record::Recorder& recorder, const Ranks& ranks, int global) {
    if (const int rank = ranks.rank_of(global); rank >= 0) recorder.note_gone(rank);
}

void waits(record::Recorder& recorder, const Operation& operation, std::span<const int> peers, Instant since,
           Instant now) {
    TUTTI_ASSERT(since <= now);
    for (const int peer : peers) recorder.note_wait(peer, now - std::max(since, operation.run.started));
}

}  // namespace tutti::detail::recording
