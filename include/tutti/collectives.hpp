// The collectives as constants: the input and output of each, for code that treats all of them alike (backends,
// bindings, tools). They are generated from the table tutti/collectives.def. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tutti {

/// The collectives, as in MPI 4.0, chapter 6. Ranks send each other the numbers, so they never change.
enum class Collective : std::uint8_t {
#define TUTTI_COLLECTIVE_KIND(name, number, ...) name = number,
#include <tutti/collectives.def>
};

/// The input and output of a collective.
struct CollectiveTraits {
    enum class Root : std::uint8_t {
        none,
        source,  ///< the root alone provides input
        target,  ///< the root alone gets a result
    };
    /// The ranks whose values a rank's result combines.
    enum class Combines : std::uint8_t {
        nothing,    ///< results are copies
        all,        ///< all ranks
        inclusive,  ///< a prefix: ranks 0 to the rank itself
        exclusive,  ///< a prefix: ranks 0 to the one before it; rank 0 gets no result
    };
    /// The contents of a buffer.
    enum class Extent : std::uint8_t {
        nothing,
        whole,       ///< the whole tensor: equally many elements on all ranks
        own_block,   ///< one rank's block
        all_blocks,  ///< the blocks of all ranks, one after the other, in rank order
        /// A block to, or from, each rank; each pair of ranks has its own length, which only these two know. With a
        /// root, blocks pass between it and each rank alone.
        exchanged,
    };

    std::string_view name;
    Root root = Root::none;
    bool combines = false;  ///< results are combinations of ranks' values; otherwise copies
    Combines whose = Combines::nothing;
    Extent input = Extent::nothing;
    Extent output = Extent::nothing;

    constexpr bool is_rooted() const noexcept { return root != Root::none; }
    constexpr bool is_prefix() const noexcept { return whose == Combines::inclusive || whose == Combines::exclusive; }
    /// The result of `rank` combines the values of ranks 0 to combined_end() - 1.
    constexpr int combined_end(int rank, int ranks) const noexcept {
        if (!is_prefix()) return ranks;
        return whose == Combines::inclusive ? rank + 1 : rank;
    }
    constexpr bool exchanges() const noexcept { return input == Extent::exchanged; }
    /// For an exchange: whether `from` has a block for `to`.
    constexpr bool exchanges_between(int from, int to, int root_rank) const noexcept {
        return exchanges() && (root != Root::target || to == root_rank) && (root != Root::source || from == root_rank);
    }
    /// Whether the lengths of the ranks' blocks are given as a list.
    constexpr bool has_blocks() const noexcept { return input == Extent::own_block || output == Extent::own_block; }
    /// Whether `rank` provides input, and whether it gets a result, where `root_rank` is the root.
    constexpr bool reads(int rank, int root_rank) const noexcept {
        return input != Extent::nothing && (root != Root::source || rank == root_rank);
    }
    constexpr bool writes(int rank, int root_rank) const noexcept {
        return output != Extent::nothing && (root != Root::target || rank == root_rank) &&
               (whose != Combines::exclusive || rank > 0);
    }
    /// Whether the result of `rank` may overwrite the input of `rank`.
    constexpr bool may_be_in_place(int rank, int root_rank) const noexcept {
        return combines && !is_rooted() && output == Extent::whole && writes(rank, root_rank);
    }
};

/// The traits of all collectives, in the order of their numbers, which begin at 1.
inline constexpr CollectiveTraits collective_table[] = {
#define TUTTI_COLLECTIVE_KIND(name, number, root, combines, input, output)        \
    {#name,                                                                       \
     CollectiveTraits::Root::root,                                                \
     CollectiveTraits::Combines::combines != CollectiveTraits::Combines::nothing, \
     CollectiveTraits::Combines::combines,                                        \
     CollectiveTraits::Extent::input,                                             \
     CollectiveTraits::Extent::output},
#include <tutti/collectives.def>
};
inline constexpr int collective_count = static_cast<int>(std::size(collective_table));

constexpr const CollectiveTraits& traits_of(Collective collective) noexcept {
    return collective_table[static_cast<std::size_t>(collective) - 1];
}
#define TUTTI_COLLECTIVE_KIND(row, number, ...) \
    static_assert(collective_table[number - 1].name == #row, "the numbers follow each other from 1 on");
#include <tutti/collectives.def>

/// The collective's name; "unknown" for other numbers.
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

/// A public function that makes one collective call, or several coalesced.
struct CollectiveFunction {
    std::string_view name;
    Collective collective;
    std::string_view torch_type;  ///< the name of PyTorch's c10d::OpType; empty: PyTorch has none
};
/// The functions of tutti/distributed.hpp, then those of tutti/quantized.hpp.
inline constexpr CollectiveFunction collective_functions[] = {
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, options, torch, ...) \
    {#name, Collective::collective, #torch},
#define TUTTI_QUANTIZED_FUNCTION(name, number, collective, combines, torch, ...) \
    {#name, Collective::collective, #torch},
#include <tutti/collectives.def>
};

}  // namespace tutti
