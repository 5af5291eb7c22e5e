// Making a world: membership, shared memory, streams.
#include "group/world.hpp"

#include "algorithm/select.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/thread.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"
#include "object/codec.hpp"
#include "rendezvous/place.hpp"
#include "transport/shm/ring_stream.hpp"
#include "tune/tune.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace tutti::detail {

TUTTI_OBJECT(OfferedMemory, descriptor, identity);

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
constexpr std::chrono::milliseconds connection_patience{20};
constexpr std::chrono::milliseconds connection_margin{1500};
constexpr std::chrono::milliseconds lane_patience{1000};
constexpr std::chrono::milliseconds verdict_patience{300};  // for the cause, where a rank cannot be reached

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
      transport_(options.transport != TransportKind::automatic ? options.transport : settings::transport()),
      listen_host_(options.listen_host),
      congestion_(transport::Congestion::from_environment()),
      lanes_(transport::Lanes::from_environment()),
      faults_(Faults::from_environment(options.rank)),
      progress_nice_(settings::progress_nice()) {
    try {
        meet_the_others(options, joining);
    } catch (const std::exception& error) {
        if (membership_ && !bad_news_.raised()) say_failed(error);
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
        const std::string without = why_not_shared(cards);
        if (!without.empty()) arena_.reset();
        return object::encode_string(
            Decision{tune::decide(setting, named, offers), offer_memory(cards), without, static_cast<int>(checksum)});
    };
    Decision decision;
    const auto on_decision = [&](const std::string& text) {
        decision = object::decode_string(text).get<Decision>();
        if (!decision.without_memory.empty()) go_without_memory(decision.without_memory);
    };
    const std::string cannot_share = prepare_memory();
    membership_ = std::make_unique<rendezvous::Membership>(
        rendezvous::MembershipOptions{place_in(options.store, name_), rank_, size_, deadline, options.listen_host,
                                      [this](const rendezvous::Verdict& v) { on_verdict(v); },
                                      [&] { return size_ > 1 ? tune::offer(setting, rank_ == 0) : std::string(); },
                                      decide, on_decision, [this](const UniqueFd& visitor) { give_memory(visitor); },
                                      transport::PeerMemory::place_to_try(), cannot_share});
    take_tuning(decision.tuning);
    checksum_ = static_cast<settings::TcpChecksum>(decision.checksum);
    lay_out(transport_);
    streams_.resize(static_cast<std::size_t>(size_));
    memories_.resize(static_cast<std::size_t>(size_));
    wanted_.resize(static_cast<std::size_t>(size_));
    make_mailbox();
    lay_out_host();
    connect_shared_memory(decision.memory, deadline);
    layout_.pulls = local_of_.size() == rank_of_local_.size() && reads_memory_;
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
        if (world->progress_thread_.get_id() != std::this_thread::get_id() && !rendezvous::Membership::on_own_thread())
            return delete world;
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
        stopping_ = true;
        left_ = true;
    }
    unpark();
    if (progress_thread_.joinable()) progress_thread_.join();
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

void World::make_mailbox() {
    transport::MailboxEvents events;
    events.stream = [this](int peer) { return stream_to(peer); };
    events.mismatch = std::bind_front(&World::mismatch, this);
    events.lost = [this](int peer, const std::string& reason) {
        // One that died is reported by the membership. Only operations that wait for it are concerned (slow_checks).
        TUTTI_DEBUG("group {}: the connection to rank {} ended: {}", name_, peer, reason);
        broken_.try_emplace(peer, Break{Clock::now(), reason});
    };
    events.ended = [this](int peer) { ended_streams_.try_emplace(peer, Clock::now()); };
    events.open_stream = [this](int peer) { return open_stream_to(peer); };
    events.has_left = [this](std::uint64_t channel) { return has_left(channel); };
    events.peer_left = [this](int peer, std::uint64_t channel) { left_groups_.emplace(Channel::group(channel), peer); };
    events.while_offered = [this](int peer, const std::function<void()>& read) {
        return offers_->read_from(local_of(peer), read);
    };
    events.damaged = [this](int peer, const std::string& what) {
        const auto host_of = [this](int rank) {
            return membership_->cards()[static_cast<std::size_t>(rank)].host_name;
        };
        tell({rendezvous::VerdictKind::damaged, peer,
              fmt::format("what rank {} (host {}) sent to rank {} (host {}) over TCP was changed on the way: {}", peer,
                          host_of(peer), rank_, host_of(rank_), what)},
             true);
    };
    events.fingerprint_of = [this](std::uint64_t channel) { return fingerprint_of(channel); };
    events.has_finished = [this](std::uint64_t channel) {
        const auto group = find(Channel::group(channel));
        return group && group->has_finished(Channel::number(channel));
    };
    events.has_sent_all = [this](int peer, std::uint64_t channel) {
        const auto group = find(Channel::group(channel));
        return group && group->has_sent_all(group->rank_of(peer), Channel::number(channel));
    };
    events.memory = [this](int peer) { return memory_of(peer); };
    events.place = [this](int peer, std::span<const std::byte> message) {
        return shares_memory_with(peer) ? symmetric_.find(message.data(), message.size()).bits() : 0;
    };
    events.at_place = [this](int peer, std::uint64_t place, std::size_t bytes) -> const std::byte* {
        if (!shares_memory_with(peer)) return nullptr;
        return symmetric_.address(transport::Place(place), local_of(peer), bytes);
    };
    mailbox_ = std::make_unique<transport::Mailbox>(rank_, size_, membership_->world_id(), std::move(events));
}

