// Making a world: membership, shared memory, streams; and waiting in one.
#include "world/world.hpp"

#include "algorithm/cost.hpp"
#include "algorithm/select.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/this_host.hpp"
#include "core/thread.hpp"
#include "object/codec.hpp"
#include "operation/fingerprint.hpp"
#include "rendezvous/failure_report.hpp"
#include "rendezvous/place.hpp"
#include "schedule/functions.hpp"
#include "tune/tune.hpp"
#include "world/worlds.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tutti::detail {

namespace {

// The decisions of rank 0 for all.
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
// A place of a ring that a rank writes the ordinary way among others that it does not stays in the writer's own cache,
// shared with the reader: that takes two to four times as long as if it writes all of them so.
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

algorithm::Layout layout_of(const std::vector<rendezvous::Card>& cards, TransportKind kind, const std::string& group) {
    algorithm::Layout layout;
    TUTTI_ASSERT(!cards.empty());
    std::unordered_map<std::string_view, int> hosts;
    for (std::size_t r = 0; r < cards.size(); ++r) {
        const int next = static_cast<int>(hosts.size());
        const bool is_alone = kind == TransportKind::tcp;
        layout.host_of.push_back(is_alone ? static_cast<int>(r) : hosts.emplace(cards[r].host_key, next).first->second);
    }
    if (kind == TransportKind::shm && hosts.size() > 1) {
        throw InvalidArgument(
            fmt::format("transport shm: the ranks of group \"{}\" are on {} hosts: expected one", group, hosts.size()));
    }
    TUTTI_ASSERT(layout.size() == static_cast<int>(cards.size()));
    layout.shared_memory = kind != TransportKind::tcp;
    return layout;
}

std::vector<int> ranks_of_host(const algorithm::Layout& layout, int rank) {
    std::vector<int> ranks;
    TUTTI_ASSERT(rank >= 0 && rank < layout.size());
    for (int r = 0; r < layout.size(); ++r) {
        if (layout.host_of[static_cast<std::size_t>(r)] == layout.host_of[static_cast<std::size_t>(rank)])
            ranks.push_back(r);
    }
    TUTTI_ASSERT(!ranks.empty() && std::ranges::is_sorted(ranks));
    return ranks;
}

// How the ranks of this host wait for each other.
void choose_waiting(Driver& driver, const std::vector<rendezvous::Card>& cards, int rank,
                    const std::optional<algorithm::CostModel>& costs) {
    TUTTI_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < cards.size());
    // Ranks of other name spaces (containers) run on the same cores, although they share no memory.
    const std::string machine = rendezvous::machine_of(cards[static_cast<std::size_t>(rank)].host_key);
    const auto ranks_of_machine = static_cast<int>(std::ranges::count_if(
        cards, [&](const auto& card) { return rendezvous::machine_of(card.host_key) == machine; }));
    // The core of a rank that is bound to one says nothing about the others' cores.
    const int cores = usable_cores(), yields = yields_before_sleep(costs);
    TUTTI_ASSERT(cores >= 1 && yields >= 1 && ranks_of_machine >= 1);
    for (Waiting* const waiting : {&driver.waiting(), &driver.brief_waiting()})
        waiting->choose(settings::wait(), ranks_of_machine, std::max(cores, this_host::cpus()), yields);
    driver.background_waiting().choose_beside(settings::wait(), cores == 1, yields);
}

// By rank. Bytes that stay in the memory of one kernel need none over TCP either.
std::vector<transport::Checksums> checksums(const std::vector<rendezvous::Card>& cards, int rank,
                                            settings::TcpChecksum kind) {
    using settings::TcpChecksum;
    const auto own = rendezvous::network_of(cards[static_cast<std::size_t>(rank)].host_key);
    std::vector<transport::Checksums> by_rank;
    for (const rendezvous::Card& card : cards) {
        const bool on =
            kind == TcpChecksum::on || (kind == TcpChecksum::automatic && rendezvous::network_of(card.host_key) != own);
        by_rank.push_back(on ? transport::Checksums::on : transport::Checksums::off);
    }
    TUTTI_ASSERT(by_rank.size() == cards.size());
    return by_rank;
}

}  // namespace

