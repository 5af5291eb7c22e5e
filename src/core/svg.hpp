// SVG: functions that the SVG pictures and the HTML pages share. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tutti::svg {

/// The text escaped for XML or HTML, also for attributes. Control characters other than newlines become blanks.
std::string escaped(std::string_view text);

/// The distance between two marks on an axis of length `total`, large enough for their numbers: 1, 2 or 5 times a power
/// of ten. Precondition: `total` is above 0.
double mark_distance(double total);

}  // namespace tutti::svg
