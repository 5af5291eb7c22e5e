// The program's sub-commands, except bench (bench/collectives).
//
// Threads: one.
#pragma once

#include "command/arguments.hpp"

namespace tutti::cli {

using namespace command;

// Each function adds its sub-command; the function it returns runs the sub-command and returns the exit status.
/// `command`: the program to run and its arguments; take_command() fills it in before the other arguments are parsed.
Command add_run(CLI::App& app, const std::vector<std::string>& command);
Command add_launch(CLI::App& app, const std::vector<std::string>& command);
Command add_explain(CLI::App& app);
Command add_simulate(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_status(CLI::App& app);
Command add_trace(CLI::App& app);
/// Prints a script with which a shell completes the commands that `app` has.
Command add_completion(CLI::App& app);
/// A hidden command for the build: writes the man pages and the scripts for completion into a folder.
Command add_manual(CLI::App& app);

}  // namespace tutti::cli
