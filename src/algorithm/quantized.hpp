// The part of a request that makes a collective a quantised one: its messages hold codes of few bits. A value, equal on
// all ranks.
#pragma once

#include "quantize/quantize.hpp"

#include <tutti/dtype.hpp>

#include <cstdint>
#include <vector>

namespace tutti::algorithm {

struct Quantizing {
    enum class Scales : std::uint8_t {
        own = 0,     ///< each rank's, of its own values
        common = 1,  ///< of the largest value of all ranks
        given = 2,   ///< the call's, for all blocks
    };
    quantize::Format format = quantize::Format::int8;
    Scales scales = Scales::own;
    std::uint64_t block = 256;          ///< elements with one scale; the last one of a slice may have fewer
    bool gathers_codes = true;          ///< the results of an all_reduce are quantised, too
    DType input_type = DType::float32;  ///< float32, float16, bfloat16; int8: codes, with the given scale
    DType output_type = DType::float32;
    std::uint64_t tile = 1 << 15;  ///< elements of a message, at most
    bool operator==(const Quantizing&) const = default;
};

/// Equal slices of whole blocks, as far as possible.
std::vector<std::uint64_t> even_slices(std::uint64_t count, int ranks, std::uint64_t block, std::uint64_t tile);
/// Elements of a tile: whole blocks, where a block is not longer.
std::uint64_t tile_elements(std::uint64_t block, bool one_host);

}  // namespace tutti::algorithm
