#include "api/neighbor_graph.hpp"

#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "api/halos.hpp"
#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "operation/channel.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tutti::detail {
namespace {

constexpr const char* name = "NeighborGraph";

void check_list(const char* what, const std::vector<int>& ranks, const Group& group) {
    for (const int rank : ranks) {
        if (rank != no_rank) (void)api::rank_in(name, what, rank, std::nullopt, group);
    }
}

// How often each rank of the group is in a list.
std::vector<std::int32_t> counts_of(const std::vector<int>& list, const Group& group) {
    std::vector<std::int32_t> counts(static_cast<std::size_t>(group.size()));
    for (const int rank : list) {
        if (rank != no_rank) ++counts[static_cast<std::size_t>(group.ranks().rank_of(rank))];
    }
    return counts;
}

std::string times(std::int32_t count) {
    return count == 0 ? "not" : count == 1 ? "once" : fmt::format("{} times", count);
}

}  // namespace

NeighborGraphState::NeighborGraphState(std::vector<int> sources, std::vector<int> destinations,
                                       const NeighborGraphOptions& options)
    : group_(api::group_of(options.group, name)), sources_(std::move(sources)), destinations_(std::move(destinations)) {
    api::refuse_if_recorded(name);
    api::check_timeout(name, options.timeout);
    check_list("source", sources_, *group_);
    check_list("destination", destinations_, *group_);
    api::check_neighbor_group(name, *group_);
    compare(options.timeout);
    channel_ = Channel::of_neighbors(group_->index(), group_->next_neighbor_graph());
}

// Each rank tells each other how often it sends to it. Only ranks that disagree gather words for the error.
void NeighborGraphState::compare(std::chrono::milliseconds timeout) const {
    const api::HostBytes own;
    const auto run = [&](const api::PreparedOperation& operation) {
        operation->name = name;
        group_->run(operation);
    };
    const std::vector<std::int32_t> sent = counts_of(destinations_, *group_), expected = counts_of(sources_, *group_);
    std::vector<std::int32_t> told(sent.size());
    const ProcessGroup handle(group_);
    run(api::prepare(api::describe::all_to_all_single, told, sent, {.group = handle, .timeout = timeout}));
    std::int32_t differs = told != expected ? 1 : 0;
    run(api::prepare(api::describe::all_reduce, differs, {.op = ReduceOp::max, .group = handle, .timeout = timeout}));
    if (differs == 0) return;
    std::vector<std::string> words;
    const int me = group_->ranks().own_global();
    for (std::size_t r = 0; r < told.size(); ++r) {
        if (told[r] == expected[r]) continue;
        const int other = group_->ranks().global(static_cast<int>(r));
        words.push_back(
            fmt::format("rank {} lists rank {} {} as a destination, but rank {} lists rank {} {} as a source", other,
                        me, times(told[r]), me, other, times(expected[r])));
    }
    std::vector<std::string> all;
    for (const auto& of_rank : all_gather_object(words, {.group = handle}))
        all.insert(all.end(), of_rank.begin(), of_rank.end());
    TUTTI_ASSERT(!all.empty());
    constexpr std::size_t most = 8;  // a longer list says no more
    const std::size_t more = all.size() - std::min(all.size(), most);
    all.resize(all.size() - more);
    throw CollectiveMismatch(
        fmt::format("{} in group \"{}\" ({} ranks): {}{}: expected equal numbers", name, group_->name(), group_->size(),
                    fmt::join(all, "; "), more > 0 ? fmt::format("; and {} more pairs", more) : ""),
        {.operation = name, .group = group_->name(), .rank = me});
}

}  // namespace tutti::detail

namespace tutti {
namespace {

const detail::NeighborGraphState& checked(const char* method, const NeighborGraph& graph) {
    if (!graph) api::refuse("{}: this NeighborGraph is empty: expected one of lists of ranks", method);
    return *graph.state();
}

}  // namespace

NeighborGraph::NeighborGraph(std::vector<int> sources, std::vector<int> destinations,
                             const NeighborGraphOptions& options)
    : state_([&] {
          const record::PublicCall public_call("NeighborGraph");
          return std::make_shared<detail::NeighborGraphState>(std::move(sources), std::move(destinations), options);
      }()) {}
const std::vector<int>& NeighborGraph::sources() const {
    return checked("NeighborGraph.sources", *this).sources();
}
const std::vector<int>& NeighborGraph::destinations() const {
    return checked("NeighborGraph.destinations", *this).destinations();
}
ProcessGroup NeighborGraph::group() const {
    return ProcessGroup(checked("NeighborGraph.group", *this).group());
}

// ---- Meshes

MeshNeighbors mesh_neighbors(const DeviceMesh& mesh, MeshDim dim, const MeshNeighborsOptions& options) {
    if (options.distance < 1) api::refuse("mesh_neighbors: distance {}: expected at least 1", options.distance);
    const int size = mesh.size(dim), rank = mesh.get_local_rank(dim);
    if (rank < 0) return {};
    const std::vector<int> line = mesh[dim].mesh().ranks();
    TUTTI_ASSERT(line.size() == static_cast<std::size_t>(size));
    const auto at = [&](std::int64_t coordinate) {
        if (options.periodic) coordinate = (coordinate % size + size) % size;
        return coordinate >= 0 && coordinate < size ? line[static_cast<std::size_t>(coordinate)] : no_rank;
    };
    return {at(std::int64_t{rank} - options.distance), at(std::int64_t{rank} + options.distance)};
}

namespace {

// Divides `ranks` into `count` sizes in descending order, none above `most`, with the least sum.
std::vector<int> balanced(int ranks, std::size_t count, int most) {
    if (count == 1) return ranks <= most ? std::vector<int>{ranks} : std::vector<int>{};
    std::vector<int> best;
    for (int first = 1; first <= std::min(ranks, most); ++first) {
        if (ranks % first != 0) continue;
        std::vector<int> sizes = balanced(ranks / first, count - 1, first);
        if (sizes.empty()) continue;
        sizes.insert(sizes.begin(), first);
        const auto sum = [](const std::vector<int>& of) { return std::reduce(of.begin(), of.end(), std::int64_t{0}); };
        if (best.empty() || sum(sizes) < sum(best)) best = std::move(sizes);
    }
    return best;
}

}  // namespace

std::vector<int> balanced_mesh_shape(int ranks, std::vector<int> shape) {
    if (ranks < 1) api::refuse("balanced_mesh_shape: ranks {}: expected at least 1", ranks);
    if (shape.empty()) api::refuse("balanced_mesh_shape: shape is empty: expected a number for each dimension");
    std::int64_t given = 1;
    std::size_t open = 0;
    for (const int size : shape) {
        if (size < 0) api::refuse("balanced_mesh_shape: shape {}: expected sizes, or 0 for one to choose", shape);
        if (size == 0)
            ++open;
        else if (given <= ranks)
            given *= size;
    }
    if (open == 0 ? given != ranks : ranks % given != 0) {
        api::refuse("balanced_mesh_shape: shape {} for {} ranks: expected sizes whose product {} it", shape, ranks,
                    open == 0 ? "is" : "divides");
    }
    if (open == 0) return shape;
    const auto rest = static_cast<int>(ranks / given);
    const std::vector<int> sizes = balanced(rest, open, rest);
    TUTTI_ASSERT(sizes.size() == open);
    auto next = sizes.begin();
    for (int& size : shape) {
        if (size == 0) size = *next++;
    }
    return shape;
}

}  // namespace tutti
