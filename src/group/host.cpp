// What the ranks of one host share: memory, and how long they wait for each other.
#include "algorithm/cost.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/this_host.hpp"
#include "group/world.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::detail {
namespace {

// How long who made the memory stays for those who have yet to find it, and how often it looks whether they will.
constexpr std::chrono::seconds attachments_patience{1};
constexpr std::chrono::milliseconds finding_patience{5};

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return this_host::cpus();
}

// Spinning pays only while every rank of this machine has a core of its own.
int spins_for(int ranks_of_machine) {
    const settings::Wait policy = settings::wait();
    if (policy == settings::Wait::spin) return 1'000'000;
    if (policy != settings::Wait::automatic) return 0;
    // A rank that is bound to one core says nothing about the others' cores.
    const int cores = std::max(usable_cores(), this_host::cpus());
    return ranks_of_machine <= cores ? 4000 : 0;
}

}  // namespace

// Made while the others are on their way, who may be on this host.
void World::prepare_memory() {
    if (rank_ != 0 || size_ == 1 || transport_ == TransportKind::tcp) return;
    arena_ = transport::Arena::create_shared(transport::ArenaLayout::of(size_, size_));
    arena_->control(0).memory_readable.store(transport::PeerMemory::allowed() ? 1 : 0);
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
    spins_ = spins_for(static_cast<int>(std::ranges::count_if(
        membership_->cards(), [&](const auto& card) { return rendezvous::machine_of(card.host_key) == machine; })));
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
    transport::Arena::choose_fences(arena_, spins_ == 0);
    static_assert(transport::Mailbox::pull_bytes_on_own_cores == algorithm::pulled_from);
    static_assert(engine::Execution::combined_at_once == algorithm::combined_at_once);
    if (spins_ > 0) mailbox_->pull_from(transport::Mailbox::pull_bytes_on_own_cores);
    if (spins_ == 0 && settings::wait() == settings::Wait::automatic) spread_.emplace(arena_, local_of(rank_));
    for (const int peer : rank_of_local_) {
        if (peer != rank_) mailbox_->activate(peer);
    }
}

// Rank 0 has made it, has said where it is, and goes on. Who cannot find it there asks at its door.
void World::share_offered(const OfferedMemory& offer, const Deadline& deadline) {
    if (rank_ == 0) return;
    const auto shape = transport::ArenaLayout::of(size_, size_);
    arena_ = transport::Arena::find(membership_->cards().front().process, offer.descriptor, offer.identity, shape);
    if (!arena_) {
        const UniqueFd door = membership_->visit(0, deadline, &bad_news_);
        arena_ = transport::Arena::attach(net::recv_fd(door.get(), deadline, &bad_news_), shape);
    }
    arena_->say_attached(rank_);
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

// With rank 0's process goes the way to its memory: it stays until all that will come have come.
void World::wait_for_attachments() const {
    const bool offered = rank_ == 0 && arena_ && arena_->control(0).identity.load(std::memory_order_relaxed) != 0;
    if (!offered) return;
    const auto expects = [this](int rank) {
        return rank != 0 && !gone_for_good_.contains(rank) &&
               arena_->control(rank).attached.load(std::memory_order_acquire) == 0;
    };
    for (const Deadline end = Deadline::after(attachments_patience); !end.expired();) {
        if (arena_->wait_until_attached(finding_patience)) return;
        const std::lock_guard lock(verdict_mutex_);
        if (verdict_ || std::ranges::none_of(rank_of_local_, expects)) return;
    }
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
        arena_->control(0).memory_readable.store(memory_readable() ? 1 : 0);
        for (UniqueFd& bell : bells) {
            bell = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!bell) throw DistBackendError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
        }
        shared.front() = arena_->fd();
        std::ranges::move(bells, shared.begin() + 1);
    }
    pass_on_host("arena", rank_of_local_, shared, deadline, nullptr);
    std::move(shared.begin() + 1, shared.end(), bells.begin());
    if (!is_first) arena_ = transport::Arena::attach(std::move(shared.front()), shape);
    arena_->hang_bells(std::move(bells));
}

void World::pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                         const Deadline& deadline, const AbortFlag* abort) {
    if (rank_ != ranks.front()) return receive_from_first(what, ranks.front(), fds, deadline, abort);
    const UniqueFd listener = net::listen_unix(door_of(what, rank_));
    for (std::size_t passed = 1; passed < ranks.size();) {
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
    const UniqueFd to = net::connect_unix(door_of(what, first), deadline, abort);
    security::authenticate(to.get(), membership_->secret(), security::Role::connecting, what, deadline, abort);
    for (UniqueFd& fd : fds) fd = net::recv_fd(to.get(), deadline, abort);
}

// Equal on all ranks of a host: its lowest rank decides.
bool World::memory_readable() const {
    const auto& cards = membership_->cards();
    const auto mine = cards[static_cast<std::size_t>(rank_)].process_space;
    return std::ranges::all_of(rank_of_local_,
                               [&](int rank) { return cards[static_cast<std::size_t>(rank)].process_space == mine; }) &&
           transport::PeerMemory::allowed();
}

}  // namespace tutti::detail
