// Making and leaving a group, issuing operations, and their names.
#include "group/group.hpp"

#include "core/assert.hpp"
#include "operation/fingerprint.hpp"
#include "operation/recording.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tutti::detail {
namespace {

std::string verdict_prefix(const World& world, std::uint32_t index) {
    const std::string own = index == 0 ? "" : fmt::format("/{}", index);
    return "group/" + world.name() + own + "/verdict";
}

// Where a transport of others carries a group's bytes, no rank shares memory with another one.
algorithm::Layout apart_if_carried(algorithm::Layout layout, const backend::Devices& backends) {
    const auto of_host = backends.find(Device::Type::cpu);
    if (layout.size() == 1 || of_host == backends.end() || !backend::is_transport(of_host->second)) return layout;
    std::iota(layout.host_of.begin(), layout.host_of.end(), 0);
    layout.shared_memory = layout.pulls = false;
    return layout;
}

}  // namespace

std::shared_ptr<Group> Group::of_all(const ProcessGroupOptions& options, Coming coming) {
    std::shared_ptr<World> world;
    rendezvous::Attempt attempt(options.store, options.name, coming.worlds_in_store);
    try {
        backend::Devices backends = backend::parse(options.backend, options.device_id, "ProcessGroup");
        world = World::join(options, attempt, coming.joining);
        return of_some(world, {.name = world->name(),
                               .description = std::move(coming.description),
                               .timeout = world->setup().timeout,
                               .backends = std::move(backends),
                               .pg_options = options.pg_options,
                               .device = options.device_id,
                               .predecessor = std::move(coming.predecessor),
                               .senior = coming.senior,
                               .is_newcomer = coming.is_newcomer});
    } catch (const std::exception& error) {  // the others are on their way, and wait for this rank
        if (world)
            world->verdicts().tell_of_failed_join(error);
        else
            attempt.say_failed(options.rank, options.world_size, error);
        throw;
    }
}

std::shared_ptr<Group> Group::of_some(const std::shared_ptr<World>& world, SubgroupSpec spec) {
    std::shared_ptr<Group> group(new Group(world, std::move(spec)));
    TUTTI_ASSERT(group->rank() >= 0 && group->rank() < group->size());
    world->groups().add(group->index_, group);
    return group;
}

Group::Group(std::shared_ptr<World> world, SubgroupSpec spec)
    : world_(std::move(world)),
      index_(spec.place.index),
      ranks_(std::move(spec.members), world_->rank(), world_->size()),
      name_(std::move(spec.name)),
      description_(std::move(spec.description)),
      timeout_(spec.timeout),
      senior_(spec.senior),
      is_newcomer_(spec.is_newcomer),
      planner_(apart_if_carried(layout_of(*world_, ranks_), spec.backends), ranks_.rank(),
               determinism() == Determinism::layout_invariant),
      recorder_(name_, rank(), size(), &group::Fingerprint::describe, ranks_.in_world()),
      inquiry_(name_, index_, ranks_, recorder_, PrefixStore(verdict_prefix(*world_, index_), world_->setup().store),
               world_->verdicts()),
      memory_(ranks_, planner_.layout().host_of, spec.place.offset, spec.backends, world_->neighbours(),
              world_->flight().mutex()),
      collectives_({.index = index_,
                    .ranks = ranks_,
                    .planner = planner_,
                    .memory = memory_,
                    .recorder = recorder_,
                    .inquiry = inquiry_,
                    .flight = world_->flight(),
                    .verdicts = world_->verdicts(),
                    .groups = world_->groups(),
                    .policies = world_->policies(),
                    .neighbours = world_->neighbours()}),
      short_calls_({.ranks = ranks_,
                    .collectives = collectives_,
                    .recorder = recorder_,
                    .flight = world_->flight(),
                    .driver = world_->driver(),
                    .policies = world_->policies(),
                    .neighbours = world_->neighbours(),
                    .wait_for_call = [world = world_.get()](Operation& call, Waiting& waiting) {
                        world->wait_for_call(call, waiting);
                    }}) {
    // Equal on the ranks of this group alone.
    recorder_.set_world(world_->id() + index_ * 0x9e3779b97f4a7c15ULL, world_->id());
    backends_ = std::make_unique<ForeignBackends>(*this, spec);
    TUTTI_ASSERT(backends_ != nullptr);
    if (ForeignTransport* const own = backends_->transport()) collectives_.talk_over(*own);
}

Group::~Group() {
    if (world_->inherited()) {  // their threads and connections are another process's
        backends_->forget();
        return;
    }
    backends_->drop();
    recorder_.dump_at_end(fmt::format("group \"{}\" was destroyed", name_), record::Recorder::End::over);
    memory_.leave();
}

