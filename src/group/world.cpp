// Making a world: membership, shared memory, streams.
#include "group/world.hpp"

#include "algorithm/cost.hpp"
#include "algorithm/select.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/this_host.hpp"
#include "core/thread.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"
#include "object/codec.hpp"
#include "rendezvous/place.hpp"
#include "tune/tune.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace tutti::detail {

namespace {

// What rank 0 decides for all.
struct Decision {
    std::string tuning;
    OfferedMemory memory;
    std::string without_memory;  // why no rank shares memory; empty: those of one host do
    int checksum = 0;            // over TCP: a settings::TcpChecksum
};
TUTTI_OBJECT(Decision, tuning, memory, without_memory, checksum);

// TUTTI_ALGORITHM, checked.
std::string named_algorithms() {
    const std::string text = env::get("TUTTI_ALGORITHM").value_or("");
    algorithm::parse_override(text, Collective::barrier);
    return text;
}

constexpr std::size_t least_streamed_bytes = 8192;  // of short collectives and messages
// A place of a ring that is written the ordinary way among others that are not stays in the writer's own cache, shared
// with the reader: that takes two to four times as long as where all are written so.
constexpr double returning_part = 0.5;
constexpr std::chrono::milliseconds connection_margin{1500};

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return this_host::cpus();
}

// Sleeping costs wake_us in the end: a rank that has yielded for ten times that loses little by it.
int yields_before_sleep(const std::optional<algorithm::CostModel>& costs) {
    return costs ? static_cast<int>(std::clamp(10 * costs->wake_us / costs->yield_us, 100.0, 1000.0)) : 200;
}

void check(const ProcessGroupOptions& o) {
    if (!o.store) throw InvalidArgument("ProcessGroup: store is empty: expected a store that all ranks reach");
    if (o.world_size < 1)
        throw InvalidArgument(fmt::format("ProcessGroup: world_size {}: expected at least 1", o.world_size));
    if (o.rank < 0 || o.rank >= o.world_size) {
        throw InvalidArgument(fmt::format("ProcessGroup: rank {}: expected 0 to {}", o.rank, o.world_size - 1));
    }
    if (o.timeout <= std::chrono::milliseconds::zero()) {
        throw InvalidArgument(fmt::format("ProcessGroup: timeout {} ms: expected more than zero", o.timeout.count()));
    }
}

}  // namespace

World::World(const ProcessGroupOptions& options, std::optional<Deadline> joining)
    : rank_(options.rank),
      size_(options.world_size),
      name_(options.name),
      store_(options.store),
      timeout_(settings::timeout().value_or(options.timeout)),
      determinism_(options.determinism != Determinism::fast ? options.determinism : settings::determinism()),
      listen_host_(options.listen_host),
      health_(options.rank),
      sharing_(options.rank, options.world_size, options.name,
               options.transport != TransportKind::automatic ? options.transport : settings::transport(), health_),
      groups_(options.name, options.store),
      faults_(Faults::from_environment(options.rank)),
      driver_(options.name, settings::progress_nice()) {
    try {
        meet_the_others(options, joining);
    } catch (const std::exception& error) {
        if (membership_ && !health_.bad_news().raised()) say_failed(error);
        membership_.reset();  // its thread calls on_verdict(), which needs all the rest
        throw;
    }
}

// The others learn why.
void World::say_failed(const std::exception& error) const {
    membership_->flood({rendezvous::VerdictKind::aborted, rank_,
                        fmt::format("rank {} failed while joining: {}", rank_, error.what())});
}

