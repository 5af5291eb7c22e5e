// What the ranks of one host share: memory, and how long they wait for each other.
#include "algorithm/cost.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "core/settings.hpp"
#include "core/this_host.hpp"
#include "group/world.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::detail {
namespace {

// How often a rank that waits for its neighbours looks whether they still come.
constexpr std::chrono::milliseconds neighbours_patience{5};

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return this_host::cpus();
}

// Sleeping costs wake_us in the end: a rank that has yielded for ten times that loses little by it.
int yields_before_sleep(const std::optional<algorithm::CostModel>& costs) {
    return costs ? static_cast<int>(std::clamp(10 * costs->wake_us / costs->yield_us, 100.0, 1000.0)) : 200;
}

}  // namespace

// Rank 0 makes it while the others are on their way, who may be on this host. Those find out whether they could: then
// they can map it too. Returns why there is none; empty: there is, or could be.
std::string World::prepare_memory() {
    if (size_ == 1) return {};
    if (transport_ == TransportKind::tcp) return "its transport is tcp";
    try {
        auto arena = transport::Arena::create_shared(transport::ArenaLayout::of(size_, size_));
        if (rank_ == 0) arena_ = std::move(arena);
        return {};
    } catch (const DistBackendError& error) {
        return error.what();
    }
}

// Rank 0. Schedules need all ranks to know who shares memory with whom, so what one rank cannot do, none does.
std::string World::why_not_shared(const std::vector<rendezvous::Card>& cards) const {
    const auto without = std::ranges::find_if(cards, [](const auto& card) { return !card.cannot_share.empty(); });
    if (without == cards.end()) return {};
    return fmt::format("rank {} (host {}): {}", without - cards.begin(), without->host_name, without->cannot_share);
}

void World::go_without_memory(const std::string& why) {
    if (transport_ == TransportKind::shm) {
        throw DistBackendError(
            fmt::format("transport shm: group \"{}\": {}; with TUTTI_TRANSPORT=auto it would go on over TCP", name_,
                        why),
            {.operation = "init", .group = name_, .rank = rank_});
    }
    if (transport_ == TransportKind::automatic && rank_ == 0)
        TUTTI_WARN("group \"{}\": the {} ranks exchange everything over TCP: {}", name_, size_, why);
    transport_ = TransportKind::tcp;
}

// Ranks that are all on rank 0's host, and see its process, find the memory by themselves: nobody has to wait until it
// is handed over.
OfferedMemory World::offer_memory(const std::vector<rendezvous::Card>& cards) {
    const auto is_near = [&](const rendezvous::Card& card) { return rendezvous::are_near(card, cards.front()); };
    if (!arena_) return {};
    if (!std::ranges::all_of(cards, is_near)) {
        arena_.reset();
        return {};
    }
    OfferedMemory offer{arena_->descriptor()};
    security::random_bytes(std::as_writable_bytes(std::span(&offer.identity, 1)));
    arena_->control(0).identity.store(offer.identity, std::memory_order_release);
    return offer;
}

// Who shares memory with whom.
void World::lay_out_host() {
    const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
    local_of_.assign(static_cast<std::size_t>(size_), -1);
    for (int r = 0; r < size_; ++r) {
        if (layout_.host_of[static_cast<std::size_t>(r)] != host) continue;
        local_of_[static_cast<std::size_t>(r)] = static_cast<int>(rank_of_local_.size());
        rank_of_local_.push_back(r);
    }
    // Ranks of other name spaces (containers) run on the same cores, though they share no memory.
    const std::string machine = rendezvous::machine_of(membership_->cards()[static_cast<std::size_t>(rank_)].host_key);
    const auto ranks_of_machine = static_cast<int>(std::ranges::count_if(
        membership_->cards(), [&](const auto& card) { return rendezvous::machine_of(card.host_key) == machine; }));
    // A rank that is bound to one core says nothing about the others' cores.
    const int cores = usable_cores(), yields = yields_before_sleep(layout_.tuning.costs);
    waiting_.choose(settings::wait(), ranks_of_machine, std::max(cores, this_host::cpus()), yields);
    background_waiting_.choose_beside(settings::wait(), cores == 1, yields);
    const auto shape = transport::ArenaLayout::of(static_cast<int>(rank_of_local_.size()), size_);
    layout_.slot_bytes = shape.slot_bytes;
    layout_.slots = shape.slots;
    if (size_ == 1) layout_.shared_memory = true;  // alone: the staging area is this rank's own
}

