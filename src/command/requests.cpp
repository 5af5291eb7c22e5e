#include "command/requests.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::command {

std::vector<std::string> planned_collectives() {
    std::vector<std::string> names;
    for (int c = 1; c <= collective_count; ++c) names.emplace_back(to_string(static_cast<Collective>(c)));
    return names;
}

algorithm::Request request_for(const std::string& collective, std::uint64_t bytes, DType dtype, int ranks) {
    const auto names = planned_collectives();
    const auto found = std::ranges::find(names, collective);
    if (found == names.end()) {
        throw InvalidArgument(fmt::format("collective \"{}\": expected one of {}", collective, fmt::join(names, ", ")));
    }
    algorithm::Request request;
    request.collective = static_cast<Collective>(1 + (found - names.begin()));
    request.element_bytes = size_of(dtype);
    request.single_rounding = is_low_precision(dtype);
    const auto n = static_cast<std::uint64_t>(ranks);
    const std::uint64_t count = bytes / request.element_bytes;
    const std::vector<std::uint64_t> blocks(n, count / n);
    switch (request.collective) {
        case Collective::all_reduce:
        case Collective::broadcast:
        case Collective::reduce: request.count = count; break;
        case Collective::all_gather:
        case Collective::gather:
        case Collective::scatter:
        case Collective::reduce_scatter: request.counts = blocks; break;
        case Collective::all_to_all:
            request.send_counts = request.receive_counts = blocks;
            for (std::uint64_t r = 0; r < n; ++r) request.send_offsets.push_back(r * (count / n));
            request.receive_offsets = request.send_offsets;
            request.largest_count = count / n;
            request.even = true;
            break;
        case Collective::barrier: break;
    }
    return request;
}

}  // namespace tutti::command
