// The algorithms of the table that send messages, for use inside users' schedules (schedule/part.hpp).
#pragma once

#include "schedule/part.hpp"

namespace tutti::algorithm {

/// The object lives as long as the process; any thread. Parts are not pipelined, because an element of a schedule text
/// stands for any number of elements.
const schedule::PartMaker& parts();

}  // namespace tutti::algorithm
