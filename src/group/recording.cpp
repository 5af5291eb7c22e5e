#include "group/recording.hpp"

#include "group/channel.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <numeric>

namespace tutti::detail::recording {
namespace {

using record::Kind;

std::uint64_t bytes_of(const algorithm::Request& r) {
    const auto sum = [](const auto& counts) { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); };
    const auto rank = static_cast<std::size_t>(r.rank);
    const CollectiveTraits& traits = traits_of(r.collective);
    if (traits.input == CollectiveTraits::Extent::exchanged) return sum(r.send_counts) * r.element_bytes;
    // What a rank puts in; of a scatter, where the root alone puts values in, what it gets.
    if (traits.input == CollectiveTraits::Extent::all_blocks && !traits.is_rooted())
        return sum(r.counts) * r.element_bytes;
    return (rank < r.counts.size() ? r.counts[rank] : r.count) * r.element_bytes;
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

record::Ticket begin(record::Recorder& recorder, const Ranks& ranks, const Operation& operation) {
    if (operation.is_of_service) return 0;
    if (!operation.is_collective) {
        const transport::Transfer& transfer = operation.transfer;
        const int peer = transfer.peer < 0 ? transfer.peer : ranks.rank_of(transfer.peer);
        const Kind kind = operation.is_receive ? Kind::receive : Kind::send;
        return recorder.begin({.sequence = recorder.number_message(kind, peer),
                               .fingerprint = transfer.fingerprint,
                               .bytes = transfer.bytes,
                               .peer = peer,
                               .tag = Channel::tag(transfer.channel),
                               .kind = kind},
                              record::State::started);
    }
    const algorithm::Request& request = operation.request;
    const record::Ticket ticket = recorder.begin({.sequence = operation.run.sequence,
                                                  .fingerprint = operation.call.fingerprint,
                                                  .bytes = bytes_of(request),
                                                  .peer = recorded_root(request.collective, request.root),
                                                  .kind = recorded_kind(request.collective)},
                                                 record::State::enqueued);
    if (request.collective == Collective::all_to_all && recorder.keeps_splits())
        recorder.note_splits(ticket, request.send_counts, request.receive_counts);
    return ticket;
}

void end(record::Recorder& recorder, const Ranks& ranks, const Operation& operation, bool well) {
    if (well && operation.is_receive)
        recorder.note_source(operation.run.ticket, ranks.rank_of(operation.transfer.peer));
    recorder.end(operation.run.ticket, well ? record::State::completed : record::State::failed);
}

void failure(record::Recorder& recorder, const Ranks& ranks, const std::exception_ptr& error) {
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
    for (const int peer : peers) recorder.note_wait(peer, now - std::max(since, operation.run.started));
}

}  // namespace tutti::detail::recording
