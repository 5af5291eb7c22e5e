// The algorithms of the table for parts of users' texts (schedule/part.hpp): those that send messages.
#pragma once

#include "schedule/part.hpp"

namespace tutti::algorithm {

/// Lives as long as the process; any thread. A part moves in whole blocks: no algorithm cuts it in pieces to overlap
/// them, because the elements of a text stand for any number.
const schedule::PartMaker& parts();

}  // namespace tutti::algorithm
