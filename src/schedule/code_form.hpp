// CodeForm: how a buffer of a schedule holds codes of few bits instead of numbers, and how they travel. A value.
#pragma once

#include "core/assert.hpp"
#include "quantize/quantize.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::schedule {

/// Elements as codes, with one scale for each block of them. A run of elements that one step encodes lies, and travels,
/// as the scales of its blocks (float32), behind them all codes.
struct CodeForm {
    quantize::Format format = quantize::Format::int8;
    std::uint64_t block = 1;  ///< elements with one scale; the last ones of a run may be fewer

    quantize::Blocks run(std::uint64_t count) const {
        TUTTI_ASSERT(block > 0);
        return {count, block, block};
    }
    std::uint64_t scale_bytes(std::uint64_t count) const { return run(count).blocks() * sizeof(float); }
    /// Of a run of so many elements.
    std::uint64_t bytes(std::uint64_t count) const { return scale_bytes(count) + run(count).code_bytes(format); }
    /// Where the run lies in its buffer that begins with this element, the first one of a block.
    std::uint64_t place(std::uint64_t element) const {
        TUTTI_ASSERT(block > 0);
        constexpr std::uint64_t aligned = sizeof(float);
        return element / block * ((bytes(block) + aligned - 1) / aligned * aligned);
    }
    friend bool operator==(const CodeForm&, const CodeForm&) = default;
};

/// "int8/256": the format, and the elements of a block.
std::string to_string(const CodeForm& form);
/// Empty: the words name no form.
std::optional<CodeForm> code_form_named(std::string_view name);
/// The names of the formats, in their order.
inline constexpr std::string_view format_names[quantize::format_count] = {"int8", "int4", "float8_e4m3fn",
                                                                          "float8_e5m2"};

}  // namespace tutti::schedule