algorithm::Layout Group::layout_of(World& world, const Ranks& ranks) {
    algorithm::Layout layout = world.layout();
    if (ranks.are_all()) return layout;
    // Numbers the hosts anew, in the order of the group's ranks.
    std::unordered_map<int, int> hosts;
    layout.host_of.clear();
    for (const int r : ranks.in_world()) {
        const int next = static_cast<int>(hosts.size());
        layout.host_of.push_back(
            hosts.emplace(world.layout().host_of[static_cast<std::size_t>(r)], next).first->second);
    }
    layout.slot_bytes = transport::ArenaLayout::of(1, layout.size()).slot_bytes;
    layout.machines = world.machines_of(ranks.in_world());
    layout.pulls = hosts.size() == 1 && world.neighbours().read_memory();
    if (layout.size() == 1) layout.shared_memory = true;  // alone: the staging area is this rank's own
    TUTTI_ASSERT(layout.size() == ranks.size());
    return layout;
}

std::shared_ptr<transport::SymmetricSegment> Group::make_symmetric(std::size_t bytes, const Deadline& deadline) {
    return memory_.make_symmetric(
        bytes, [&](std::uint64_t number, std::span<const int> ranks, std::span<UniqueFd> fds) {
            world_->pass_on_host(fmt::format("symmetric-{}-{}", index_, number), ranks, fds, deadline);
        });
}

void Group::choose_way(Operation& operation) {
    TUTTI_ASSERT(operation.is_collective && operation.run.sequence == 0);
    const std::lock_guard lock(world_->flight().mutex());
    collectives_.choose_path(operation);
    if (operation.path == Path::slots) return;
    TUTTI_ASSERT(operation.path.has_value());
    operation.schedule = planner_.plan(operation.call, {.symmetric = operation.is_symmetric});
}

void Group::refuse_if_over(const char* name) const {
    if (const auto& failure = world_->flight().failure()) inquiry_.refuse(name, failure);
    if (left_)
        inquiry_.refuse(name, std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was destroyed", name_))));
}

void Group::begin(const std::shared_ptr<Operation>& operation) {
    TUTTI_ASSERT(operation != nullptr && !operation->done());
    refuse_if_over(operation->name);
    operation->run.started = Clock::now();
    operation->deadline = Deadline::after(operation->timeout, operation->run.started);
    operation->group = shared_from_this();
    if (operation->is_collective) operation->run.sequence = collectives_.next_number();
    TUTTI_ASSERT(operation->group.get() == this && operation->timeout.count() > 0);
    operation->run.ticket = recording::begin(recorder_, ranks_, *operation);
    if (Faults* const faults = world_->policies().faults.get()) operation->run.fault = faults->begin(operation->name);
}

void Group::end(const std::shared_ptr<Operation>& operation, const std::exception_ptr& error) {
    TUTTI_ASSERT(operation->group.get() == this && !operation->done());
    recording::end(recorder_, ranks_, *operation, error == nullptr);
    world_->flight().complete(operation, error);
}

void Group::submit(const std::shared_ptr<Operation>& operation, bool asynchronous) {
    TUTTI_ASSERT(operation != nullptr && !operation->done());
    if (operation->begin) operation->begin();
    if (backends_->submit(operation)) return;
    {
        const OperationsInFlight::Guard guard(world_->flight());
        if (!operation->is_collective && !operation->is_receive)
            world_->flight().hear();  // a message that is sent at once succeeds, even if a failure follows
        begin(operation);
        if (operation->is_collective) {
            collectives_.push(operation);
        } else {
            if (operation->run.fault)
                world_->policies().faults->turn(*operation->run.fault, false, true, world_->links(),
                                                inquiry_.title_of(*operation));
            world_->flight().post(operation);
        }
        world_->flight().progress();
    }
    if (asynchronous && !operation->done()) {
        using Start = Driver::Start;
        world_->driver().drive_in_background(operation->caller_goes_on ? Start::at_once : Start::after_a_moment);
    }
}

void Group::run(const std::shared_ptr<Operation>& operation) {
    submit(operation, false);
    world_->wait_for_call(*operation);
    TUTTI_ASSERT(operation->issued() && !operation->error());
}

void Group::leave() {
    if (world_->inherited()) return;  // a child's actions concern no other rank
    if (ranks_.are_all()) {
        for (const auto& group : world_->groups().all()) static_cast<Group&>(*group).backends().leave();
        world_->departure().leave();
        for (const auto& group : world_->groups().all()) static_cast<Group&>(*group).backends().close();
        return;
    }
    backends_->leave();
    {
        const OperationsInFlight::Guard guard(world_->flight());
        if (std::exchange(left_, true)) return;
        short_calls_.close();
    }
    TUTTI_ASSERT(left_ && !ranks_.are_all());
    world_->departure().leave(*this);
    backends_->close();
    memory_.leave();
}

}  // namespace tutti::detail