void World::meet_the_others(const ProcessGroupOptions& options, std::optional<Deadline> joining) {
    check(options);
    leave_at_exit();
    env::warn_about_unknown_variables();
    const Deadline deadline = joining.value_or(Deadline::after(timeout_));
    const tune::Setting setting = tune::setting_from_environment(rank_ == 0 ? tune::Files::read : tune::Files::ignored);
    const std::string named = named_algorithms();
    const settings::TcpChecksum checksum = settings::tcp_checksum();
    const auto decide = [&](const std::vector<rendezvous::Card>& cards) {
        std::vector<std::string> offers;
        for (const auto& card : cards) offers.push_back(card.note);
        return object::encode_string(Decision{tune::decide(setting, named, offers), sharing_.offer(cards),
                                              sharing_.why_not(cards), static_cast<int>(checksum)});
    };
    Decision decision;
    const auto on_decision = [&](const std::string& text) {
        decision = object::decode_string(text).get<Decision>();
        if (!decision.without_memory.empty()) sharing_.go_without(decision.without_memory);
    };
    const std::string cannot_share = sharing_.prepare();
    membership_ = std::make_unique<rendezvous::Membership>(rendezvous::MembershipOptions{
        place_in(options.store, name_), rank_, size_, deadline, options.listen_host,
        [this](const rendezvous::Verdict& v) { on_verdict(v); },
        [&] { return size_ > 1 ? tune::offer(setting, rank_ == 0) : std::string(); }, decide, on_decision,
        [this](const UniqueFd& visitor) { sharing_.give_to(visitor); }, transport::PeerMemory::place_to_try(),
        cannot_share});
    take_tuning(decision.tuning);
    lay_out(sharing_.transport());
    neighbours_ = sharing_.share(*membership_, lay_out_host(), decision.memory, deadline);
    layout_.pulls = neighbours_->are_all() && neighbours_->read_memory();
    driver_.attach(*this, *neighbours_);
    make_links(static_cast<settings::TcpChecksum>(decision.checksum));
    watch_forks();
}

Store World::place_in(const Store& store, const std::string& name) {
    return PrefixStore("group/" + name, store);
}

// A completion, or the end of a piece of news, may let go of the last of a world on one of its own threads, which
// cannot wait for itself.
std::shared_ptr<World> World::join(const ProcessGroupOptions& options, std::optional<Deadline> joining) {
    return std::shared_ptr<World>(new World(options, joining), [](World* world) {
        if (world->inherited()) return;  // its threads are in another process, its memory and peers another's
        if (!world->driver_.is_own_thread() && !rendezvous::Membership::on_own_thread()) return delete world;
        try {
            thread::start({"tutti-end", fmt::format("the end of group \"{}\"", world->name())}, [world] {
                delete world;
            }).detach();
        } catch (const DistBackendError& error) {
            TUTTI_WARN("{}; the group stays until the process ends", error.what());
        }
    });
}

World::~World() {
    try {
        leave();
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
    }
    forget_forks();
    {
        const std::lock_guard lock(mutex_);
        left_ = true;
    }
    driver_.stop();
    membership_.reset();
}

// Rank 0's tuning, for all.
void World::take_tuning(const std::string& decision) {
    layout_.tuning = tune::decided(decision);
    if (const auto& costs = layout_.tuning.costs) {
        const double penalty_ns = 1 / costs->stream_read_gbps - 1 / costs->cache_copy_gbps;
        staging_copy_ = transport::StagingCopy(penalty_ns);
        small_copy_ = transport::StagingCopy(penalty_ns, least_streamed_bytes, returning_part);
    }
    // Rounding depends on the algorithm, and the formulas' choice on what was measured: who wants the same bits in
    // every run gets the table's limits.
    if (determinism_ != Determinism::fast) layout_.tuning.costs.reset();
}

void World::lay_out(TransportKind kind) {
    const auto& cards = membership_->cards();
    std::vector<std::string> keys;
    std::vector<int> everyone;
    for (int r = 0; r < size_; ++r) {
        const std::string key =
            kind == TransportKind::tcp ? std::to_string(r) : cards[static_cast<std::size_t>(r)].host_key;
        const auto found = std::ranges::find(keys, key);
        layout_.host_of.push_back(static_cast<int>(found - keys.begin()));
        if (found == keys.end()) keys.push_back(key);
        everyone.push_back(r);
    }
    if (kind == TransportKind::shm && keys.size() > 1) {
        throw InvalidArgument(
            fmt::format("transport shm: the ranks of group \"{}\" are on {} hosts: expected one", name_, keys.size()));
    }
    layout_.shared_memory = kind != TransportKind::tcp;
    layout_.machines = machines_of(everyone);
}

int World::machines_of(const std::vector<int>& ranks) const {
    std::vector<std::string_view> machines;
    for (const int r : ranks) {
        const std::string& key = membership_->cards()[static_cast<std::size_t>(r)].host_key;
        if (std::ranges::find(machines, key) == machines.end()) machines.push_back(key);
    }
    return static_cast<int>(machines.size());
}

