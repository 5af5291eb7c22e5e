// The blocks that ranks exchange: checks the sizes and offsets that a caller gives, and converts them to counts and
// offsets of elements. Pure functions that see only this rank's arguments: whether two ranks agree is checked by the
// group.
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
    RankNumbers() noexcept {}  // leaves few_ uninitialised; `= default` might not
    /// Returns memory for `ranks` numbers, which are not initialised.
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
    std::span<const std::uint64_t> offsets;  ///< empty: blocks are adjacent; offsets of empty blocks are ignored
};
/// An offset for each block; 0 for empty ones.
std::vector<std::uint64_t> offsets_of(const Blocks& blocks);

/// The size of dimension 0; 1 for a view without dimensions.
std::int64_t rows_of(const ConstTensorView& view);

/// The elements of each of `ranks` equal blocks of whole rows that cover the tensor. `argument`: "output", whose option
/// "split sizes" the error mentions. Throws InvalidArgument if the number of rows is not a multiple of `ranks`.
std::uint64_t even_count(const char* operation, const char* argument, const ConstTensorView& view, int ranks);
/// Converts `sizes`, in rows, to sizes in elements, kept in `room`; the blocks must cover the tensor, one after the
/// other. No sizes: equal blocks. `argument`: "output", whose sizes are "output_split_sizes". Throws InvalidArgument if
/// the blocks do not cover the tensor.
std::span<const std::uint64_t> split_counts(const char* operation, const char* argument,
                                            const std::vector<std::int64_t>& sizes, const ConstTensorView& view,
                                            int ranks, RankNumbers& room);

/// Throws InvalidArgument if this rank sends itself another number of elements than it expects from itself.
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
/// The blocks of both sides. The spans refer to the options, or to DisplacedRooms for numbers that the options omit.
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
/// Checks and converts the blocks that the root of a gather_v or scatter_v gives; its output or input has `length`
/// elements. Throws InvalidArgument if a block exceeds it, or two blocks of a gather_v overlap.
Blocks gathered_blocks(int ranks, std::uint64_t length, const GatherVOptions& options, RankNumbers& room);
Blocks scattered_blocks(int ranks, std::uint64_t length, const ScatterVOptions& options, RankNumbers& room);
/// The same for the blocks of an all_gather_v with offsets, in elements; the options have rows of `output`.
Blocks displaced_rows(const char* operation, const AllGatherVOptions& options, const ConstTensorView& output, int ranks,
                      const DisplacedRooms& rooms);
/// Checks and converts the blocks of an all_to_all_v, which may lie anywhere in the tensors. Throws InvalidArgument if
/// a block exceeds its tensor, two blocks of the output overlap, or the blocks that this rank sends itself and expects
/// from itself differ in size.
DisplacedBlocks displaced_blocks(int rank, int ranks, const DisplacedLengths& lengths, const AllToAllVOptions& options,
                                 const DisplacedRooms& rooms, const DisplacedNames& names = {});

}  // namespace tutti::api
