// Arguments: the functions that the program's sub-commands share to read their command lines.
//
// Threads: one.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::command {

/// Adds a spelling with underscores to each option name with dashes: "-n,--num-nodes" gives
/// "-n,--num-nodes,--num_nodes".
std::string both_spellings(const std::string& names);
/// Parses a size in bytes: 8, 64K, 1M, 2G (powers of two), also 64KB and 64KiB. Throws CLI::ValidationError naming
/// `option`.
std::uint64_t bytes_of(const std::string& text, const std::string& option);
enum class Zero { refused, allowed };
/// For option->check(): accepts a finite number of seconds above 0, or 0 too if `zero` allows it.
CLI::Validator is_duration(Zero zero);
/// For option->check(): accepts one of `words`, which help and completion show.
CLI::Validator one_of(const std::vector<std::string>& words);
/// For option->check(): accepts any text, since the code that reads the value checks it; help and completion show
/// `words`.
enum class Form { word, list };
CLI::Validator shows(const std::vector<std::string>& words, Form form);
std::vector<std::string> dtype_names();
/// All option names of a sub-command.
std::vector<std::string> option_names(const CLI::App& app);

/// The Python interpreter for scripts: PYTHON_EXEC, which the Python package's command sets to its own, else python3.
std::string python_of_scripts();

/// Removes from `arguments` the words after the sub-command's name and options (or "--"), and returns these words.
std::vector<std::string> take_command(const CLI::App& sub, std::vector<std::string>& arguments);

/// Runs a sub-command whose arguments have been parsed; returns the exit status.
using Command = std::function<int()>;

}  // namespace tutti::command
