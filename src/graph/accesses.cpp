#include "graph/accesses.hpp"

namespace tutti::graph {
namespace {

using Counts = std::vector<std::uint64_t>;
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
    const std::byte *in = o.call.input, *out = o.call.output;
    const std::uint64_t element = r.element_bytes;
    const bool is_root = r.rank == r.root;
    const auto own = [&](const std::byte* at) {
        return Bytes{at, r.counts[static_cast<std::size_t>(r.rank)] * element};
    };
    const auto all = [&](const std::byte* at) { return one_after_the_other(at, r.counts, element); };
    const Bytes whole{out, r.count * element};
    switch (r.collective) {
        case Collective::all_reduce: return {{whole}, {whole}, false};
        case Collective::broadcast: return is_root ? Accesses{{whole}, {}, false} : Accesses{{}, {whole}, false};
        case Collective::reduce:
            if (is_root) return {{whole}, {whole}, false};
            return {{{in, r.count * element}}, {}, false};
        case Collective::all_gather: return {{own(in)}, all(out), false};
        case Collective::gather: return {{own(in)}, is_root ? all(out) : std::vector<Bytes>(), false};
        case Collective::scatter: return {is_root ? all(in) : std::vector<Bytes>(), {own(out)}, false};
        case Collective::reduce_scatter: return {all(in), {own(out)}, false};
        case Collective::all_to_all:
            return {anywhere(in, r.send_counts, r.send_offsets, element),
                    anywhere(out, r.receive_counts, r.receive_offsets, element), false};
        default: return {};
    }
}

}  // namespace tutti::graph
