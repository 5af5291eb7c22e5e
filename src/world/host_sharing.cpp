#include "world/host_sharing.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "core/unix_socket.hpp"
#include "rendezvous/place.hpp"
#include "security/handshake.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

using transport::Arena;
using transport::ArenaLayout;

// The interval at which a rank that waits for its neighbours looks whether they still come.
constexpr std::chrono::milliseconds neighbours_patience{5};
/// More ranks than a host has. The rings between all ranks of a large world would fill a process's addresses: of such a
/// world the ranks of each host share memory once they know that they are there.
constexpr int most_of_offer = 1024;

std::string door_of(const rendezvous::Membership& membership, const std::string& what, int first) {
    TUTTI_ASSERT(first >= 0);
    return fmt::format("tutti-{}-{:x}-{}", what, membership.world_id(), first);
}

// False: a stranger.
bool hand_over(const rendezvous::Membership& membership, const UniqueFd& to, const std::string& what,
               std::span<const UniqueFd> fds, const Deadline& deadline, const AbortFlag* abort) {
    TUTTI_ASSERT(to);
    if (net::peer_uid(to.get()) != ::geteuid()) return false;
    security::authenticate(to.get(), membership.secret(), security::Role::accepting, what, deadline, abort);
    for (const UniqueFd& fd : fds) net::send_fd(to.get(), fd.get(), deadline, abort);
    return true;
}

bool reaches_all(const rendezvous::Membership& membership, int rank, const std::vector<int>& ranks) {
    TUTTI_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < membership.cards().size());
    const auto& cards = membership.cards();
    const auto space = cards[static_cast<std::size_t>(rank)].process_space;
    return transport::PeerMemory::can_watch() && std::ranges::all_of(ranks, [&](int other) {
               const rendezvous::Card& card = cards[static_cast<std::size_t>(other)];
               return card.process_space == space && transport::PeerMemory::reaches(card.process, card.place_to_try);
           });
}

}  // namespace

std::string HostSharing::prepare() {
    if (size_ == 1) return {};
    if (transport_ == TransportKind::tcp) return "its transport is tcp";
    try {
        const int ranks = std::min(size_, most_of_offer);
        auto arena = Arena::create_shared(ArenaLayout::of(ranks, size_));
        TUTTI_ASSERT(arena != nullptr);
        if (rank_ == 0 && ranks == size_) arena_ = std::move(arena);
        return {};
    } catch (const DistBackendError& error) {
        return error.what();
    }
}

std::string HostSharing::why_not(const std::vector<rendezvous::Card>& cards) const {
    TUTTI_ASSERT(rank_ >= 0 && cards.size() == static_cast<std::size_t>(size_));
    const auto without = std::ranges::find_if(cards, [](const auto& card) { return !card.cannot_share.empty(); });
    if (without == cards.end()) return {};
    return fmt::format("rank {} (host {}): {}", without - cards.begin(), without->host_name, without->cannot_share);
}

OfferedMemory HostSharing::offer(const std::vector<rendezvous::Card>& cards) {
    TUTTI_ASSERT(rank_ == 0 && cards.size() == static_cast<std::size_t>(size_));
    const auto is_near = [&](const rendezvous::Card& card) { return rendezvous::are_near(card, cards.front()); };
    const bool all_share = why_not(cards).empty() && std::ranges::all_of(cards, is_near);
    if (!all_share) arena_.reset();
    if (!arena_) return {};
    OfferedMemory offer{arena_->descriptor()};
    security::random_bytes(std::as_writable_bytes(std::span(&offer.identity, 1)));
    arena_->control(0).identity.store(offer.identity, std::memory_order_release);
    return offer;
}

void HostSharing::go_without(const std::string& why) {
    if (transport_ == TransportKind::shm) {
        throw DistBackendError(
            fmt::format("transport shm: group \"{}\": {}; with TUTTI_TRANSPORT=auto it would go on over TCP", group_,
                        why),
            {.operation = "init", .group = group_, .rank = rank_});
    }
    if (transport_ == TransportKind::automatic && rank_ == 0)
        TUTTI_WARN("group \"{}\": the {} ranks exchange everything over TCP: {}", group_, size_, why);
    TUTTI_ASSERT(transport_ != TransportKind::shm && !why.empty());
    transport_ = TransportKind::tcp;
}

