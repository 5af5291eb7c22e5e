// Picture: a play as an SVG: how many ranks are done by when, what the last rank waited for, which links were busy.
//
// It holds no script and follows the reader's choice of a light or a dark page. Pure functions.
#pragma once

#include "simulate/answer.hpp"

#include <string>
#include <string_view>

namespace tutti::simulate {

/// `title`: what was asked.
std::string picture_of(const Answer& answer, std::string_view title);

}  // namespace tutti::simulate