class World::Dialer final : public transport::Connector {
 public:
    explicit Dialer(World& world) : world_(world), membership_(*world.membership_) {}
    // Operations that wait for this connection, or for this thread, have their limits too.
    security::Connection connect(int peer, const Deadline& limit) override {
        return membership_.connect(peer, world_.flight_.first_deadline(limit), &world_.verdicts_.health().bad_news());
    }
    bool has_incoming() const noexcept override { return membership_.has_incoming(); }
    std::vector<std::pair<int, security::Connection>> take_incoming() override { return membership_.take_incoming(); }
    std::uint64_t next_round() const noexcept override { return membership_.next_round(); }
    bool is_through(std::uint64_t round) const noexcept override { return membership_.is_through(round); }

 private:
    World& world_;
    rendezvous::Membership& membership_;
};

World::World(const ProcessGroupOptions& options, rendezvous::Attempt& attempt, const JoiningTerms& joining)
    : setup_{.rank = options.rank,
             .size = options.world_size,
             .name = options.name,
             .timeout = settings::timeout().value_or(options.timeout),
             .determinism = options.determinism != Determinism::fast ? options.determinism : settings::determinism(),
             .listen_host = options.listen_host},
      groups_(options.name),
      verdicts_(options.rank, options.world_size, options.name, groups_, flight_, membership_),
      flight_(groups_, verdicts_),
      sharing_(options.rank, options.world_size, options.name,
               options.transport != TransportKind::automatic ? options.transport : settings::transport(),
               verdicts_.health()),
      departure_({.rank = setup_.rank,
                  .world = setup_.name,
                  .timeout = setup_.timeout,
                  .flight = flight_,
                  .driver = driver_,
                  .groups = groups_,
                  .verdicts = verdicts_,
                  .membership = membership_}),
      driver_(options.name, settings::progress_nice()) {
    try {
        meet_the_others(options, attempt, joining);
    } catch (const std::exception& error) {
        if (membership_ && !verdicts_.health().bad_news().raised()) verdicts_.tell_of_failed_join(error);
        rendezvous::report_failure(std::current_exception(), rank(), size(), {});
        membership_.reset();  // its thread needs all the rest
        throw;
    }
}

void World::meet_the_others(const ProcessGroupOptions& options, rendezvous::Attempt& attempt,
                            const JoiningTerms& joining) {
    check(options);
    worlds::leave_at_exit();
    env::warn_about_unknown_variables();
    const Deadline deadline = joining.deadline.value_or(Deadline::after(setup_.timeout));
    TUTTI_ASSERT(!membership_ && !neighbours_);
    const tune::Setting setting =
        tune::setting_from_environment(rank() == 0 ? tune::Files::read : tune::Files::ignored);
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
        options.store, rank(), size(), deadline, options.listen_host,
        [this](const rendezvous::Verdict& v) {
            verdicts_.hear(v);
            driver_.wake();
        },
        [&] {
            return size() > 1 ? tune::offer(setting, rank() == 0, options.store.backend()->round_trip())
                              : std::string();
        },
        decide, on_decision, [this](const UniqueFd& visitor) { sharing_.give_to(visitor); },
        transport::PeerMemory::place_to_try(), cannot_share, &attempt, joining.terms, joining.check});
    setup_.store = attempt.store();
    groups_.use(setup_.store);
    const auto& cards = membership_->cards();
    TUTTI_ASSERT(cards.size() == static_cast<std::size_t>(size()));
    layout_ = layout_of(cards, sharing_.transport(), name());
    const std::vector<int> here = ranks_of_host(layout_, rank());
    const auto shape = transport::ArenaLayout::of(static_cast<int>(here.size()), size());
    layout_.slot_bytes = shape.slot_bytes;
    layout_.slots = shape.slots;
    if (size() == 1) layout_.shared_memory = true;  // alone: the staging area is this rank's own
    std::vector<int> everyone(cards.size());
    std::iota(everyone.begin(), everyone.end(), 0);
    layout_.machines = machines_of(everyone);
    take_tuning(decision.tuning);
    choose_waiting(driver_, cards, rank(), layout_.tuning.costs);
    neighbours_ = sharing_.share(*membership_, here, decision.memory, deadline);
    TUTTI_ASSERT(neighbours_ != nullptr && neighbours_->ranks().size() == here.size());
    layout_.pulls = neighbours_->are_all() && neighbours_->read_memory();
    policies_.faults = Faults::from_environment(rank());
    make_links(static_cast<settings::TcpChecksum>(decision.checksum));
    driver_.attach(flight_, *neighbours_);
    if_inherited_ = worlds::add(*this);
    TUTTI_ASSERT(flight_.news_fd() >= 0 && if_inherited_ != nullptr);
    rendezvous::report_joined(rank(), size());
}