void HostSharing::give_to(const UniqueFd& visitor) const {
    try {
        if (const UniqueFd fd = arena_ ? arena_->fd() : UniqueFd())
            net::send_fd(visitor.get(), fd.get(), Deadline::after(Clock::duration::zero()), nullptr);
    } catch (const DistError& error) {
        TUTTI_DEBUG("group {}: a rank that asked for shared memory did not get it: {}", group_, error.what());
    }
}

std::unique_ptr<transport::Neighbours> HostSharing::share(rendezvous::Membership& membership,
                                                          const std::vector<int>& ranks, const OfferedMemory& offer,
                                                          const Deadline& deadline) {
    TUTTI_ASSERT(!ranks.empty() && std::ranges::is_sorted(ranks) && std::ranges::find(ranks, rank_) != ranks.end());
    auto reads = transport::Reads::no;
    if (size_ == 1) {
        arena_ = Arena::create_private(ArenaLayout::of(1, 1));
    } else if (transport_ != TransportKind::tcp && ranks.size() > 1) {
        if (offer.descriptor >= 0)
            find_offered(membership, offer, deadline);
        else
            share_by_hand(membership, ranks, deadline);
        reads = agree(membership, ranks, deadline);
    }
    std::vector<pid_t> processes;
    for (const int rank : ranks) processes.push_back(membership.cards()[static_cast<std::size_t>(rank)].process);
    return std::make_unique<transport::Neighbours>(rank_, size_, ranks, std::move(processes), arena_, reads);
}

// Rank 0 has made the arena, and has said where it is. A rank that cannot find it there asks rank 0 for it over its
// local endpoint.
void HostSharing::find_offered(rendezvous::Membership& membership, const OfferedMemory& offer,
                               const Deadline& deadline) {
    TUTTI_ASSERT(offer.descriptor >= 0);
    if (rank_ == 0) return;
    const auto shape = ArenaLayout::of(size_, size_);
    arena_ = Arena::find(membership.cards().front().process, offer.descriptor, offer.identity, shape);
    if (!arena_) {
        const Patience patience([this] { return fmt::format("rank 0 to share its memory with rank {}", rank_); });
        const UniqueFd from = membership.request_memory(0, deadline, &health_.bad_news());
        arena_ = Arena::attach(net::recv_fd(from.get(), deadline, &health_.bad_news()), shape);
    }
    TUTTI_ASSERT(arena_ != nullptr || rank_ == 0);
}

// The lowest rank of a host makes the memory and passes its descriptor to the others: each rank that gets it shares it.
void HostSharing::share_by_hand(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                                const Deadline& deadline) {
    TUTTI_ASSERT(ranks.size() > 1);
    const auto shape = ArenaLayout::of(static_cast<int>(ranks.size()), size_);
    const bool is_first = ranks.front() == rank_;
    // Where some ranks are reached by sockets, those that sleep are woken by bells.
    std::vector<UniqueFd> bells(shape.ranks < size_ ? static_cast<std::size_t>(shape.ranks) : 0);
    std::vector<UniqueFd> shared(1 + bells.size());
    if (is_first) {
        arena_ = Arena::create_shared(shape);
        for (UniqueFd& bell : bells) {
            bell = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!bell) throw DistBackendError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
        }
        shared.front() = arena_->fd();
        std::ranges::move(bells, shared.begin() + 1);
    }
    TUTTI_ASSERT(shared.size() == 1 + bells.size());
    pass_on(membership, rank_, "arena", ranks, shared, deadline, &health_.bad_news());
    std::move(shared.begin() + 1, shared.end(), bells.begin());
    if (!is_first) arena_ = Arena::attach(std::move(shared.front()), shape);
    TUTTI_ASSERT(arena_ != nullptr);
    arena_->hang_bells(std::move(bells));
}

// Each rank has tried all others, and hears the findings of all: if one may not read another's memory, none reads any.
transport::Reads HostSharing::agree(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                                    const Deadline& deadline) {
    using Attached = transport::RankControl::Attached;
    TUTTI_ASSERT(arena_ != nullptr);
    const auto own = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
    TUTTI_ASSERT(own >= 0 && static_cast<std::size_t>(own) < ranks.size());
    arena_->say_attached(own, reaches_all(membership, rank_, ranks) ? Attached::and_reads : Attached::only);
    const Patience patience(
        [&] { return fmt::format("all of the {} of this host to find the memory that they share", rank_list(ranks)); });
    while (!arena_->wait_until_attached(neighbours_patience)) check_attachments(membership, ranks, deadline);
    for (std::size_t local = 0; local < ranks.size(); ++local) {
        const auto& attached = arena_->control(static_cast<int>(local)).attached;
        if (attached.load(std::memory_order_acquire) == Attached::and_reads) continue;
        if (ranks[local] == rank_) {
            TUTTI_INFO(
                "group \"{}\": rank {} may not read the memory of all ranks of its host: they copy long messages twice",
                group_, rank_);
        }
        return transport::Reads::no;
    }
    return transport::Reads::yes;
}

