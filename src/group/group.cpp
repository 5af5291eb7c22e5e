// Making and leaving a group: membership, shared memory, streams.
#include "group/group.hpp"

#include "algorithm/select.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "group/fingerprint.hpp"
#include "rendezvous/place.hpp"
#include "transport/shm/ring_stream.hpp"
#include "tune/tune.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace tutti::detail {
namespace {

TransportKind transport_kind(TransportKind wanted) {
    if (wanted != TransportKind::automatic) return wanted;
    const auto text = env::get("TUTTI_TRANSPORT");
    if (!text || *text == "auto") return TransportKind::automatic;
    if (*text == "shm") return TransportKind::shm;
    if (*text == "tcp") return TransportKind::tcp;
    throw InvalidArgument(fmt::format("environment variable TUTTI_TRANSPORT={}: expected auto, shm or tcp", *text));
}

Determinism determinism_level(Determinism wanted) {
    const auto text = env::get("TUTTI_DETERMINISM");
    if (wanted != Determinism::fast || !text || *text == "fast") return wanted;
    if (*text == "run_to_run") return Determinism::run_to_run;
    if (*text == "layout_invariant") return Determinism::layout_invariant;
    throw InvalidArgument(
        fmt::format("environment variable TUTTI_DETERMINISM={}: expected fast, run_to_run or layout_invariant", *text));
}

// TUTTI_ALGORITHM, checked.
std::string named_algorithms() {
    const std::string text = env::get("TUTTI_ALGORITHM").value_or("");
    algorithm::parse_override(text, Collective::barrier);
    return text;
}

constexpr std::chrono::milliseconds connection_patience{20};

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// Spinning pays only while every rank of this machine has a core of its own.
int spins_for(int ranks_of_machine) {
    const std::string policy = env::get("TUTTI_WAIT").value_or("auto");
    if (policy == "spin") return 1'000'000;
    if (policy == "yield" || policy == "sleep") return 0;
    if (policy != "auto") {
        throw InvalidArgument(
            fmt::format("environment variable TUTTI_WAIT={}: expected auto, spin, yield or sleep", policy));
    }
    // A rank that is bound to one core says nothing about the others' cores.
    const int cores = std::max(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
    return ranks_of_machine <= cores ? 4000 : 0;
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

Group::Group(const ProcessGroupOptions& options)
    : rank_(options.rank),
      size_(options.world_size),
      name_(options.name),
      timeout_(std::chrono::milliseconds(
          env::get_int("TUTTI_TIMEOUT_MS", 1, INT64_MAX / 2'000'000).value_or(options.timeout.count()))),
      determinism_(determinism_level(options.determinism)),
      recorder_(name_, rank_, size_, &group::Fingerprint::describe),
      congestion_(transport::Congestion::from_environment()) {
    check(options);
    env::warn_about_unknown_variables();
    const TransportKind kind = transport_kind(options.transport);
    const Deadline deadline = Deadline::after(timeout());
    inquiry_.emplace(PrefixStore("group/" + name_ + "/verdict", options.store));
    const tune::Setting setting = tune::setting_from_environment(rank_ == 0 ? tune::Files::read : tune::Files::ignored);
    const std::string named = named_algorithms();
    const auto decide = [setting, named](const std::vector<rendezvous::Card>& cards) {
        std::vector<std::string> offers;
        for (const auto& card : cards) offers.push_back(card.note);
        return tune::decide(setting, named, offers);
    };
    membership_ = std::make_unique<rendezvous::Membership>(
        rendezvous::MembershipOptions{PrefixStore("group/" + name_, options.store), rank_, size_, deadline,
                                      options.listen_host, [this](const rendezvous::Verdict& v) { on_verdict(v); },
                                      size_ > 1 ? tune::offer(setting, rank_ == 0) : std::string(), decide});
    take_tuning();
    recorder_.set_world(membership_->world_id());
    const auto& cards = membership_->cards();
    std::vector<std::string> keys;
    for (int r = 0; r < size_; ++r) {
        const std::string key =
            kind == TransportKind::tcp ? std::to_string(r) : cards[static_cast<std::size_t>(r)].host_key;
        const auto found = std::ranges::find(keys, key);
        layout_.host_of.push_back(static_cast<int>(found - keys.begin()));
        if (found == keys.end()) keys.push_back(key);
    }
    if (kind == TransportKind::shm && keys.size() > 1) {
        throw InvalidArgument(
            fmt::format("transport shm: the ranks of group \"{}\" are on {} hosts: expected one", name_, keys.size()));
    }
    layout_.shared_memory = kind != TransportKind::tcp;
    streams_.resize(static_cast<std::size_t>(size_));
    small_seen_.resize(static_cast<std::size_t>(size_));
    memories_.resize(static_cast<std::size_t>(size_));
    wanted_.resize(static_cast<std::size_t>(size_));
    transport::MailboxEvents events;
    events.stream = [this](int peer) { return stream_to(peer); };
    events.mismatch = [this](int peer, std::uint64_t channel, std::uint64_t theirs, std::uint64_t mine, std::size_t,
                             std::size_t) { mismatch(peer, channel & ~transport::collective_channel, theirs, mine); };
    events.lost = [this](int peer, const std::string& reason) {
        // A peer that has finished closes first and says goodbye over its lifeline; one that died is reported by the
        // membership. Either way only operations that wait for it are concerned (slow_checks).
        TUTTI_DEBUG("group {}: the connection to rank {} ended: {}", name_, peer, reason);
        const std::lock_guard lock(verdict_mutex_);
        gone_.push_back(peer);
    };
    events.fingerprint_of = [this](std::uint64_t channel) {
        return fingerprint_at(channel & ~transport::collective_channel);
    };
    events.memory = [this](int peer) { return memory_of(peer); };
    events.place = [this](int peer, std::span<const std::byte> message) {
        return shares_memory_with(peer) ? symmetric_.find(message.data(), message.size()).bits() : 0;
    };
    events.at_place = [this](int peer, std::uint64_t place, std::size_t bytes) -> const std::byte* {
        if (!shares_memory_with(peer)) return nullptr;
        return symmetric_.address(transport::Place(place), ground_.local_of[static_cast<std::size_t>(peer)], bytes);
    };
    mailbox_ = std::make_unique<transport::Mailbox>(rank_, size_, membership_->world_id(), std::move(events));
    ground_.mailbox = mailbox_.get();
    connect_shared_memory(deadline);
    layout_.pulls = keys.size() == 1 && arena_ && arena_->control(0).memory_readable.load() != 0;
}

// Rank 0's tuning, for all. Rounding depends on the algorithm, and the formulas' choice on what was measured: who wants
// the same bits in every run gets the table's limits.
void Group::take_tuning() {
    layout_.tuning = tune::decided(membership_->decision());
    // Sleeping costs wake_us in the end: a rank that has yielded for ten times that loses little by it.
    if (const auto& costs = layout_.tuning.costs)
        yields_ = static_cast<int>(std::clamp(10 * costs->wake_us / costs->yield_us, 100.0, 1000.0));
    if (determinism_ != Determinism::fast) layout_.tuning.costs.reset();
    std::vector<std::string_view> machines;
    for (const auto& card : membership_->cards()) {
        if (std::ranges::find(machines, card.host_key) == machines.end()) machines.push_back(card.host_key);
    }
    layout_.machines = static_cast<int>(machines.size());
    for (int c = 1; c <= collective_count && !layout_.tuning.named.empty(); ++c) {
        const auto collective = static_cast<Collective>(c);
        serve_with(collective, algorithm::parse_override(layout_.tuning.named, collective));
    }
}

Group::~Group() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        left_ = true;
        fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", name_))));
        work_arrived_.notify_all();
    }
    if (progress_thread_.joinable()) {
        if (progress_thread_.get_id() == std::this_thread::get_id())
            progress_thread_.detach();
        else
            progress_thread_.join();
    }
    membership_.reset();
}

// The lowest rank of a host makes the arena and passes its descriptor to the others: whoever gets it shares the memory.
void Group::connect_shared_memory(const Deadline& deadline) {
    const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
    ground_.local_of.assign(static_cast<std::size_t>(size_), -1);
    for (int r = 0; r < size_; ++r) {
        if (layout_.host_of[static_cast<std::size_t>(r)] != host) continue;
        ground_.local_of[static_cast<std::size_t>(r)] = static_cast<int>(rank_of_local_.size());
        rank_of_local_.push_back(r);
    }
    const int local_size = static_cast<int>(rank_of_local_.size());
    // Ranks of other name spaces (containers) run on the same cores, though they share no memory.
    const std::string machine = rendezvous::machine_of(membership_->cards()[static_cast<std::size_t>(rank_)].host_key);
    spins_ = spins_for(static_cast<int>(std::ranges::count_if(
        membership_->cards(), [&](const auto& card) { return rendezvous::machine_of(card.host_key) == machine; })));
    transport::ArenaLayout shape;
    shape.ranks = local_size;
    layout_.slot_bytes = shape.slot_bytes;
    layout_.slots = shape.slots;
    if (size_ == 1) {  // alone: the staging area is this rank's own
        arena_ = transport::Arena::create_private(shape);
        ground_.arena = arena_.get();
        layout_.shared_memory = true;
        return;
    }
    if (!layout_.shared_memory || local_size == 1) return;
    ground_.local_rank = ground_.local_of[static_cast<std::size_t>(rank_)];
    // Where some ranks are reached by sockets, those that sleep are woken by bells.
    std::vector<UniqueFd> bells(local_size < size_ ? static_cast<std::size_t>(local_size) : 0);
    std::vector<UniqueFd> shared(1 + bells.size());
    if (ground_.local_rank == 0) {
        arena_ = transport::Arena::create_shared(shape);
        arena_->control(0).memory_readable.store(memory_readable() ? 1 : 0);
        for (UniqueFd& bell : bells) {
            bell = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (!bell) throw DistBackendError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
        }
        shared.front() = arena_->take_fd();
        std::ranges::move(bells, shared.begin() + 1);
    }
    pass_on_host("arena", shared, deadline, nullptr);
    std::move(shared.begin() + 1, shared.end(), bells.begin());
    if (ground_.local_rank != 0) arena_ = transport::Arena::attach(std::move(shared.front()), shape);
    arena_->hang_bells(std::move(bells));
    ground_.arena = arena_.get();
    ground_.symmetric = &symmetric_;
    arena_->choose_fences(spins_ == 0);
    for (int local = 0; local < local_size; ++local) {
        if (local != ground_.local_rank) mailbox_->activate(rank_of_local_[static_cast<std::size_t>(local)]);
    }
}

// The lowest rank of this host passes its descriptors to the others, which get theirs of the same things.
void Group::pass_on_host(const std::string& what, std::span<UniqueFd> fds, const Deadline& deadline,
                         const AbortFlag* abort) {
    const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
    const std::string name = fmt::format("tutti-{}-{:x}-{}", what, membership_->world_id(), host);
    if (ground_.local_rank != 0) {
        const UniqueFd to = net::connect_unix(name, deadline, abort);
        security::authenticate(to.get(), membership_->secret(), security::Role::connecting, what, deadline, abort);
        for (UniqueFd& fd : fds) fd = net::recv_fd(to.get(), deadline, abort);
        return;
    }
    const UniqueFd listener = net::listen_unix(name);
    for (std::size_t passed = 1; passed < rank_of_local_.size();) {
        const UniqueFd to = net::accept_one(listener.get(), deadline, abort, "sharing memory");
        if (net::peer_uid(to.get()) != ::geteuid()) continue;
        security::authenticate(to.get(), membership_->secret(), security::Role::accepting, what, deadline, abort);
        for (const UniqueFd& fd : fds) net::send_fd(to.get(), fd.get(), deadline, abort);
        ++passed;
    }
}

// Equal on all ranks of a host: its lowest rank decides.
bool Group::memory_readable() const {
    const auto& cards = membership_->cards();
    const auto mine = cards[static_cast<std::size_t>(rank_)].process_space;
    return std::ranges::all_of(rank_of_local_,
                               [&](int rank) { return cards[static_cast<std::size_t>(rank)].process_space == mine; }) &&
           transport::PeerMemory::allowed();
}

const transport::PeerMemory* Group::memory_of(int peer) {
    if (size_ == 1 || !shares_memory_with(peer)) return nullptr;
    if (arena_->control(0).memory_readable.load(std::memory_order_relaxed) == 0) return nullptr;
    auto& memory = memories_[static_cast<std::size_t>(peer)];
    if (!memory) memory.emplace(membership_->cards()[static_cast<std::size_t>(peer)].process);
    return *memory ? &*memory : nullptr;
}

transport::SocketStream& Group::socket_to(int peer) {
    auto& stream = streams_[static_cast<std::size_t>(peer)];
    if (!stream) stream = std::make_unique<transport::SocketStream>(congestion_);
    return static_cast<transport::SocketStream&>(*stream);
}

transport::Stream* Group::stream_to(int peer) {
    if (shares_memory_with(peer)) {
        auto& stream = streams_[static_cast<std::size_t>(peer)];
        if (!stream) {
            stream = std::make_unique<transport::RingStream>(arena_, ground_.local_rank,
                                                             ground_.local_of[static_cast<std::size_t>(peer)]);
        }
        return stream.get();
    }
    transport::SocketStream& socket = socket_to(peer);
    if (!socket.needs_connection()) return &socket;
    // Usually both ranks want the connection, to send or to receive. The lower one makes it; the other waits for that,
    // but not for long.
    if (rank_ > peer) {
        const Instant now = Clock::now();
        Instant& wanted = wanted_[static_cast<std::size_t>(peer)];
        if (wanted == Instant{}) wanted = now;
        if (now - wanted < connection_patience) return nullptr;
    }
    try {
        socket.connected(membership_->connect(peer, Deadline::after(std::chrono::seconds(10)), &bad_news_));
    } catch (const DistError& error) {
        socket.give_up();
        on_verdict({rendezvous::VerdictKind::peer_lost, peer,
                    fmt::format("rank {} cannot be reached: {}", peer, error.what())});
    }
    return &socket;
}

void Group::abort(const std::string& reason) {
    membership_->flood({rendezvous::VerdictKind::aborted, rank_, reason});
    const std::lock_guard lock(mutex_);
    fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was aborted: {}", name_, reason))));
}

void Group::leave() {
    for (;;) {
        std::shared_ptr<Operation> pending;
        {
            const std::lock_guard lock(mutex_);
            if (left_) return;
            if (!collectives_.empty()) pending = collectives_.front();
        }
        if (!pending) break;
        try {
            wait(*pending, Deadline::never());
        } catch (const DistError&) {
            break;  // the group is unusable; there is nothing more to wait for
        }
    }
    // What was sent must have left this process before it goes.
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    for (;;) {
        const std::lock_guard lock(mutex_);
        if (failure_ || !mailbox_->output_pending() || deadline.expired()) break;
        progress();
    }
    std::exception_ptr disagreement;
    {
        const std::lock_guard lock(mutex_);
        if (!failure_ && arena_ && size_ > 1) {
            // Of two ranks that leave after collectives in which neither waited, the second sees the first.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            check_records(sequence_);
            disagreement = failure_;
        }
        left_ = true;
        fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", name_))));
    }
    membership_->flood({rendezvous::VerdictKind::left, rank_, {}});
    if (disagreement) std::rethrow_exception(disagreement);
}

// ---- what others say

void Group::on_verdict(const rendezvous::Verdict& verdict) {
    using rendezvous::VerdictKind;
    if (verdict.kind == VerdictKind::mismatch || verdict.kind == VerdictKind::timed_out) publish_tail(verdict.text);
    const std::lock_guard lock(verdict_mutex_);
    if (verdict.kind == rendezvous::VerdictKind::left && verdict.text.empty()) {
        gone_.push_back(verdict.rank);
        return;
    }
    if (!verdict_)
        verdict_ = verdict;
    else if (verdict_->kind == rendezvous::VerdictKind::left)
        verdict_ = verdict;  // a cause beats a symptom
    has_verdict_.store(true, std::memory_order_release);
    bad_news_.raise(verdict_->text);  // whoever is connecting need not go on
}

void Group::apply_verdict() {
    rendezvous::Verdict verdict;
    {
        const std::lock_guard lock(verdict_mutex_);
        verdict = *verdict_;
        has_verdict_.store(false, std::memory_order_relaxed);
    }
    if (failure_) return;
    std::string title =
        collectives_.empty() ? fmt::format("group \"{}\" ({} ranks)", name_, size_) : title_of(*collectives_.front());
    ErrorContext context;
    if (!collectives_.empty()) context = context_of(*collectives_.front());
    context.group = name_;
    context.rank = rank_;
    context.peer = verdict.rank;
    switch (verdict.kind) {
        case rendezvous::VerdictKind::mismatch:
        case rendezvous::VerdictKind::timed_out:
            fail_as_judged(inquiry_->learn().value_or(
                               record::Judgement{.text = verdict.text,
                                                 .peer = verdict.rank,
                                                 .sequence = context.sequence,
                                                 .disagreement = verdict.kind == rendezvous::VerdictKind::mismatch}),
                           context);
            break;
        case rendezvous::VerdictKind::aborted:
            fail(std::make_exception_ptr(
                Aborted(fmt::format("{}: aborted by rank {}: {}", title, verdict.rank, verdict.text), context)));
            break;
        case rendezvous::VerdictKind::peer_lost:
        case rendezvous::VerdictKind::left:
            fail(std::make_exception_ptr(PeerLost(fmt::format("{}: {}", title, verdict.text), context)));
            break;
    }
}

void Group::mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine) {
    using group::Fingerprint;
    if (!group::is_message(theirs) || !group::is_message(mine)) {
        return mismatch(peer, sequence,
                        fmt::format("rank {} called {}, but rank {} called {}", rank_, Fingerprint::describe(mine),
                                    peer, Fingerprint::describe(theirs)));
    }
    disagreed(peer, 0,
              fmt::format("group \"{}\": rank {} sent {}, but rank {} receives {}", name_, peer,
                          Fingerprint::describe(theirs), rank_, Fingerprint::describe(mine)));
}

