// The blocks of an all_to_all: from the sizes and offsets that a caller gives to those of a request, checked. Pure
// functions, which know nothing of other ranks: the group finds a disagreement between a pair of ranks.
#pragma once

#include "algorithm/plan.hpp"

#include <tutti/distributed.hpp>

#include <cstdint>
#include <vector>

namespace tutti::api {

/// Sizes in elements, of blocks of whole rows that cover the tensor, one after the other; no sizes: equal blocks.
/// `argument`: "output", which has "output_split_sizes". Throws InvalidArgument where they do not cover it.
std::vector<std::uint64_t> split_counts(const char* operation, const char* argument,
                                        const std::vector<std::int64_t>& sizes, const ConstTensorView& view, int ranks);

/// Size of dimension 0; 1 where there is none.
std::int64_t rows_of(const ConstTensorView& view);

/// As all_to_all_single: blocks of whole rows, one after the other; empty sizes: equal blocks. Throws InvalidArgument
/// where the sizes do not cover the tensors, or this rank's own blocks differ.
void set_split_blocks(algorithm::Request& request, int ranks, const ConstTensorView& output,
                      const ConstTensorView& input, const AllToAllSingleOptions& options);

/// As all_to_all: one block after the other, in both buffers.
void set_adjoining_blocks(algorithm::Request& request, std::vector<std::uint64_t> send,
                          std::vector<std::uint64_t> receive);

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

/// As all_to_all_v: blocks anywhere in the flattened tensors of so many elements. Throws InvalidArgument where a block
/// leaves its tensor, two blocks of the output overlap, or this rank's own blocks differ.
void set_displaced_blocks(algorithm::Request& request, int ranks, std::uint64_t output_elements,
                          std::uint64_t input_elements, const AllToAllVOptions& options,
                          const DisplacedNames& names = {});

/// Whether the received blocks leave some of `elements` elements untouched.
bool leaves_gaps(const algorithm::Request& request, std::uint64_t elements);

}  // namespace tutti::api
