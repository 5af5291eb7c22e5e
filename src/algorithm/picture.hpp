// Picture: the schedules of all ranks over their predicted time, as an SVG: a row for each rank, a bar for each step, a
// line for each message.
//
// It holds no script and follows the reader's choice of a light or a dark page. Pure functions.
#pragma once

#include "algorithm/request.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::algorithm {

/// The most ranks and steps that a picture draws.
inline constexpr int drawn_ranks_max = 64;
inline constexpr std::size_t drawn_steps_max = 4096;  ///< of all ranks

/// Of the bars. Blue: data that leave; green: data that arrive; red: data that are combined on arrival.
const char* colour_of(schedule::StepKind kind);

/// `question`: the title. Times are by the costs of the layout's tuning, or else by the defaults. Throws
/// InvalidArgument for more ranks or steps than drawn_ranks_max and drawn_steps_max.
std::string picture_of(const Layout& layout, const Request& request, std::string_view question);

}  // namespace tutti::algorithm
