// The halos of a tensor as messages along lines of ranks, for the C ABI too, which has no meshes.
//
// Threads: any.
#pragma once

#include "api/exchange.hpp"

#include <tutti/neighbors.hpp>

#include <memory>
#include <vector>

namespace tutti::api {

/// A Halo whose neighbours are those of this rank in a group: rank r is beside ranks r - 1 and r + 1 of the group.
struct LineHalo {
    int dim = 0;
    HaloWidth width = 1;
    bool periodic = false;
    std::shared_ptr<Group> line;
};

/// tutti::exchange_halos and its asynchronous form, along lines.
void exchange_halos(const TensorView& view, const std::vector<LineHalo>& halos, milliseconds timeout);
Work start_halos(const TensorView& view, const std::vector<LineHalo>& halos, milliseconds timeout);

/// Throws InvalidArgument if messages of a neighbours' call cannot go through the group: another's backend serves its
/// host memory.
void check_neighbor_group(const char* name, const Group& group);

Plan plan_of_exchange(std::shared_ptr<Exchange> exchange);

}  // namespace tutti::api
