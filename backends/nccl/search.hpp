// Where a vendor's library may lie.
#pragma once

#include "nccl/library.hpp"

#include <string>
#include <vector>

namespace tutti::nccl {

/// An open library.
struct Found {
    void* handle = nullptr;
    std::string file;                ///< the name that the search used
    bool was_loaded_before = false;  ///< by the program, not by an earlier search
};

/// The texts with commas between them.
std::string joined(const std::vector<std::string>& words);

/// Folders with packages of Python that this process uses or could use: those of loaded libraries, torch's first, then
/// those of the environment that VIRTUAL_ENV or CONDA_PREFIX names.
std::vector<std::string> python_folders();

/// Searches in the order that Library::open() promises. Throws DistBackendError that says where it looked. One thread
/// at a time: Library::open() holds a lock.
Found find_library(const Vendor& vendor);

}  // namespace tutti::nccl
