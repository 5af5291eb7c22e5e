// The common parts of the scripts for bash, zsh and fish.
#pragma once

#include "cli/manual/page.hpp"

#include <string>
#include <vector>

namespace tutti::cli::manual {

/// The words that can stand for an entry's value.
enum class Values { none, words, list, files, folders, command, anything };
Values values_of(const Entry& entry);

/// "run" of "tutti run".
std::string command_of(const Page& page);
/// Flags of all sections.
std::vector<Entry> flags_of(const Page& page);
/// In single quotes, as all three shells read it.
std::string in_quotes(const std::string& text);

}  // namespace tutti::cli::manual
