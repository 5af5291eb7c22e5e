// GOAL: schedules as LogGOPSim and ATLAHS read them (before txt2bin): "rank R {", a line for each operation (calc in
// nanoseconds, send, recv), and lines of what each one requires.
//
// GOAL has no shared memory: what a rank publishes goes to each of its readers as a message. Pure functions.
// Source: Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language" (2009).
#pragma once

#include "simulate/answer.hpp"

#include <string>

namespace tutti::simulate {

/// The most steps that a text holds.
inline constexpr std::uint64_t goal_steps_max = 20'000'000;

/// The schedules of all ranks. Throws InvalidArgument for more than goal_steps_max steps, and for a schedule in place.
std::string goal_of(const Question& question);

}  // namespace tutti::simulate
