// The blocks that ranks exchange: checks the sizes and offsets that a caller gives, and converts them to those of a
// call. Pure functions that consider this rank alone: the group detects a disagreement between a pair of ranks.
#pragma once

#include "core/assert.hpp"

#include <tutti/distributed.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti::api {

inline std::uint64_t count_of(const ConstTensorView& view) {
    return static_cast<std::uint64_t>(view.element_count());
}

/// Memory for one number for each rank, without an allocation for up to 64 ranks.
class RankNumbers {
 public:
    RankNumbers() noexcept {}  // does not touch the numbers, as a default one might
    /// Returns room for so many numbers, which are not initialised.
    std::span<std::uint64_t> take(std::size_t ranks) {
        TUTTI_ASSERT(ranks > 0);
        if (ranks <= few_.size()) return std::span(few_).first(ranks);
        many_ = std::make_unique_for_overwrite<std::uint64_t[]>(ranks);
        return {many_.get(), ranks};
    }

 private:
    std::array<std::uint64_t, 64> few_;
    std::unique_ptr<std::uint64_t[]> many_;
};

/// The blocks of one side (input or output), one for each rank, in elements.
struct Blocks {
    std::span<const std::uint64_t> counts;
    std::span<const std::uint64_t> offsets;  ///< empty: one after the other; that of an empty block means nothing
};
/// An offset for each block; 0 for empty ones.
std::vector<std::uint64_t> offsets_of(const Blocks& blocks);

/// Size of dimension 0; 1 where there is none.
std::int64_t rows_of(const ConstTensorView& view);

/// Elements of each of so many equal blocks of whole rows, which cover the tensor. `argument`: "output", which may have
/// "split sizes" instead. Throws InvalidArgument where the rows cannot be shared out.
std::uint64_t even_count(const char* operation, const char* argument, const ConstTensorView& view, int ranks);
/// Sizes in elements, of blocks of whole rows that cover the tensor, one after the other; no sizes: equal blocks.
/// `argument`: "output", which has "output_split_sizes". Throws InvalidArgument where they do not cover it.
std::span<const std::uint64_t> split_counts(const char* operation, const char* argument,
                                            const std::vector<std::int64_t>& sizes, const ConstTensorView& view,
                                            int ranks, RankNumbers& room);

/// Throws InvalidArgument where this rank sends itself another number of elements than it expects.
void check_own_block(const char* operation, std::uint64_t sent, std::uint64_t expected);

/// An operation's names for the blocks of one side, for messages.
struct BlockNames {
    const char* counts;
    const char* offsets;
    const char* tensor;
};
struct DisplacedNames {
    const char* operation = "all_to_all_v";
    BlockNames send{"send_counts", "send_offsets", "input"};
    BlockNames receive{"receive_counts", "receive_offsets", "output"};
};
/// Both sides' blocks. They refer to the options, or to memory for numbers that the options leave out.
struct DisplacedBlocks {
    Blocks send, receive;
};
struct DisplacedRooms {
    RankNumbers &send, &receive;
};
/// Elements of the flattened tensors.
struct DisplacedLengths {
    std::uint64_t input = 0, output = 0;
};
/// As all_to_all_v: blocks anywhere in the tensors. Throws InvalidArgument where a block leaves its tensor, two blocks
/// of the output overlap, or this rank's own blocks differ.
DisplacedBlocks displaced_blocks(int rank, int ranks, const DisplacedLengths& lengths, const AllToAllVOptions& options,
                                 const DisplacedRooms& rooms, const DisplacedNames& names = {});

}  // namespace tutti::api
