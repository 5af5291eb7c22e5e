// Where a vendor's library may lie.
#pragma once

#include "nccl/library.hpp"

#include <string>
#include <vector>

namespace tutti::nccl {

/// A library that was opened.
struct Found {
    void* handle = nullptr;
    std::string file;  ///< as it was asked for
    bool was_loaded_before = false;
};

/// With commas between them.
std::string joined(const std::vector<std::string>& words);

/// Folders with packages of Python that this process uses or could use: those of libraries that are loaded already,
/// torch's first, then those of the environment that VIRTUAL_ENV or CONDA_PREFIX names.
std::vector<std::string> python_folders();

/// In the order that Library::open() promises. Throws DistBackendError that says where it looked.
Found find_library(const Vendor& vendor);

}  // namespace tutti::nccl
