// The initial contents of every collective, and its promises about its outputs.
#include "core/assert.hpp"
#include "schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::schedule {
namespace {

std::uint64_t sum_before(const std::vector<std::uint64_t>& counts, Rank end) {
    TUTTI_ASSERT(end >= 0 && static_cast<std::size_t>(end) <= counts.size());
    return std::accumulate(counts.begin(), counts.begin() + end, std::uint64_t{0});
}

// How often the contribution was encoded that was encoded most often.
std::uint64_t most_encodings(const Symbol& value) {
    std::uint64_t most = 0;
    for (std::size_t part = 0; part < value.parts.size(); ++part) {
        const auto times = std::ranges::count_if(value.roundings, [&](const Rounding& r) {
            return r.by == Rounding::By::codes && part >= r.first && part < r.last;
        });
        most = std::max(most, static_cast<std::uint64_t>(times));
    }
    return most;
}

// The first loss that the contract does not allow. Copies are not rounded.
std::string lost(const Symbol& value, const Contract& contract, bool is_copy = false) {
    for (const Rounding& r : value.roundings) {
        if (r.by == Rounding::By::codes) {
            if (!contract.codes || r.to != to_string(*contract.codes))
                return fmt::format("was made codes {0}, which no line \"codes {0} TIMES\" allows", r.to);
        } else if (r.by == Rounding::By::call) {
            if (std::ranges::find(contract.calls, r.to) == contract.calls.end())
                return fmt::format("was changed by {0}, which no line \"calls {0}\" allows", r.to);
        } else if (is_copy) {
            return fmt::format("was rounded to {}, but is to be a copy", r.to);
        } else if (std::ranges::none_of(contract.rounds_to, [&](DType to) { return r.to == to_string(to); })) {
            return fmt::format("was rounded to {0}, which no line \"rounds_to {0}\" allows", r.to);
        }
    }
    const std::uint64_t most = most_encodings(value);
    if (most > contract.encodings)
        return fmt::format("was made codes {} times: expected {} at most", most, contract.encodings);
    return {};
}

// `count` elements from `at` on are those of rank `from` from `index` on.
std::string not_a_copy(const Values& output, std::uint64_t at, Rank from, std::uint64_t index, std::uint64_t count,
                       const Contract& contract) {
    TUTTI_ASSERT(from >= 0);
    TUTTI_ASSERT(at + count <= output.size());
    for (std::uint64_t i = 0; i < count; ++i) {
        const Value& value = output[at + i];
        if (const std::string loss = value ? lost(*value, contract, true) : ""; !loss.empty())
            return fmt::format("element {} {}", at + i, loss);
        if (!value || value->parts != std::vector{static_cast<std::uint32_t>(from)} || value->index != index + i) {
            return fmt::format("element {} is not element {} of rank {}", at + i, index + i, from);
        }
    }
    return {};
}

// The first `count` elements are the combinations of those of the ranks before `end` from `first` on. A prefix goes on
// to the next ranks, which combine it with theirs: nobody finishes it.
std::string not_reduced(const Values& output, std::uint64_t first, std::uint64_t count, int end,
                        const Contract& contract) {
    TUTTI_ASSERT(count <= output.size());
    const bool is_prefix = traits_of(contract.collective).is_prefix();
    for (std::uint64_t i = 0; i < count; ++i) {
        if (!output[i]) return fmt::format("element {} is never written", i);
        Symbol value = *output[i];
        if (value.index != first + i) return fmt::format("element {} holds another element", i);
        if (const std::string loss = lost(value, contract); !loss.empty()) return fmt::format("element {} {}", i, loss);
        if (!value.finished && !is_prefix) return fmt::format("element {} is not finished", i);
        if (contract.single_rounding && value.combinations > 1) {
            return fmt::format("element {} was rounded {} times", i, value.combinations);
        }
        if (!contract.rank_order) std::ranges::sort(value.parts);
        bool right = value.parts.size() == static_cast<std::size_t>(end);
        for (std::size_t p = 0; right && p < value.parts.size(); ++p) right = value.parts[p] == p;
        if (!right) {
            return fmt::format("element {} misses or repeats contributions, or has them in another order", i);
        }
    }
    return {};
}

// Where the blocks of an all_to_all begin.
std::uint64_t send_offset(const Contract& contract, Rank rank, Rank peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < contract.matrix.size());
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < contract.matrix.size());
    const auto me = static_cast<std::size_t>(rank);
    if (!contract.send_offsets.empty()) return contract.send_offsets[me][static_cast<std::size_t>(peer)];
    return sum_before(contract.matrix[me], peer);
}
std::uint64_t receive_offset(const Contract& contract, Rank rank, Rank peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < contract.matrix.size());
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < contract.matrix.size());
    const auto me = static_cast<std::size_t>(rank);
    if (!contract.receive_offsets.empty()) return contract.receive_offsets[me][static_cast<std::size_t>(peer)];
    std::uint64_t sum = 0;
    for (std::size_t from = 0; from < static_cast<std::size_t>(peer); ++from) sum += contract.matrix[from][me];
    return sum;
}

