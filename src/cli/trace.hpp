// The files of a recorded run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::cli {

/// Files as they are named; of folders, the files that end in .dump. Throws InvalidArgument for a folder without any.
std::vector<std::filesystem::path> dump_files(const std::vector<std::string>& places);

}  // namespace tutti::cli
