// The calls that run in slots (engine/slots). The table has rows for them, but a group must know their sizes before any
// call, since a call in slots is never planned.
#pragma once

#include "algorithm/request.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

/// The algorithm's name in these rows.
inline constexpr std::string_view in_slots = "slots";

/// A range of sizes: bytes of the buffer, or of each block.
struct SlotSizes {
    std::uint64_t from = 0, to = 0;
    friend bool operator==(const SlotSizes&, const SlotSizes&) = default;
};

/// The sizes for which choose() takes slots, ascending; for an all_to_all, those of equal blocks. `named`: as
/// Request::algorithm.
std::vector<SlotSizes> slot_sizes(const Layout& layout, Collective collective, const std::optional<std::string>& named);

}  // namespace tutti::algorithm