void World::connect_shared_memory(const OfferedMemory& offer, const Deadline& deadline) {
    const auto shape = transport::ArenaLayout::of(static_cast<int>(rank_of_local_.size()), size_);
    if (size_ == 1) {
        arena_ = transport::Arena::create_private(shape);
        return;
    }
    if (!layout_.shared_memory || shape.ranks == 1) return;
    if (offer.descriptor >= 0)
        share_offered(offer, deadline);
    else
        share_by_hand(deadline);
    agree_about_memory(deadline);
    transport::Arena::choose_fences(arena_, !waiting_.has_own_core());
    static_assert(transport::Mailbox::pull_bytes_on_own_cores == algorithm::pulled_from);
    if (waiting_.has_own_core()) mailbox_->pull_from(transport::Mailbox::pull_bytes_on_own_cores);
    if (!waiting_.has_own_core() && settings::wait() == settings::Wait::automatic)
        spread_.emplace(arena_, local_of(rank_), settings::spread() ? Spread::Moves::yes : Spread::Moves::no);
    for (const int peer : rank_of_local_) {
        if (peer != rank_) mailbox_->activate(peer);
    }
    offers_.emplace(arena_, local_of(rank_));
}

// Rank 0 has made it, and has said where it is. Who cannot find it there asks at its door.
void World::share_offered(const OfferedMemory& offer, const Deadline& deadline) {
    if (rank_ == 0) return;
    const auto shape = transport::ArenaLayout::of(size_, size_);
    arena_ = transport::Arena::find(membership_->cards().front().process, offer.descriptor, offer.identity, shape);
    if (!arena_) {
        const Patience patience([this] { return fmt::format("rank 0 to share its memory with rank {}", rank_); });
        const UniqueFd door = membership_->visit(0, deadline, &bad_news_);
        arena_ = transport::Arena::attach(net::recv_fd(door.get(), deadline, &bad_news_), shape);
    }
}

// Rank 0, service thread.
void World::give_memory(const UniqueFd& visitor) const {
    try {
        if (const UniqueFd fd = arena_ ? arena_->fd() : UniqueFd())
            net::send_fd(visitor.get(), fd.get(), Deadline::after(Clock::duration::zero()), nullptr);
    } catch (const DistError& error) {
        TUTTI_DEBUG("group {}: a rank that asked for shared memory did not get it: {}", name_, error.what());
    }
}

// Each rank has tried all others, and hears what all have found: if one may not read another's memory, none reads any.
void World::agree_about_memory(const Deadline& deadline) {
    using Attached = transport::RankControl::Attached;
    const bool reaches = reaches_neighbours();
    arena_->say_attached(local_of(rank_), reaches ? Attached::and_reads : Attached::only);
    const Patience patience([&] {
        return fmt::format("all of the {} of this host to find the memory that they share", rank_list(rank_of_local_));
    });
    while (!arena_->wait_until_attached(neighbours_patience)) check_attachments(deadline);
    const auto reads = [this](int rank) {
        return arena_->control(local_of(rank)).attached.load(std::memory_order_acquire) == Attached::and_reads;
    };
    const auto first = std::ranges::find_if_not(rank_of_local_, reads);
    reads_memory_ = first == rank_of_local_.end();
    if (!reads_memory_ && *first == rank_) {
        TUTTI_INFO(
            "group \"{}\": rank {} may not read the memory of all ranks of its host: they copy long messages twice",
            name_, rank_);
    }
}