// How the ranks of this host wait for each other; returns them.
std::vector<int> World::lay_out_host() {
    const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r) {
        if (layout_.host_of[static_cast<std::size_t>(r)] == host) ranks.push_back(r);
    }
    // Ranks of other name spaces (containers) run on the same cores, though they share no memory.
    const std::string machine = rendezvous::machine_of(membership_->cards()[static_cast<std::size_t>(rank_)].host_key);
    const auto ranks_of_machine = static_cast<int>(std::ranges::count_if(
        membership_->cards(), [&](const auto& card) { return rendezvous::machine_of(card.host_key) == machine; }));
    // A rank that is bound to one core says nothing about the others' cores.
    const int cores = usable_cores(), yields = yields_before_sleep(layout_.tuning.costs);
    driver_.waiting().choose(settings::wait(), ranks_of_machine, std::max(cores, this_host::cpus()), yields);
    driver_.background_waiting().choose_beside(settings::wait(), cores == 1, yields);
    const auto shape = transport::ArenaLayout::of(static_cast<int>(ranks.size()), size_);
    layout_.slot_bytes = shape.slot_bytes;
    layout_.slots = shape.slots;
    if (size_ == 1) layout_.shared_memory = true;  // alone: the staging area is this rank's own
    return ranks;
}

void World::pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                         const Deadline& deadline) {
    HostSharing::pass_on(*membership_, rank_, what, ranks, fds, deadline, &health_.bad_news());
}

bool World::is_deaf(int rank) const {
    const rendezvous::Card& card = membership_->cards()[static_cast<std::size_t>(rank)];
    return net::refuses({card.listen_host, card.listen_port}, Deadline::after(std::chrono::milliseconds(100)));
}

// What stays in the memory of one kernel needs none there either.
std::vector<transport::Checksums> World::checksums(settings::TcpChecksum kind) const {
    using settings::TcpChecksum;
    const auto network = [this](std::size_t rank) {
        return rendezvous::network_of(membership_->cards()[rank].host_key);
    };
    const auto own = network(static_cast<std::size_t>(rank_));
    std::vector<transport::Checksums> by_rank;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank) {
        const bool on = kind == TcpChecksum::on || (kind == TcpChecksum::automatic && network(rank) != own);
        by_rank.push_back(on ? transport::Checksums::on : transport::Checksums::off);
    }
    return by_rank;
}

// A host that is lost is noticed before the patience for a connection ends.
void World::make_links(settings::TcpChecksum checksum) {
    transport::Connector& connector = *this;
    links_ = std::make_unique<transport::Links>(
        transport::LinkOptions{.rank = rank_,
                               .congestion = transport::Congestion::from_environment(),
                               .lanes = transport::Lanes::from_environment(),
                               .checksums = checksums(checksum),
                               .patience = settings::lifeline_timeout() + connection_margin,
                               .short_copy = &small_copy_},
        *neighbours_, connector);
    mailbox_ = std::make_unique<transport::Mailbox>(rank_, size_, membership_->world_id(), *links_, groups_,
                                                    neighbours_.get());
    if (!neighbours_->arena() || size_ == 1) return;
    const bool own_core = waiting().has_own_core();
    transport::Arena::choose_fences(neighbours_->arena(), !own_core);
    static_assert(transport::Mailbox::pull_bytes_on_own_cores == algorithm::pulled_from);
    if (own_core) mailbox_->pull_from(transport::Mailbox::pull_bytes_on_own_cores);
    if (!own_core && settings::wait() == settings::Wait::automatic) {
        spread_.emplace(neighbours_->arena(), neighbours_->own_local(),
                        settings::spread() ? Spread::Moves::yes : Spread::Moves::no);
    }
    for (const int peer : neighbours_->ranks()) {
        if (peer != rank_) mailbox_->activate(peer);
    }
}

// Operations that wait for this connection, or for this thread, have their limits too.
security::Connection World::connect(int peer, const Deadline& limit) {
    Instant when = limit.when();
    for (const Group* group : active_) {
        if (const auto front = group->front()) when = std::min(when, front->deadline.when());
    }
    for (const auto& message : messages_) when = std::min(when, message->deadline.when());
    return membership_->connect(peer, Deadline::at(when), &health_.bad_news());
}

}  // namespace tutti::detail