// Every block is where it belongs, and the gaps between blocks are untouched.
std::string not_exchanged(const Values& output, Rank rank, int size, const Contract& contract) {
    TUTTI_ASSERT(rank >= 0 && rank < size);
    std::vector<bool> covered(output.size());
    for (Rank from = 0; from < size; ++from) {
        const std::uint64_t at = receive_offset(contract, rank, from);
        const std::uint64_t count = contract.matrix[static_cast<std::size_t>(from)][static_cast<std::size_t>(rank)];
        TUTTI_ASSERT(at + count <= output.size());
        auto wrong = not_a_copy(output, at, from, send_offset(contract, from, rank), count, contract);
        if (!wrong.empty()) return wrong;
        std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(at), count, true);
    }
    for (std::size_t i = 0; i < output.size(); ++i) {
        if (!covered[i] && output[i]) return fmt::format("element {} is written, but no block has it", i);
    }
    return {};
}

// How many elements a buffer of a rank has, and where the blocks begin of an exchange, given by rank and peer.
template <class Offset>
std::uint64_t length(CollectiveTraits::Extent extent, Rank rank, int size, const Contract& contract, Offset offset) {
    TUTTI_ASSERT(rank >= 0 && rank < size);
    using Extent = CollectiveTraits::Extent;
    switch (extent) {
        case Extent::nothing: return 0;
        case Extent::whole: return contract.count;
        case Extent::own_block: return contract.counts[static_cast<std::size_t>(rank)];
        case Extent::all_blocks: return sum_before(contract.counts, size);
        case Extent::exchanged: break;
    }
    std::uint64_t end = 0;
    for (Rank peer = 0; peer < size; ++peer) end = std::max(end, offset(peer));
    return end;
}
std::uint64_t input_length(Rank rank, int size, const Contract& contract) {
    const CollectiveTraits& traits = traits_of(contract.collective);
    if (!traits.reads(rank, contract.root)) return 0;
    return length(traits.input, rank, size, contract, [&](Rank peer) {
        return send_offset(contract, rank, peer) +
               contract.matrix[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
    });
}
std::uint64_t output_length(Rank rank, int size, const Contract& contract) {
    const CollectiveTraits& traits = traits_of(contract.collective);
    if (!traits.writes(rank, contract.root)) return 0;
    return length(traits.output, rank, size, contract, [&](Rank peer) {
        return receive_offset(contract, rank, peer) +
               contract.matrix[static_cast<std::size_t>(peer)][static_cast<std::size_t>(rank)];
    });
}

}  // namespace

std::pair<Values, Values> starting_with(Rank rank, int size, const Contract& contract) {
    TUTTI_ASSERT(rank >= 0 && rank < size);
    TUTTI_ASSERT(contract.root >= 0 && contract.root < size);
    const std::uint64_t input = input_length(rank, size, contract), output = output_length(rank, size, contract);
    const CollectiveTraits& traits = traits_of(contract.collective);
    const bool output_is_input = (contract.in_place && traits.may_be_in_place(rank, contract.root)) ||
                                 (contract.collective == Collective::broadcast && rank == contract.root);
    std::pair<Values, Values> both;
    Values& filled = output_is_input ? both.second : both.first;
    const std::uint64_t count = output_is_input ? output : input;
    for (std::uint64_t i = 0; i < count; ++i) filled.push_back(Symbol{{static_cast<std::uint32_t>(rank)}, i});
    both.second.resize(output);
    TUTTI_ASSERT(both.first.size() <= input);
    return both;
}

std::string wrong_with(const Values& output, Rank rank, int size, const Contract& contract) {
    TUTTI_ASSERT(rank >= 0 && rank < size);
    TUTTI_ASSERT(output.size() == output_length(rank, size, contract));
    const CollectiveTraits& traits = traits_of(contract.collective);
    if (!traits.writes(rank, contract.root)) return {};
    if (traits.output == CollectiveTraits::Extent::exchanged) return not_exchanged(output, rank, size, contract);
    if (traits.output == CollectiveTraits::Extent::all_blocks) {
        for (Rank from = 0; from < size; ++from) {
            const std::uint64_t count = contract.counts[static_cast<std::size_t>(from)];
            auto wrong = not_a_copy(output, sum_before(contract.counts, from), from, 0, count, contract);
            if (!wrong.empty()) return wrong;
        }
        return {};
    }
    // Of the elements that a rank, or the root, puts in, it gets all, or its own block.
    const bool has_block = traits.output == CollectiveTraits::Extent::own_block;
    const std::uint64_t first = has_block ? sum_before(contract.counts, rank) : 0;
    const std::uint64_t count = output_length(rank, size, contract);
    return traits.combines ? not_reduced(output, first, count, traits.combined_end(rank, size), contract)
                           : not_a_copy(output, 0, contract.root, first, count, contract);
}

}  // namespace tutti::schedule
