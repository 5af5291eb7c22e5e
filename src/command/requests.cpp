#include "command/requests.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::command {

std::vector<std::string> planned_collectives() {
    std::vector<std::string> names;
    for (const CollectiveTraits& traits : collective_table) names.emplace_back(traits.name);
    TUTTI_ASSERT(!names.empty());
    return names;
}

algorithm::Request request_for(const std::string& collective, std::uint64_t bytes, DType dtype, int ranks) {
    const auto found = collective_named(collective);
    if (!found) {
        throw InvalidArgument(
            fmt::format("collective \"{}\": expected one of {}", collective, fmt::join(planned_collectives(), ", ")));
    }
    algorithm::Request request;
    request.collective = *found;
    request.element_bytes = size_of(dtype);
    request.dtype = dtype;
    request.single_rounding = is_low_precision(dtype);
    if (traits_of(*found).combines) request.op = ReduceOp::Kind::sum;
    const auto n = static_cast<std::uint64_t>(ranks);
    TUTTI_ASSERT(ranks >= 1 && request.element_bytes > 0);
    const std::uint64_t count = bytes / request.element_bytes;
    const std::vector<std::uint64_t> blocks(n, count / n);
    const CollectiveTraits& traits = traits_of(*found);
    if (traits.has_blocks()) {
        request.counts = blocks;
    } else if (traits.input == CollectiveTraits::Extent::whole) {
        request.count = count;
    } else if (traits.input == CollectiveTraits::Extent::exchanged) {
        algorithm::set_even_blocks(request, ranks, count / n);
    }
    return request;
}

}  // namespace tutti::command
