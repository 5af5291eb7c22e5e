// The command `tutti bench`, for the program to add.
//
// Threads: one, which starts those of ranks where they are threads.
#pragma once

#include "command/arguments.hpp"

namespace tutti::bench {

command::Command add_bench(CLI::App& app);

}  // namespace tutti::bench
