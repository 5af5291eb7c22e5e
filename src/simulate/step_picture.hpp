// Picture of a step: on a line of time, what some ranks compute and communicate, and where they wait for each other.
//
// It holds no script and follows the reader's choice of a light or a dark page. Pure functions.
#pragma once

#include "simulate/step.hpp"

#include <string>
#include <string_view>

namespace tutti::simulate {

/// `title` names the question, above the drawing.
std::string picture_of(const StepAnswer& answer, const WholeStep& step, std::string_view title);

}  // namespace tutti::simulate
