// The collectives as values: what each takes and gives, for code that treats all of them alike (backends, bindings,
// tools). Their table is tutti/collectives.def. Constants; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tutti {

/// They follow MPI 4.0, chapter 6. The numbers travel between ranks.
enum class Collective : std::uint8_t {
#define TUTTI_COLLECTIVE_KIND(name, number, ...) name = number,
#include <tutti/collectives.def>
};

/// What a collective takes and gives.
struct CollectiveTraits {
    enum class Root : std::uint8_t {
        none,
        source,  ///< it alone puts in values
        target,  ///< it alone gets a result
    };
    /// What a buffer holds.
    enum class Extent : std::uint8_t {
        nothing,
        whole,       ///< as many elements on all ranks
        own_block,   ///< this rank's block
        all_blocks,  ///< the blocks of all ranks, one after the other, in rank order
        exchanged,   ///< a block to, or from, each rank; every pair of ranks has a length of its own
    };

    std::string_view name;
    Root root = Root::none;
    bool combines = false;  ///< results are combinations of all ranks' values; otherwise copies
    Extent input = Extent::nothing;
    Extent output = Extent::nothing;

    constexpr bool is_rooted() const noexcept { return root != Root::none; }
    /// Whether its lengths are a number for each rank's block.
    constexpr bool has_blocks() const noexcept { return input == Extent::own_block || output == Extent::own_block; }
    /// Whether this rank puts in values, and whether it gets a result. `root`: that of the call.
    constexpr bool reads(int rank, int root_rank) const noexcept {
        return input != Extent::nothing && (root != Root::source || rank == root_rank);
    }
    constexpr bool writes(int rank, int root_rank) const noexcept {
        return output != Extent::nothing && (root != Root::target || rank == root_rank);
    }
};

/// By number, from 1 on.
inline constexpr CollectiveTraits collective_table[] = {
#define TUTTI_COLLECTIVE_KIND(name, number, root, combines, input, output) \
    {#name, CollectiveTraits::Root::root, combines, CollectiveTraits::Extent::input, CollectiveTraits::Extent::output},
#include <tutti/collectives.def>
};
inline constexpr int collective_count = static_cast<int>(std::size(collective_table));

constexpr const CollectiveTraits& traits_of(Collective collective) noexcept {
    return collective_table[static_cast<std::size_t>(collective) - 1];
}
#define TUTTI_COLLECTIVE_KIND(row, number, ...) \
    static_assert(collective_table[number - 1].name == #row, "the numbers follow each other from 1 on");
#include <tutti/collectives.def>

/// "unknown" for a number that no row has.
constexpr std::string_view to_string(Collective collective) noexcept {
    const auto number = static_cast<int>(collective);
    return number >= 1 && number <= collective_count ? traits_of(collective).name : "unknown";
}
constexpr std::optional<Collective> collective_named(std::string_view name) noexcept {
    for (int number = 1; number <= collective_count; ++number) {
        if (to_string(static_cast<Collective>(number)) == name) return static_cast<Collective>(number);
    }
    return std::nullopt;
}

/// A function that calls a collective, or several as one.
struct CollectiveFunction {
    std::string_view name;
    Collective collective;
    std::string_view torch_type;  ///< c10d::OpType, in torch's words; empty: none of its own
};
/// Those of tutti/distributed.hpp, then the quantised ones.
inline constexpr CollectiveFunction collective_functions[] = {
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, options, torch, ...) \
    {#name, Collective::collective, #torch},
#define TUTTI_QUANTIZED_FUNCTION(name, number, collective, combines, torch, ...) \
    {#name, Collective::collective, #torch},
#include <tutti/collectives.def>
};

}  // namespace tutti