const transport::PeerMemory* World::memory_of(int peer) {
    if (!reads_memory_ || !shares_memory_with(peer)) return nullptr;
    auto& memory = memories_[static_cast<std::size_t>(peer)];
    if (!memory) memory.emplace(membership_->cards()[static_cast<std::size_t>(peer)].process);
    return *memory ? &*memory : nullptr;
}

bool World::is_deaf(int rank) const {
    const rendezvous::Card& card = membership_->cards()[static_cast<std::size_t>(rank)];
    return net::refuses({card.listen_host, card.listen_port}, Deadline::after(std::chrono::milliseconds(100)));
}

// What stays in the memory of one kernel needs none there either.
transport::Checksums World::checksums_with(int peer) const {
    using settings::TcpChecksum;
    const auto network = [this](int rank) {
        return rendezvous::network_of(membership_->cards()[static_cast<std::size_t>(rank)].host_key);
    };
    const bool on =
        checksum_ == TcpChecksum::on || (checksum_ == TcpChecksum::automatic && network(peer) != network(rank_));
    return on ? transport::Checksums::on : transport::Checksums::off;
}

transport::SocketStream& World::socket_to(int peer) {
    auto& stream = streams_[static_cast<std::size_t>(peer)];
    if (!stream)
        stream = std::make_unique<transport::SocketStream>(congestion_, lanes_, checksums_with(peer), socket_time_);
    return static_cast<transport::SocketStream&>(*stream);
}

std::vector<transport::SocketStream*> World::connected_streams() {
    std::vector<transport::SocketStream*> streams;
    for (int peer = 0; peer < size_; ++peer) {
        if (has_connection_to(peer)) streams.push_back(&socket_to(peer));
    }
    return streams;
}

bool World::has_connection_to(int peer) const {
    if (shares_memory_with(peer)) return false;
    const auto& stream = streams_[static_cast<std::size_t>(peer)];
    return stream && static_cast<const transport::SocketStream&>(*stream).lanes() > 0;
}

transport::Stream* World::open_stream_to(int peer) {
    if (shares_memory_with(peer)) return stream_to(peer);
    return has_connection_to(peer) ? streams_[static_cast<std::size_t>(peer)].get() : nullptr;
}

transport::Stream* World::stream_to(int peer) {
    if (shares_memory_with(peer)) {
        auto& stream = streams_[static_cast<std::size_t>(peer)];
        if (!stream) {
            stream = std::make_unique<transport::RingStream>(arena_, local_of(rank_), local_of(peer), &small_copy_);
        }
        return stream.get();
    }
    transport::SocketStream& socket = socket_to(peer);
    if (socket.wants_connection() && !ending_) add_lane(peer, socket);
    if (!socket.needs_connection()) return &socket;
    if (ending_) return nullptr;
    // Usually both ranks want the connection, to send or to receive. The lower one makes it; the other waits for that,
    // but not for long.
    if (rank_ > peer) {
        const Instant now = Clock::now();
        Instant& wanted = wanted_[static_cast<std::size_t>(peer)];
        if (wanted == Instant{}) wanted = now;
        if (now - wanted < connection_patience) return nullptr;
    }
    // It may have connected to this rank, sent what there was to send, and left: its connection has been let in then.
    if (const auto failed = unreachable_.find(peer); failed != unreachable_.end()) {
        const auto& [since, why, round] = failed->second;
        if (!membership_->is_through(round) || Clock::now() - since < verdict_patience) return nullptr;
        if (take_connections() && !socket.needs_connection()) return &socket;
        socket.give_up();
        on_verdict({rendezvous::VerdictKind::peer_lost, peer, fmt::format("rank {} cannot be reached: {}", peer, why)});
        return &socket;
    }
    try {
        // A host that is lost is noticed before; what waits for this connection, or for this thread, has its limits
        // too.
        Deadline deadline = Deadline::after(settings::lifeline_timeout() + connection_margin);
        const auto heed = [&](const Operation& o) {
            deadline = Deadline::at(std::min(deadline.when(), o.deadline.when()));
        };
        for (const Group* group : active_) {
            if (const auto front = group->front()) heed(*front);
        }
        for (const auto& message : messages_) heed(*message);
        socket.add(membership_->connect(peer, deadline, &bad_news_));
    } catch (const DistError& error) {
        unreachable_[peer] = {Clock::now(), error.what(), membership_->next_round()};
        return nullptr;
    }
    return &socket;
}

void World::add_lane(int peer, transport::SocketStream& socket) {
    try {
        socket.add(membership_->connect(peer, Deadline::after(lane_patience), &bad_news_));
        TUTTI_DEBUG("group {}: {} connections to rank {}", name_, socket.lanes(), peer);
    } catch (const DistError& error) {
        TUTTI_DEBUG("group {}: no further connection to rank {}: {}", name_, peer, error.what());
        socket.give_up();
    }
}

}  // namespace tutti::detail
