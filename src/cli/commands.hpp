// The program's sub-commands, but for bench (bench/collectives).
//
// Threads: one.
#pragma once

#include "command/arguments.hpp"

namespace tutti::cli {

using namespace command;

// Each adds its sub-command; the returned function runs it and gives the exit status.
/// `command`: the program that is run and its arguments, filled by take_command() before the rest is parsed.
Command add_run(CLI::App& app, const std::vector<std::string>& command);
Command add_launch(CLI::App& app, const std::vector<std::string>& command);
Command add_explain(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_status(CLI::App& app);
Command add_trace(CLI::App& app);
/// Of the commands that `app` has.
Command add_completion(CLI::App& app);
/// Hidden: writes the man pages and the scripts for completion into a folder; the build does.
Command add_manual(CLI::App& app);

}  // namespace tutti::cli
