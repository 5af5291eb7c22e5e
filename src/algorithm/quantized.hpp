// The quantisation of a collective, as part of a request: its messages hold codes of 8 or 4 bits. A value, equal on all
// ranks.
#pragma once

#include "quantize/quantize.hpp"

#include <tutti/dtype.hpp>

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

struct Quantizing {
    enum class Scales : std::uint8_t {
        own = 0,     ///< each rank has its own scales, from its own values
        common = 1,  ///< scales from the largest value of all ranks
        given = 2,   ///< the call gives one scale for all blocks
    };
    quantize::Format format = quantize::Format::int8;
    Scales scales = Scales::own;
    std::uint64_t block = 256;          ///< elements with one scale; the last block of a slice may have fewer
    bool gathers_codes = true;          ///< all_reduce: the results are quantised, too
    DType input_type = DType::float32;  ///< float32, float16, bfloat16; int8: codes, with the given scale
    DType output_type = DType::float32;
    std::uint64_t tile = 1 << 15;  ///< elements of a message, at most
    bool operator==(const Quantizing&) const = default;
};

/// Slices for the ranks, of as equal sizes as possible, each of whole blocks.
std::vector<std::uint64_t> even_slices(std::uint64_t count, int ranks, std::uint64_t block, std::uint64_t tile);
/// The size of a tile in elements: whole blocks, if a block fits in a tile.
std::uint64_t tile_elements(std::uint64_t block, bool one_host);

}  // namespace tutti::algorithm
