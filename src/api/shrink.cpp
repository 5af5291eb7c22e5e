// ProcessGroup::shrink: the survivors of a group go on.
#include "api/arguments.hpp"
#include "api/next_name.hpp"
#include "core/assert.hpp"
#include "core/patience.hpp"
#include "group/surviving.hpp"
#include "record/call_site.hpp"
#include "rendezvous/failure_report.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti {

std::string api::next_name(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    const std::string digits = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (digits.empty() || digits.size() > 6 ||
        !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }))
        return name + ".1";
    return fmt::format("{}.{}", name.substr(0, dot), std::stoi(digits) + 1);
}

ProcessGroup ProcessGroup::shrink(const ShrinkOptions& o) const {
    const record::CallSite site;
    if (!*this) throw InvalidArgument("shrink: this rank has no such group: expected a group that it is in");
    const detail::Group& old = *group_;
    detail::World& world = old.world();
    const milliseconds timeout = api::survivors_timeout("shrink", o.timeout, o.patience, old.timeout());
    if (!world.end(fmt::format("rank {} asked for a smaller group (shrink)", world.rank())))
        throw InvalidArgument(
            fmt::format("shrink: group \"{}\" was destroyed here: expected one that is still held", old.name()));
    const auto terms = detail::survivors_terms(old, group_->next_shrink(), timeout, o.patience);
    const Store store = detail::store_of(old);
    rendezvous::Survivors survivors(terms);
    std::vector<int> ranks;
    {
        const Patience patience([&] { return survivors.awaited(); });
        ranks = rendezvous::carry_out({&store, 1}, survivors.agree(), [&] { return survivors.limit(); });
    }
    const auto own = std::ranges::find(ranks, old.rank());
    TUTTI_ASSERT(own != ranks.end() && std::ranges::is_sorted(ranks));
    std::vector<int> left_out;
    for (int rank = 0; rank < old.size(); ++rank) {
        if (!std::ranges::binary_search(ranks, rank)) left_out.push_back(rank);
    }
    TUTTI_ASSERT(ranks.size() + left_out.size() == static_cast<std::size_t>(old.size()));
    const std::string who = fmt::format("{} of \"{}\"", fmt::join(old.ranks().global(ranks), ", "), old.name());
    try {
        const bool of_job = rendezvous::is_rank_of_job(old.rank(), old.size());
        ProcessGroup smaller(detail::Group::of_all({.store = PrefixStore(terms.keys + "world", store),
                                                    .rank = static_cast<int>(own - ranks.begin()),
                                                    .world_size = static_cast<int>(ranks.size()),
                                                    .timeout = old.timeout(),
                                                    .name = api::next_name(old.name()),
                                                    .transport = world.transport(),
                                                    .determinism = old.determinism(),
                                                    .backend = backend::to_string(old.backends().names()),
                                                    .pg_options = old.backends().options(),
                                                    .device_id = old.backends().device(),
                                                    .listen_host = world.setup().listen_host},
                                                   {rendezvous::Attempt::Worlds::one,
                                                    {.deadline = survivors.deadline()},
                                                    "ranks " + who,
                                                    {.of = group_, .left_out = std::move(left_out)}}));
        if (of_job) rendezvous::report_member(smaller.rank(), smaller.size());
        return smaller;
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        throw Timeout(fmt::format("shrink: a rank was lost while ranks {} joined: {}", who, error.what()),
                      {.operation = "shrink", .group = old.name(), .rank = world.rank()});
    }
}

}  // namespace tutti
