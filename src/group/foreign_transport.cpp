#include "group/foreign_transport.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "failure/health.hpp"
#include "group/backend_request.hpp"
#include "group/library_collective.hpp"
#include "operation/group_table.hpp"

#include <tutti/error.hpp>

namespace tutti::detail {

using transport::Stream;

namespace {

std::uint64_t elements_of_result(const engine::CollectiveCall& reduction, int rank) {
    return traits_of(reduction.collective).writes(rank, reduction.root) ? reduction.count_of(rank) : 0;
}

}  // namespace

ForeignTransport::OfWorld::OfWorld(const Ranks& ranks, int world_size, std::unique_ptr<transport::Streams> streams)
    : streams_(std::move(streams)) {
    TUTTI_ASSERT(streams_ != nullptr);
    for (int peer = 0; peer < world_size; ++peer)
        rank_of_.push_back(peer == ranks.own_global() ? -1 : ranks.rank_of(peer));
    TUTTI_ASSERT(rank_of_.size() == static_cast<std::size_t>(world_size));
}

Stream* ForeignTransport::OfWorld::to(int peer) {
    TUTTI_ASSERT(peer >= 0 && peer < world_size());
    const int rank = rank_of_[static_cast<std::size_t>(peer)];
    return rank >= 0 && streams_ ? streams_->to(rank) : nullptr;
}

Stream* ForeignTransport::OfWorld::existing(int peer) {
    TUTTI_ASSERT(peer >= 0 && peer < world_size());
    const int rank = rank_of_[static_cast<std::size_t>(peer)];
    return rank >= 0 && streams_ ? streams_->existing(rank) : nullptr;
}

bool ForeignTransport::OfWorld::offers(const BackendRequest& request) {
    return streams_ && streams_->offers(request);
}

std::unique_ptr<transport::LibraryCall> ForeignTransport::OfWorld::begin(const BackendRequest& request) {
    return streams_ ? streams_->begin(request) : nullptr;
}

std::unique_ptr<transport::LibraryCall> ForeignTransport::OfWorld::receive(int peer, std::uint64_t number,
                                                                           std::span<std::byte> into) {
    TUTTI_ASSERT(peer >= 0 && peer < world_size() && rank_of_[static_cast<std::size_t>(peer)] >= 0);
    return streams_ ? streams_->receive(rank_of_[static_cast<std::size_t>(peer)], number, into) : nullptr;
}

std::unique_ptr<transport::LibraryCall> ForeignTransport::OfWorld::send(int peer, std::uint64_t number,
                                                                        std::span<const std::byte> bytes) {
    TUTTI_ASSERT(peer >= 0 && peer < world_size() && rank_of_[static_cast<std::size_t>(peer)] >= 0);
    return streams_ ? streams_->send(rank_of_[static_cast<std::size_t>(peer)], number, bytes) : nullptr;
}

ForeignTransport::ForeignTransport(const Parts& parts, std::unique_ptr<transport::Streams> streams)
    : ranks_(parts.ranks),
      determinism_(parts.determinism),
      health_(parts.health),
      streams_(ranks_, parts.world_size, std::move(streams)),
      mailbox_(ranks_.own_global(), parts.world_size, parts.world_id, streams_, parts.groups) {
    for (const int peer : ranks_.all()) {  // others may send first
        if (peer != ranks_.own_global()) mailbox_.activate(peer);
    }
}

ForeignTransport::~ForeignTransport() {
    try {
        if (!health_.cause()) mailbox_.finish();
    } catch (const std::exception& error) {
        TUTTI_WARN("{}", error.what());
    }
    close_given_up();
}

BackendRequest ForeignTransport::library_request_of(const Operation& operation) const {
    TUTTI_ASSERT(operation.is_collective);
    BackendRequest request = request_of(operation, ranks_, determinism_);
    if (request.op.kind() == ReduceOp::Kind::avg) request.op = ReduceOp::sum;
    return request;
}

bool ForeignTransport::offers(const Operation& operation) {
    // A library cannot tell ranks that disagree about a block which only they know: it hangs, or fails.
    return !traits_of(operation.call.collective).exchanges() && streams_.offers(library_request_of(operation));
}

std::unique_ptr<engine::Running> ForeignTransport::begin(const Operation& operation) {
    TUTTI_ASSERT(!traits_of(operation.call.collective).exchanges());
    auto request = std::make_unique<BackendRequest>(library_request_of(operation));
    LibraryCollective::Division division;
    if (operation.call.op == ReduceOp::Kind::avg)
        division = {.elements = elements_of_result(operation.call, ranks_.rank()), .divisor = operation.call.divisor};
    auto call = streams_.begin(*request);
    if (!call) throw DistBackendError("the transport's library does not begin a collective that it offers");
    TUTTI_ASSERT(division.divisor > 0);
    return std::make_unique<LibraryCollective>(std::move(request), std::move(call), division);
}

// Bytes for a peer that has gone, or that this rank has given up, would be waited for in vain. After a failure any may
// have gone, and none needs them.
void ForeignTransport::close_given_up() noexcept {
    const bool has_failed = health_.cause().has_value();
    for (int peer = 0; peer < streams_.world_size(); ++peer) {
        const transport::StreamEnd* const end = mailbox_.end_of(peer);
        const bool given_up = has_failed || (mailbox_.is_over(peer) && (end == nullptr || !end->broken.empty()));
        Stream* const stream = given_up ? streams_.existing(peer) : nullptr;
        if (stream != nullptr) stream->close();
    }
}

std::unique_ptr<transport::Streams> ForeignTransport::close() {
    close_given_up();
    mailbox_.drop_all();
    return streams_.take();
}

}  // namespace tutti::detail