void HostSharing::check_attachments(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                                    const Deadline& deadline) const {
    TUTTI_ASSERT(arena_ != nullptr);
    using rendezvous::VerdictKind;
    check_wait(Deadline::never(), nullptr, "init");
    const std::string what = fmt::format("init of group \"{}\" ({} ranks)", group_, size_);
    if (const auto cause = health_.cause()) {
        const ErrorContext context{.operation = "init", .rank = rank_, .peer = cause->rank};
        if (cause->kind == VerdictKind::aborted)
            throw Aborted(fmt::format("{}: aborted by rank {}: {}", what, cause->rank, cause->text), context);
        throw PeerLost(fmt::format("{}: {}", what, cause->text), context);
    }
    std::vector<int> missing;
    for (std::size_t local = 0; local < ranks.size(); ++local) {
        const auto& attached = arena_->control(static_cast<int>(local)).attached;
        if (attached.load() != transport::RankControl::Attached::not_yet) continue;
        missing.push_back(ranks[local]);
        if (health_.is_gone_for_good(ranks[local])) {
            throw PeerLost(fmt::format("{}: rank {} has left", what, ranks[local]),
                           {.operation = "init", .rank = rank_, .peer = ranks[local]});
        }
        // One that has ended before it had a lifeline is missed by nobody else.
        const rendezvous::Card& card = membership.cards()[static_cast<std::size_t>(ranks[local])];
        const bool can_tell = card.process != 0 && card.process_space == rendezvous::process_space();
        if (const auto end = can_tell ? rendezvous::end_of(card.process, {}) : std::nullopt) {
            throw PeerLost(fmt::format("{}: rank {} (pid {}) is gone before it had joined: {}", what, ranks[local],
                                       card.process, *end),
                           {.operation = "init", .rank = rank_, .peer = ranks[local]});
        }
    }
    if (!deadline.expired() || missing.empty()) return;
    throw DistStoreError(fmt::format("{}: not there in time to share memory: {}", what, fmt::join(missing, ", ")),
                         {.operation = "init", .rank = rank_, .peer = missing.front()}, ErrorCode::timeout);
}

void HostSharing::pass_on(const rendezvous::Membership& membership, int rank, const std::string& what,
                          std::span<const int> ranks, std::span<UniqueFd> fds, const Deadline& deadline,
                          const AbortFlag* abort) {
    TUTTI_ASSERT(!ranks.empty() && std::ranges::find(ranks, rank) != ranks.end());
    const int first = ranks.front();
    if (rank != first) {
        const Patience patience(
            [&] { return fmt::format("rank {} to share its memory ({}) with rank {}", first, what, rank); });
        const UniqueFd to = net::connect_unix(door_of(membership, what, first), deadline, abort);
        if (net::peer_uid(to.get()) != ::geteuid())
            throw DistNetworkError(
                fmt::format("{}: a process of user {} has the socket of rank {}", what, net::peer_uid(to.get()), first),
                {.operation = "init", .rank = rank, .peer = first}, ErrorCode::security);
        security::authenticate(to.get(), membership.secret(), security::Role::connecting, what, deadline, abort);
        for (UniqueFd& fd : fds) fd = net::recv_fd(to.get(), deadline, abort);
        return;
    }
    const UniqueFd listener = net::listen_unix(door_of(membership, what, first));
    std::size_t passed = 1;
    const Patience patience([&] {
        return fmt::format("{} of the {} of this host to take the shared memory of rank {}", ranks.size() - passed,
                           rank_list(ranks), rank);
    });
    while (passed < ranks.size()) {
        const UniqueFd to = net::accept_one(listener.get(), deadline, abort, "sharing memory");
        if (hand_over(membership, to, what, fds, deadline, abort)) ++passed;
    }
    TUTTI_ASSERT(passed == ranks.size());
}

}  // namespace tutti::detail