// A completion, or the end of a piece of news, may drop the last reference to a world on one of its own threads, which
// cannot wait for itself.
std::shared_ptr<World> World::join(const ProcessGroupOptions& options, rendezvous::Attempt& attempt,
                                   const JoiningTerms& joining) {
    return std::shared_ptr<World>(new World(options, attempt, joining), [](World* world) {
        if (world->inherited()) return;  // its threads are in another process, which owns its memory and peers
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
        departure_.leave();
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): no thread is left to tell
    }
    worlds::remove(*this);
    driver_.stop();
    TUTTI_ASSERT(!driver_.is_own_thread());
    membership_.reset();
}

// Rank 0's tuning, for all.
void World::take_tuning(const std::string& decision) {
    layout_.tuning = tune::decided(decision);
    for (const auto& user : layout_.tuning.schedules) {
        for (const std::string& name : user->contract().calls) {
            if (schedule::find_function(name) == nullptr)
                throw InvalidArgument(fmt::format(
                    "environment variable TUTTI_SCHEDULE: algorithm \"{}\" calls \"{}\", which this process does not "
                    "have: expected register_step_function(\"{}\", ...) before rank {} joins",
                    user->name(), name, name, rank()));
        }
    }
    if (const auto& costs = layout_.tuning.costs) {
        const double penalty_ns = 1 / costs->stream_read_gbps - 1 / costs->cache_copy_gbps;
        policies_.staging_copy = transport::StagingCopy(penalty_ns);
        policies_.small_copy = transport::StagingCopy(penalty_ns, least_streamed_bytes, returning_part);
    }
    // Rounding depends on the algorithm, and the formulas' choice on the measurements: a world that has to have the
    // same bits in every run gets the table's limits.
    if (setup_.determinism != Determinism::fast) layout_.tuning.costs.reset();
}

int World::machines_of(const std::vector<int>& ranks) const {
    TUTTI_ASSERT(membership_ != nullptr);
    std::unordered_set<std::string_view> machines;
    for (const int r : ranks) machines.insert(membership_->cards()[static_cast<std::size_t>(r)].host_key);
    TUTTI_ASSERT(machines.size() <= ranks.size());
    return static_cast<int>(machines.size());
}

void World::pass_on_host(const std::string& what, std::span<const int> ranks, std::span<UniqueFd> fds,
                         const Deadline& deadline) {
    HostSharing::pass_on(*membership_, rank(), what, ranks, fds, deadline, &verdicts_.health().bad_news());
    TUTTI_ASSERT(!ranks.empty() && !fds.empty());
}

// This rank notices a lost host before the patience for a connection ends.
void World::make_links(settings::TcpChecksum checksum) {
    TUTTI_ASSERT(!links_ && !mailbox_);
    dialer_ = std::make_unique<Dialer>(*this);
    links_ = std::make_unique<transport::Links>(
        transport::LinkOptions{.rank = rank(),
                               .congestion = transport::Congestion::from_environment(),
                               .lanes = transport::Lanes::from_environment(),
                               .checksums = checksums(membership_->cards(), rank(), checksum),
                               .patience = settings::lifeline_timeout() + connection_margin,
                               .short_copy = &policies_.small_copy},
        *neighbours_, *dialer_);
    mailbox_ = std::make_unique<transport::Mailbox>(rank(), size(), membership_->world_id(), *links_, groups_,
                                                    neighbours_.get());
    verdicts_.attach(*links_, *mailbox_);
    flight_.attach({.neighbours = neighbours_.get(),
                    .links = links_.get(),
                    .mailbox = mailbox_.get(),
                    .huge_pages = layout_.pulls ? &policies_.huge_pages : nullptr,
                    .news_fd = membership_->wake_fd()});
    if (!neighbours_->arena() || size() == 1) return;
    const bool own_core = driver_.waiting().has_own_core();
    transport::Arena::choose_fences(neighbours_->arena(), !own_core);
    static_assert(transport::Mailbox::pull_bytes_on_shared_cores == algorithm::least_pulled_from);
    static_assert(transport::Mailbox::pull_bytes_on_own_cores == algorithm::most_pulled_from);
    if (own_core) mailbox_->pull_from(algorithm::pulled_from(layout_.tuning.costs.value_or(algorithm::CostModel{})));
    if (!own_core && settings::wait() == settings::Wait::automatic) {
        policies_.cpu_balancer.emplace(neighbours_->arena(), neighbours_->own_local(),
                                       settings::spread() ? CpuBalancer::Moves::yes : CpuBalancer::Moves::no);
    }
    for (const int peer : neighbours_->ranks()) {
        if (peer != rank()) mailbox_->activate(peer);
    }
}

