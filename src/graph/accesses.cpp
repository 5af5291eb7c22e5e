#include "graph/accesses.hpp"

#include "core/assert.hpp"

namespace tutti::graph {
namespace {

using tutti::detail::Operation;

std::vector<Bytes> at(const std::byte* base, const std::vector<engine::Stretch>& parts) {
    TUTTI_ASSERT(parts.empty() || base != nullptr || parts.front().bytes == 0);
    std::vector<Bytes> found;
    for (const engine::Stretch& part : parts) found.push_back({base + part.at, part.bytes});
    return found;
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
    TUTTI_ASSERT(o.group != nullptr);
    const engine::CollectiveCall& call = o.call;
    const CollectiveTraits& traits = traits_of(call.collective);
    const int rank = o.group->ranks().rank(), ranks = o.group->ranks().size();
    Accesses found;
    if (traits.reads(rank, call.root)) found.reads = at(call.input, call.input_parts(rank, ranks));
    const bool keeps_values = call.collective == Collective::broadcast && rank == call.root;
    if (traits.writes(rank, call.root) && !keeps_values) found.writes = at(call.output, call.output_parts(rank, ranks));
    return found;
}

}  // namespace tutti::graph
