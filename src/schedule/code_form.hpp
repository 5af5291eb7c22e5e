// CodeForm: how a buffer of a schedule, and a message, hold few-bit codes instead of numbers. A value.
#pragma once

#include "core/assert.hpp"
#include "quantize/quantize.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::schedule {

/// Elements as codes, with one scale per block. A run, the elements that one step encodes, is stored and sent as the
/// scales of its blocks (float32) followed by all its codes.
struct CodeForm {
    quantize::Format format = quantize::Format::int8;
    std::uint64_t block = 1;  ///< elements per scale; the last block of a run may have fewer

    quantize::Blocks run(std::uint64_t count) const {
        TUTTI_ASSERT(block > 0);
        return {count, block, block};
    }
    std::uint64_t scale_bytes(std::uint64_t count) const { return run(count).blocks() * sizeof(float); }
    /// The bytes of a run of `count` elements.
    std::uint64_t bytes(std::uint64_t count) const { return scale_bytes(count) + run(count).code_bytes(format); }
    /// The byte offset in the buffer of a run that begins with `element`, the first one of a block.
    std::uint64_t place(std::uint64_t element) const {
        TUTTI_ASSERT(block > 0);
        constexpr std::uint64_t aligned = sizeof(float);
        return element / block * ((bytes(block) + aligned - 1) / aligned * aligned);
    }
    friend bool operator==(const CodeForm&, const CodeForm&) = default;
};

/// "int8/256": the format, and the elements per block.
std::string to_string(const CodeForm& form);
/// nullopt: `name` is not a form.
std::optional<CodeForm> code_form_named(std::string_view name);
/// The names of the formats, in the order of quantize::Format.
inline constexpr std::string_view format_names[quantize::format_count] = {"int8", "int4", "float8_e4m3fn",
                                                                          "float8_e5m2"};

}  // namespace tutti::schedule
