// The algorithms of the table that send messages, for use inside users' schedules (schedule/part.hpp).
#pragma once

#include "schedule/part.hpp"

namespace tutti::algorithm {

/// Lives as long as the process; any thread. A part is not cut into pieces that overlap, because an element of a
/// schedule text stands for any number of elements.
const schedule::PartMaker& parts();

}  // namespace tutti::algorithm
