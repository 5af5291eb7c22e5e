#include "ddp/buckets.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace tutti::ddp {

Buckets assign_buckets(std::span<const Gradient> gradients, std::span<const std::size_t> order, BucketCaps caps) {
    TUTTI_ASSERT(order.size() == gradients.size());
    TUTTI_ASSERT(caps.first <= caps.others);
    struct Open {
        std::vector<std::size_t> members;
        std::size_t bytes = 0, last = 0;  // last: where its last member stands in the order
        bool is_first = true;
    };
    using Kind = std::tuple<DType, Device::Type, int>;
    std::map<Kind, Open> open;
    std::vector<std::pair<std::size_t, std::vector<std::size_t>>> closed;  // by `last`
    for (std::size_t position = 0; position < order.size(); ++position) {
        const Gradient& gradient = gradients[order[position]];
        Open& bucket = open[{gradient.dtype, gradient.device.type, gradient.device.index}];
        bucket.members.push_back(order[position]);
        bucket.bytes += gradient.bytes;
        bucket.last = position;
        if (bucket.bytes < (bucket.is_first ? caps.first : caps.others)) continue;
        closed.emplace_back(bucket.last, std::move(bucket.members));
        bucket = {.members = {}, .is_first = false};
    }
    for (auto& [kind, bucket] : open) {
        if (!bucket.members.empty()) closed.emplace_back(bucket.last, std::move(bucket.members));
    }
    std::ranges::sort(closed, {}, &std::pair<std::size_t, std::vector<std::size_t>>::first);
    TUTTI_ASSERT(std::ranges::none_of(closed, [](const auto& bucket) { return bucket.second.empty(); }));
    Buckets buckets;
    for (auto& [last, members] : closed) buckets.push_back(std::move(members));
    return buckets;
}

}  // namespace tutti::ddp
