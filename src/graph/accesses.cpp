#include "graph/accesses.hpp"

namespace tutti::graph {
namespace {

using Counts = std::vector<std::uint64_t>;
using Extent = CollectiveTraits::Extent;
using tutti::detail::Operation;

std::vector<Bytes> one_after_the_other(const std::byte* base, const Counts& counts, std::uint64_t element_bytes) {
    std::vector<Bytes> blocks;
    for (const std::uint64_t count : counts) {
        blocks.push_back({base, count * element_bytes});
        base += count * element_bytes;
    }
    return blocks;
}
std::vector<Bytes> anywhere(const std::byte* base, const Counts& counts, const Counts& offsets,
                            std::uint64_t element_bytes) {
    std::vector<Bytes> blocks;
    for (std::size_t i = 0; i < counts.size(); ++i)
        blocks.push_back({base + offsets[i] * element_bytes, counts[i] * element_bytes});
    return blocks;
}

Accesses hulls(const Operation& o) {
    Accesses found{{}, {}, true};
    const auto add = [](std::vector<Bytes>& to, const api::Range& r) {
        if (r.second > r.first) to.push_back({r.first, static_cast<std::uint64_t>(r.second - r.first)});
    };
    add(found.reads, o.reads);
    const bool sends = !o.is_collective && !o.is_receive;
    for (const TensorView& view : o.outputs) {
        if (view.element_count() == 0) continue;
        add(found.reads, api::range_of(view));  // bytes between its elements stay
        if (!sends) add(found.writes, api::range_of(view));
    }
    return found;
}

}  // namespace

Accesses accesses_of(const Operation& o) {
    if (o.begin || o.finish || !o.temporaries.empty()) return hulls(o);
    if (!o.is_collective) {
        const std::byte* at = o.is_receive ? o.transfer.target : o.transfer.source;
        const Bytes whole{at, o.transfer.bytes};
        return o.is_receive ? Accesses{{}, {whole}, false} : Accesses{{whole}, {}, false};
    }
    const algorithm::Request& r = o.request;
    const CollectiveTraits& traits = traits_of(r.collective);
    const auto at = [&](Extent extent, const std::byte* base, const Counts& counts, const Counts& offsets) {
        const std::uint64_t element = r.element_bytes;
        switch (extent) {
            case Extent::nothing: break;
            case Extent::whole: return std::vector<Bytes>{{base, r.count * element}};
            case Extent::own_block:
                return std::vector<Bytes>{{base, r.counts[static_cast<std::size_t>(r.rank)] * element}};
            case Extent::all_blocks: return one_after_the_other(base, r.counts, element);
            case Extent::exchanged: return anywhere(base, counts, offsets, element);
        }
        return std::vector<Bytes>{};
    };
    Accesses found;
    if (traits.reads(r.rank, r.root)) found.reads = at(traits.input, o.call.input, r.send_counts, r.send_offsets);
    const bool keeps_values = r.collective == Collective::broadcast && r.rank == r.root;
    if (traits.writes(r.rank, r.root) && !keeps_values)
        found.writes = at(traits.output, o.call.output, r.receive_counts, r.receive_offsets);
    return found;
}

}  // namespace tutti::graph