// Throws when not all will come.
void World::check_attachments(const Deadline& deadline) const {
    using rendezvous::VerdictKind;
    check_wait(Deadline::never(), nullptr, "init");
    const std::string what = fmt::format("init of group \"{}\" ({} ranks)", name_, size_);
    std::vector<int> missing;
    const std::lock_guard lock(verdict_mutex_);
    if (verdict_ && verdict_->kind == VerdictKind::aborted) {
        throw Aborted(fmt::format("{}: aborted by rank {}: {}", what, verdict_->rank, verdict_->text),
                      {.operation = "init", .rank = rank_, .peer = verdict_->rank});
    }
    if (verdict_) {
        throw PeerLost(fmt::format("{}: {}", what, verdict_->text),
                       {.operation = "init", .rank = rank_, .peer = verdict_->rank});
    }
    for (const int rank : rank_of_local_) {
        if (arena_->control(local_of(rank)).attached.load() != transport::RankControl::Attached::not_yet) continue;
        missing.push_back(rank);
        if (gone_for_good_.contains(rank)) {
            throw PeerLost(fmt::format("{}: rank {} has left", what, rank),
                           {.operation = "init", .rank = rank_, .peer = rank});
        }
    }
    if (!deadline.expired() || missing.empty()) return;
    throw DistStoreError(fmt::format("{}: not there in time to share memory: {}", what, fmt::join(missing, ", ")),
                         {.operation = "init", .rank = rank_, .peer = missing.front()}, ErrorCode::timeout);
}

// The lowest rank of a host makes the memory and passes its descriptor to the others: whoever gets it shares it.
void World::share_by_hand(const Deadline& deadline) {
    const auto shape = transport::ArenaLayout::of(static_cast<int>(rank_of_local_.size()), size_);
    const bool is_first = rank_of_local_.front() == rank_;
    // Where some ranks are reached by sockets, those that sleep are woken by bells.
    std::vector<UniqueFd> bells(shape.ranks < size_ ? static_cast<std::size_t>(shape.ranks) : 0);
    std::vector<UniqueFd> shared(1 + bells.size());
    if (is_first) {
        arena_ = transport::Arena::create_shared(shape);
        for (UniqueFd& bell : bells) {
            bell = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!bell) throw DistBackendError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
        }
        shared.front() = arena_->fd();
        std::ranges::move(bells, shared.begin() + 1);
    }
    pass_on_host("arena", rank_of_local_, shared, deadline, &bad_news_);
    std::move(shared.begin() + 1, shared.end(), bells.begin());
    if (!is_first) arena_ = transport::Arena::attach(std::move(shared.front()), shape);
    arena_->hang_bells(std::move(bells));
}

void World::pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                         const Deadline& deadline, const AbortFlag* abort) {
    if (rank_ != ranks.front()) return receive_from_first(what, ranks.front(), fds, deadline, abort);
    const UniqueFd listener = net::listen_unix(door_of(what, rank_));
    std::size_t passed = 1;
    const Patience patience([&] {
        return fmt::format("{} of the {} of this host to take the shared memory of rank {}", ranks.size() - passed,
                           rank_list(ranks), rank_);
    });
    while (passed < ranks.size()) {
        const UniqueFd to = net::accept_one(listener.get(), deadline, abort, "sharing memory");
        if (hand_over(to, what, fds, deadline, abort)) ++passed;
    }
}

std::string World::door_of(const std::string& what, int first) const {
    return fmt::format("tutti-{}-{:x}-{}", what, membership_->world_id(), first);
}

// False: a stranger.
bool World::hand_over(const UniqueFd& to, const std::string& what, std::span<const UniqueFd> fds,
                      const Deadline& deadline, const AbortFlag* abort) const {
    if (net::peer_uid(to.get()) != ::geteuid()) return false;
    security::authenticate(to.get(), membership_->secret(), security::Role::accepting, what, deadline, abort);
    for (const UniqueFd& fd : fds) net::send_fd(to.get(), fd.get(), deadline, abort);
    return true;
}

void World::receive_from_first(const std::string& what, int first, std::span<UniqueFd> fds, const Deadline& deadline,
                               const AbortFlag* abort) const {
    const Patience patience(
        [&] { return fmt::format("rank {} to share its memory ({}) with rank {}", first, what, rank_); });
    const UniqueFd to = net::connect_unix(door_of(what, first), deadline, abort);
    security::authenticate(to.get(), membership_->secret(), security::Role::connecting, what, deadline, abort);
    for (UniqueFd& fd : fds) fd = net::recv_fd(to.get(), deadline, abort);
}

bool World::reaches_neighbours() const {
    const auto& cards = membership_->cards();
    const auto space = cards[static_cast<std::size_t>(rank_)].process_space;
    return transport::PeerMemory::can_watch() && std::ranges::all_of(rank_of_local_, [&](int rank) {
               const rendezvous::Card& card = cards[static_cast<std::size_t>(rank)];
               return card.process_space == space && transport::PeerMemory::reaches(card.process, card.place_to_try);
           });
}

}  // namespace tutti::detail