std::unique_lock<std::mutex> World::making() {
    if (inherited_) std::rethrow_exception(flight_.failure());
    return groups_.making();
}

void World::inherit() noexcept {
    TUTTI_ASSERT(!inherited_);
    groups_.renew_locks();
    verdicts_.health().renew();
    inherited_ = true;
    flight_.inherit(if_inherited_);
    TUTTI_ASSERT(flight_.failure() != nullptr);
}

// ---- Waiting

void World::drive_for(Operation& operation, Driving driving) {
    TUTTI_ASSERT(operation.group != nullptr);
    if (!driver_.lacks_thread() || operation.done() || operation.handed_over.request) return;
    if (driving == Driving::one_turn) {
        // A look never waits: the thread that has the lock moves the operations on. (It may run a function of Python's,
        // which wants the interpreter's lock, and this thread may hold that.)
        if (!flight_.mutex().try_lock()) return;
        const OperationsInFlight::Guard guard(flight_, std::adopt_lock);
        flight_.progress();
        flight_.check();
        return;
    }
    try {
        wait(operation, Deadline::never());
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the operation tells it
    }
}

void World::wait(Operation& operation, const Deadline& deadline, Waiting& waiting) {
    TUTTI_ASSERT(operation.group != nullptr);
    if (inherited_ && !operation.done()) std::rethrow_exception(flight_.failure());
    if (operation.handed_over.request) return operation.group->wait_for_handed_over(operation, deadline);
    const auto waited = driver_.wait([&] { return operation.done(); }, deadline, operation.deadline, waiting);
    if (waited == Driver::Waited::expired) {
        const std::lock_guard lock(flight_.mutex());
        if (operation.done()) return;
        const FailureInquiry& inquiry = operation.group->inquiry();
        throw Timeout(fmt::format("{}: wait timed out; the operation goes on", inquiry.title_of(operation)),
                      inquiry.context_of(operation));
    }
    TUTTI_ASSERT(waited != Driver::Waited::done || operation.done());
    if (waited == Driver::Waited::interrupted) {
        throw Aborted(fmt::format("{}: interrupted by a signal", operation.name), {.operation = operation.name},
                      ErrorCode::interrupted);
    }
}

void World::wait_for_call(Operation& operation, Waiting& waiting) {
    TUTTI_ASSERT(operation.group != nullptr);
    try {
        if (operation.device.type != Device::Type::cpu) {
            operation.group->wait_until_issued(operation);
            operation.make_wait(operation.stream);
        } else {
            wait(operation, Deadline::never(), waiting);
        }
    } catch (const Aborted& error) {
        if (error.code() == ErrorCode::interrupted) abort(fmt::format("rank {} was interrupted by a signal", rank()));
        throw;
    }
    TUTTI_ASSERT(operation.issued());
    if (const auto error = operation.error()) std::rethrow_exception(error);
}

void World::abort(const std::string& reason) {
    if (inherited_) std::rethrow_exception(flight_.failure());
    verdicts_.abort(reason);
}

std::exception_ptr World::failure() {
    if (inherited_) return flight_.failure();
    const OperationsInFlight::Guard guard(flight_);
    if (!departure_.has_left()) flight_.progress();
    return flight_.failure();
}

bool World::end(const std::string& reason) {
    if (inherited_) std::rethrow_exception(flight_.failure());
    {
        const OperationsInFlight::Guard guard(flight_);
        if (departure_.has_left()) return false;
        flight_.progress();  // a verdict that no thread has looked at is the cause
        if (flight_.failure()) return true;
    }
    abort(reason);
    return true;
}

}  // namespace tutti::detail
