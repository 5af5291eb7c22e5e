// new_group, split, and the numbers of ranks in groups.
#include <tutti/groups.hpp>

#include "api/agreement.hpp"
#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "core/hash.hpp"
#include "core/rank_list.hpp"
#include "core/settings.hpp"
#include "core/text.hpp"
#include "group/group.hpp"
#include "record/call_site.hpp"

#include <tutti/error.hpp>
#include <tutti/meeting.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

namespace tutti {
namespace {

using detail::Group;
using detail::GroupMemory;
using detail::GroupPlace;
using detail::World;
using Ranks = std::vector<int>;

void check(const NewGroupOptions& o) {
    if (o.timeout && *o.timeout <= milliseconds::zero())
        throw InvalidArgument(fmt::format("new_group: timeout {} ms: expected more than zero", o.timeout->count()));
    if (!o.backend.empty() || o.device_id) backend::parse(o.backend, o.device_id, "new_group");
}

// The backends that move the data of a new group: those asked for, or those of `pattern`.
struct Movers {
    backend::Devices backends;
    std::any pg_options;
    std::optional<Device> device{};
};
Movers movers_of(const Group& pattern) {
    return {pattern.backends().names(), pattern.backends().options(), pattern.backends().device()};
}
Movers movers_of(const NewGroupOptions& o) {
    if (o.backend.empty() && !o.device_id) {
        Movers movers = movers_of(*api::group_of(o.world, "new_group"));
        if (o.pg_options.has_value()) movers.pg_options = o.pg_options;
        return movers;
    }
    return {backend::parse(o.backend, o.device_id, "new_group"), o.pg_options,
            o.device_id ? o.device_id : api::group_of(o.world, "new_group")->backends().device()};
}

milliseconds timeout_of(const NewGroupOptions& o, const Movers& movers) {
    if (o.timeout) return *o.timeout;
    return settings::timeout().value_or(backend::default_timeout_of(movers.backends));
}

// Ascending, each once, all of the world.
void check(Ranks& ranks, const World& world) {
    if (ranks.empty()) throw InvalidArgument("new_group: ranks is empty: expected at least one rank");
    std::ranges::sort(ranks);
    for (const int rank : {ranks.front(), ranks.back()}) {
        if (rank < 0 || rank >= world.size()) {
            throw InvalidArgument(
                fmt::format("new_group: ranks has {}: expected global ranks, 0 to {}", rank, world.size() - 1));
        }
    }
    if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
        throw InvalidArgument(fmt::format("new_group: ranks has {} twice: expected each rank once", *twice));
    TUTTI_ASSERT(std::ranges::is_sorted(ranks) && !ranks.empty());
}

// `parent`: a group all of whose ranks make this one together; null: only its members do.
ProcessGroup make(const std::shared_ptr<World>& world, const Ranks& ranks, GroupPlace place,
                  const std::string& description, milliseconds timeout, const Movers& movers,
                  const std::shared_ptr<const Group>& parent = nullptr) {
    TUTTI_ASSERT(!ranks.empty() && timeout.count() > 0);
    if (std::ranges::find(ranks, world->rank()) == ranks.end()) {
        if (parent) parent->backends().stay_out_of_split(movers.backends);
        return ProcessGroup::non_member();
    }
    const std::string name = fmt::format("{}_{}", description.empty() ? "group" : description, place.index);
    return ProcessGroup(Group::of_some(
        world, {place, ranks, name, description, timeout, movers.backends, movers.pg_options, movers.device, parent}));
}

std::string in_words(const std::vector<Ranks>& lists) {
    std::string text;
    for (const Ranks& ranks : lists) text += fmt::format("{}[{}]", text.empty() ? "" : ", ", fmt::join(ranks, ", "));
    return text;
}

// Throws on all ranks when one of them makes other groups.
void agree(const std::shared_ptr<Group>& all, const std::vector<Ranks>& lists) {
    const std::string mine = in_words(lists);
    api::agree(
        all, {.operation = "new_group",
              .making = group::Making::new_group,
              .digest = fnv1a(mine),
              .in_words = [&] { return fmt::format("{} of ranks {}", lists.size() == 1 ? "a group" : "groups", mine); },
              .expected = "the same groups in the same order",
              .count = lists.size()});
}

std::shared_ptr<World> world_of(const NewGroupOptions& o) {
    return api::group_of(o.world, "new_group")->shared_world();
}

std::shared_ptr<Group> all_of(const World& world) {
    if (auto all = detail::group_of_all(world)) return all;
    throw InvalidArgument("new_group: the group of all ranks is gone: expected a world that is in use");
}

// The same members may make several groups: they number them alike.
std::uint64_t next_number(const World& world, const Ranks& ranks) {
    static std::mutex mutex;
    static auto& numbers = *new std::map<std::pair<std::pair<std::uint64_t, int>, Ranks>, std::uint64_t>;
    const std::lock_guard lock(mutex);
    return numbers[{{world.id(), world.rank()}, ranks}]++;
}

// A group in the store's keys, and in messages: each member writes them, so they are short for long lists.
struct NamesOfGroup {
    std::string key, words, about;
    static NamesOfGroup of(const Ranks& ranks) {
        constexpr std::size_t most = 16;
        if (ranks.size() <= most) {
            const std::string list = fmt::format("[{}]", fmt::join(ranks, ", "));
            return {fmt::format("{}", fmt::join(ranks, ",")), list, "ranks " + list};
        }
        const std::string list = rank_list(ranks);
        return {fmt::format("{}:{:016x}", ranks.size(), api::digest(ranks, fnv1a_basis)), list, list};
    }
};

// The lowest takes the place, and no rank goes on before all members have come: the others of the world do not come.
GroupPlace meet_members(World& world, const Ranks& ranks, milliseconds timeout) {
    const NamesOfGroup names = NamesOfGroup::of(ranks);
    TUTTI_ASSERT(!ranks.empty());
    const auto own = static_cast<int>(std::ranges::find(ranks, world.rank()) - ranks.begin());
    TUTTI_ASSERT(own >= 0 && static_cast<std::size_t>(own) < ranks.size());
    std::string card;
    if (own == 0) {
        const std::uint64_t bytes = GroupMemory::part_bytes(world.layout().host_of, ranks);
        const GroupPlace place = world.groups().next_place_in_store(1, bytes);
        card = fmt::format("{} {}", place.index, place.offset);
    }
    const Met met = meet({.place = PrefixStore("group/" + world.name() + "/meetings", world.setup().store),
                          .name = fmt::format("{}#{}", names.key, next_number(world, ranks)),
                          .rank = own,
                          .size = static_cast<int>(ranks.size()),
                          .timeout = timeout,
                          .words = "makes the group of " + names.words,
                          .operation = "new_group",
                          .about = "of " + names.about,
                          .once = true,
                          .members = ranks},
                         card);
    TUTTI_ASSERT(met.cards.size() == ranks.size());
    const std::string& place = met.cards.front();
    const std::size_t space = place.find(' ');
    const auto index = number_in<std::uint32_t>(std::string_view(place).substr(0, space));
    const auto offset = number_in<std::uint64_t>(std::string_view(place).substr(std::min(place.size(), space + 1)));
    if (index && offset) return {*index, *offset};
    throw DistStoreError(
        fmt::format("new_group: the store says that the group's place is \"{}\": expected two numbers", place),
        {.operation = "new_group"});
}

ProcessGroup make_among_members(const std::shared_ptr<World>& world, const Ranks& ranks, const NewGroupOptions& o) {
    if (std::ranges::find(ranks, world->rank()) == ranks.end()) return ProcessGroup::non_member();
    const Movers movers = movers_of(o);
    const milliseconds timeout = timeout_of(o, movers);
    return make(world, ranks, meet_members(*world, ranks, timeout), o.group_desc, timeout, movers);
}

ProcessGroup own_of(const std::vector<ProcessGroup>& groups) {
    const auto own = std::ranges::find_if(groups, [](const ProcessGroup& group) { return static_cast<bool>(group); });
    return own == groups.end() ? ProcessGroup::non_member() : *own;
}

}  // namespace

std::vector<ProcessGroup> new_groups(std::vector<Ranks> lists, const NewGroupOptions& o) {
    const record::CallSite site;
    check(o);
    const std::shared_ptr<World> world = world_of(o);
    std::uint64_t bytes = 0;
    TUTTI_ASSERT(world != nullptr);
    for (Ranks& ranks : lists) {
        check(ranks, *world);
        bytes = std::max(bytes, GroupMemory::part_bytes(world->layout().host_of, ranks));
    }
    if (o.use_local_synchronization)
        throw InvalidArgument("new_groups: use_local_synchronization: expected new_group, one group at a time");
    if (lists.empty()) return {};
    const auto making = world->making();
    agree(all_of(*world), lists);
    // Ranks count alike: none has counted groups that they did not agree about.
    const GroupPlace first = world->groups().next_place(static_cast<std::uint32_t>(lists.size()), bytes);
    TUTTI_ASSERT(first.index > 0);
    const Movers movers = movers_of(o);
    const milliseconds timeout = timeout_of(o, movers);
    const std::shared_ptr<Group> whole = all_of(*world);
    std::vector<ProcessGroup> groups;
    for (std::uint32_t i = 0; i < lists.size(); ++i)
        groups.push_back(
            make(world, lists[i], {first.index + i, first.offset + i * bytes}, o.group_desc, timeout, movers, whole));
    TUTTI_ASSERT(groups.size() == lists.size());
    return groups;
}

ProcessGroup new_group(Ranks ranks, const NewGroupOptions& o) {
    const record::CallSite site;
    if (!o.use_local_synchronization) return new_groups({std::move(ranks)}, o).front();
    check(o);
    const std::shared_ptr<World> world = world_of(o);
    check(ranks, *world);
    return make_among_members(world, ranks, o);
}

ProcessGroup new_group(const NewGroupOptions& o) {
    const record::CallSite site;
    const std::shared_ptr<World> world = world_of(o);
    Ranks all;
    for (int r = 0; r < world->size(); ++r) all.push_back(r);
    return new_group(std::move(all), o);
}

std::pair<ProcessGroup, std::vector<ProcessGroup>> new_subgroups(int group_size, const NewGroupOptions& o) {
    const record::CallSite site;
    const int size = world_of(o)->size();
    if (group_size < 1 || size % group_size != 0) {
        throw InvalidArgument(fmt::format("new_subgroups: group_size {}: expected a divisor of {}, the number of ranks",
                                          group_size, size));
    }
    std::vector<Ranks> lists(static_cast<std::size_t>(size / group_size));
    for (int r = 0; r < size; ++r) lists[static_cast<std::size_t>(r / group_size)].push_back(r);
    TUTTI_ASSERT(lists.back().size() == static_cast<std::size_t>(group_size));
    return new_subgroups_by_enumeration(std::move(lists), o);
}

std::pair<ProcessGroup, std::vector<ProcessGroup>> new_subgroups_by_enumeration(std::vector<Ranks> lists,
                                                                                const NewGroupOptions& o) {
    const record::CallSite site;
    Ranks all;
    for (const Ranks& ranks : lists) all.insert(all.end(), ranks.begin(), ranks.end());
    std::ranges::sort(all);
    if (const auto twice = std::ranges::adjacent_find(all); twice != all.end()) {
        throw InvalidArgument(
            fmt::format("new_subgroups_by_enumeration: rank {} is listed twice: expected at most once", *twice));
    }
    auto groups = new_groups(std::move(lists), o);
    return {own_of(groups), std::move(groups)};
}

ProcessGroup ProcessGroup::split(const SplitOptions& o) const {
    const record::CallSite site;
    if (o.timeout && *o.timeout <= milliseconds::zero()) {
        throw InvalidArgument(
            fmt::format("ProcessGroup.split: timeout {} ms: expected more than zero", o.timeout->count()));
    }
    const std::shared_ptr<Group> parent = api::group_of(*this, "ProcessGroup.split");
    const std::shared_ptr<World>& world = parent->shared_world();
    // The first rank of a part of the world takes numbers before it knows how many: one for each rank suffices.
    std::array<std::uint64_t, 4> mine{static_cast<std::uint64_t>(o.color), static_cast<std::uint64_t>(o.key), 0, 0};
    const std::uint64_t bytes = GroupMemory::part_bytes(world->layout().host_of, parent->ranks().all());
    const auto most = static_cast<std::uint32_t>(parent->size());
    const auto making = world->making();
    GroupPlace first;
    if (parent->ranks().are_all()) {
        first = world->groups().next_place(most, bytes);
    } else if (parent->rank() == 0) {
        first = world->groups().next_place_in_store(most, bytes);
    }
    mine[2] = first.index, mine[3] = first.offset;
    const std::vector<std::uint64_t> all =
        api::gather_words(parent, mine, "ProcessGroup.split", group::Making::split, 0);
    TUTTI_ASSERT(all.size() == mine.size() * static_cast<std::size_t>(parent->size()));
    first = {static_cast<std::uint32_t>(all[2]), all[3]};

    std::map<int, std::vector<std::pair<int, int>>> colours;  // (key, rank)
    for (int r = 0; r < parent->size(); ++r) {
        const std::uint64_t* theirs = all.data() + static_cast<std::size_t>(r) * mine.size();
        colours[static_cast<int>(theirs[0])].emplace_back(static_cast<int>(theirs[1]), r);
    }
    Movers movers = movers_of(*parent);
    if (o.pg_options.has_value()) movers.pg_options = o.pg_options;
    if (o.color < 0) {
        parent->backends().stay_out_of_split(movers.backends);
        return non_member();
    }
    auto& members = colours[o.color];
    std::ranges::sort(members);
    Ranks ranks;
    for (const auto& [key, rank] : members) ranks.push_back(parent->ranks().global(rank));
    const auto before = static_cast<std::uint32_t>(std::distance(colours.begin(), colours.find(o.color)));
    TUTTI_ASSERT(!ranks.empty() && before < most);
    return make(world, ranks, {first.index + before, first.offset + before * bytes}, o.group_desc,
                o.timeout.value_or(parent->timeout()), movers, parent);
}

int get_group_rank(const ProcessGroup& group, int global_rank) {
    return ProcessGroup(api::group_of(group, "get_group_rank")).group_rank(global_rank);
}
int get_global_rank(const ProcessGroup& group, int group_rank) {
    return ProcessGroup(api::group_of(group, "get_global_rank")).global_rank(group_rank);
}
Ranks get_process_group_ranks(const ProcessGroup& group) {
    return api::group_of(group, "get_process_group_ranks")->ranks().all();
}
std::size_t shared_memory_bytes(const ProcessGroup& group) {
    const auto one = api::group_of(group, "shared_memory_bytes");
    const transport::Arena* const arena = one->memory().arena();
    return arena != nullptr ? arena->layout().rank_bytes() : 0;
}

}  // namespace tutti
