// Growing: processes that come later join a group that exists (rendezvous/growth.hpp), in a world of its own.
#include "api/arguments.hpp"
#include "api/next_name.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/this_host.hpp"
#include "group/surviving.hpp"
#include "record/call_site.hpp"
#include "rendezvous/failure_report.hpp"
#include "rendezvous/growth.hpp"

#include <tutti/error.hpp>
#include <tutti/newcomers.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <functional>

namespace tutti {
namespace {

using rendezvous::GrowthPlan;

/// The part of the store in which newcomers wait.
Store waiting_room(const Store& place, const std::string& name, const char* operation) {
    if (!place) api::refuse("{}: place is no store: expected the one in which newcomers and ranks meet", operation);
    if (name.empty()) api::refuse("{}: name is empty: expected the name of the newcomers' place", operation);
    return PrefixStore("newcomers/" + name, place);
}

rendezvous::KeyReader keys_in(std::span<const Store> stores) {
    return [stores](int store, const std::string& key) -> std::optional<std::string> {
        const Store& at = stores[static_cast<std::size_t>(store)];
        const auto answer = rendezvous::perform(at, rendezvous::ask::read(key), at.timeout());
        if (!answer.is_there()) return std::nullopt;
        return answer.value();
    };
}

/// Waits for all ranks of the new group, and looks now and then whether others have given up. Returns their trouble.
std::string meet_all(const ProcessGroup& group, const Deadline& deadline, const std::function<std::string()>& look) {
    constexpr milliseconds between_looks{250};
    Work all = async::barrier({.group = group, .timeout = deadline.timeout()});
    while (!all.is_completed()) {
        try {
            all.wait(between_looks);
        } catch (const Timeout&) {
            if (all.is_completed()) break;
            if (std::string trouble = look(); !trouble.empty()) {
                (void)group.impl()->world().end(trouble);
                return trouble;
            }
        }
    }
    all.wait();
    return {};
}

/// What the group's ranks and a newcomer do alike: all join the new world, and leave it again if one could not.
/// `of_job`: the new group is the job's, so its launcher learns this process's number.
std::shared_ptr<detail::Group> join_new_world(const GrowthPlan& plan, int rank, const Store& room, bool of_job,
                                              ProcessGroupOptions options, std::function<void()> check) {
    const Deadline deadline = Deadline::after(milliseconds(plan.joining_ms));
    options.store = PrefixStore(rendezvous::growth_key::world(plan.number), room);
    options.rank = rank;
    options.world_size = plan.size();
    options.timeout = milliseconds(plan.timeout_ms);
    options.name = plan.name;
    options.transport = static_cast<TransportKind>(plan.transport);
    options.determinism = static_cast<Determinism>(plan.determinism);
    options.backend = plan.backend;
    const auto not_made = [&](const std::string& why) {
        return fmt::format("grow: the group of {} was not made: {}", plan.description, why);
    };
    ErrorContext context{.operation = "grow", .group = plan.name, .rank = rank};
    std::shared_ptr<detail::Group> group;
    try {
        group = detail::Group::of_all(options, {.worlds_in_store = rendezvous::Attempt::Worlds::one,
                                                .joining = {.deadline = deadline, .check = std::move(check)},
                                                .description = plan.description,
                                                .senior = plan.senior(),
                                                .is_newcomer = plan.old_ranks[static_cast<std::size_t>(rank)] < 0});
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        throw Timeout(not_made(error.what()), context);
    } catch (const PeerLost& error) {
        context.peer = error.context().peer;
        throw PeerLost(not_made(error.what()), context);
    } catch (const DistNetworkError& error) {  // a rank could not be reached
        if (error.code() != ErrorCode::network) throw;
        context.peer = error.context().peer;
        throw PeerLost(not_made(error.what()), context);
    }
    // Before the barrier: a launcher that sees another rank end by itself knows of this one.
    if (of_job) rendezvous::report_member(rank, plan.size());
    std::string trouble;
    try {
        trouble = meet_all(ProcessGroup(group), deadline, [&] {
            return rendezvous::trouble_of_others(plan.number, keys_in({&room, 1}));
        });
    } catch (const DistBackendError& error) {
        trouble = error.what();
        context.peer = error.context().peer;
    }
    trouble = rendezvous::carry_out({&room, 1}, rendezvous::agree_whether_made(plan.number, trouble),
                                    [&] { return room.timeout(); });
    if (!trouble.empty()) throw PeerLost(not_made(trouble), context);
    return group;
}

}  // namespace

ProcessGroup ProcessGroup::grow(const GrowOptions& o) const {
    const record::CallSite site;
    if (o.count < 0) api::refuse("grow: count is {}: expected zero or more newcomers", o.count);
    if (o.at_least && *o.at_least < 0) api::refuse("grow: at_least is {}: expected zero or more", *o.at_least);
    if (o.wait && *o.wait < milliseconds::zero())
        api::refuse("grow: wait {} ms: expected zero or more", o.wait->count());
    if (!*this) api::refuse("grow: this rank has no such group: expected a group that it is in");
    const std::shared_ptr<detail::Group> old = group_;
    const milliseconds timeout = api::survivors_timeout("grow", o.timeout, o.patience, old->timeout());
    detail::World& world = old->world();
    const std::array stores{waiting_room(o.place, o.name, "grow"), detail::store_of(*old)};
    // All ranks count their growths alike; each may ask once for survivors.
    const int growth = old->next_growth();
    const auto end = [&] {
        if (!world.end(fmt::format("rank {} asked for another group (grow)", world.rank())))
            api::refuse("grow: group \"{}\" was destroyed here: expected one that is still held", old->name());
    };
    auto survivors = detail::survivors_terms(*old, growth, timeout, o.patience);
    survivors.keys = fmt::format("grow/{}/survivors/", growth);
    rendezvous::Growth talk({.place = stores[0].describe(),
                             .keys = fmt::format("grow/{}/", growth),
                             .count = o.count,
                             .at_least = o.at_least,
                             .wait = o.wait,
                             .plan = {.name = api::next_name(old->name()),
                                      .backend = backend::to_string(old->backends().names()),
                                      .timeout_ms = old->timeout().count(),
                                      .transport = static_cast<std::int64_t>(world.transport()),
                                      .determinism = static_cast<std::int64_t>(old->determinism())},
                             .survivors = std::move(survivors),
                             .failure = [&world] { return world.failure(); },
                             .end = end});
    GrowthPlan plan;
    {
        const Patience patience([&] { return talk.awaited(); });
        plan = rendezvous::carry_out(std::span<const Store>(stores), talk.agree(), [&] { return talk.limit(); });
    }
    if (!talk.labels().empty()) TUTTI_INFO("group \"{}\" takes in {}", old->name(), fmt::join(talk.labels(), ", "));
    if (plan.number.empty()) return *this;
    return ProcessGroup(join_new_world(plan, plan.rank_of(old->rank()), stores[0],
                                       rendezvous::is_rank_of_job(old->rank(), old->size()),
                                       {.pg_options = old->backends().options(),
                                        .device_id = old->backends().device(),
                                        .listen_host = world.setup().listen_host},
                                       [&] { talk.check(keys_in(stores)); }));
}

void ProcessGroup::adopt(const std::vector<TensorView>& tensors) const {
    const record::CallSite site;
    if (!*this) api::refuse("adopt: this rank has no such group: expected a group that it is in");
    std::vector<Work> works;
    for (const TensorView& tensor : tensors)
        works.push_back(async::broadcast(tensor, {.group = *this, .group_src = group_->senior()}));
    for (Work& work : works) work.wait();
}

ProcessGroup join(const JoinOptions& o) {
    const record::CallSite site;
    if (o.timeout <= milliseconds::zero())
        api::refuse("join: timeout {} ms: expected more than zero", o.timeout.count());
    const std::array stores{waiting_room(o.place, o.name, "join")};
    rendezvous::Newcomer talk(
        {.place = stores[0].describe(),
         .name = o.name,
         .label = o.label.empty() ? fmt::format("process {} of {}", ::getpid(), this_host::name()) : o.label,
         .timeout = o.timeout});
    GrowthPlan plan;
    {
        const Patience patience([&] { return talk.awaited(); });
        plan = rendezvous::carry_out(std::span<const Store>(stores), talk.come(), [&] { return talk.limit(); });
    }
    return ProcessGroup(join_new_world(plan, talk.rank(), stores[0], true,
                                       {.pg_options = o.pg_options, .listen_host = o.listen_host},
                                       [&] { talk.check(keys_in(stores)); }));
}

int newcomers_waiting(const NewcomersPlace& place) {
    const std::array stores{waiting_room(place.place, place.name, "newcomers_waiting")};
    const auto limit = [&] { return stores[0].timeout(); };
    return static_cast<int>(
        rendezvous::carry_out(std::span<const Store>(stores), rendezvous::waiting_newcomers(), limit).size());
}

}  // namespace tutti