void Group::mismatch(int peer, std::uint64_t sequence, const std::string& sides) {
    disagreed(peer, sequence,
              fmt::format("operation #{} in group \"{}\" ({} ranks): {}", sequence, name_, size_, sides));
}

void Group::disagreed(int peer, std::uint64_t sequence, const std::string& text) {
    if (failure_ || deferred_) return;
    fail_together({.headline = text, .sequence = sequence, .rank = rank_, .peer = peer, .disagreement = true},
                  {.sequence = sequence, .group = name_, .rank = rank_, .peer = peer});
}

ErrorContext Group::context_of(const Operation& operation) const {
    ErrorContext context;
    context.operation = operation.name;
    context.sequence = operation.sequence;
    context.group = name_;
    context.rank = rank_;
    context.elapsed = Clock::now() - operation.started;
    if (operation.execution) context.phase = operation.execution->where();
    return context;
}

std::string Group::title_of(const Operation& operation) const {
    const std::string number = operation.is_collective ? fmt::format(" #{}", operation.sequence) : std::string();
    return fmt::format("{}{} in group \"{}\" ({} ranks)", operation.name, number, name_, size_);
}

void Group::fail(std::exception_ptr error) {
    if (failure_) return;
    if (executing_) {
        if (!deferred_) deferred_ = error;
        return;
    }
    failure_ = error;
    record_failure(error);
    auto collectives = std::exchange(collectives_, {});
    auto messages = std::exchange(messages_, {});
    if (mailbox_) mailbox_->drop_all();
    for (const auto& operation : collectives) operation->execution.reset();
    for (const auto& operation : collectives) operation->complete(error);
    for (const auto& operation : messages) operation->complete(error);
}

}  // namespace tutti::detail
