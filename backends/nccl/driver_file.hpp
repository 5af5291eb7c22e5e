// A driver's library: found and opened, with all its functions.
#pragma once

#include "nccl/library.hpp"

#include <string>
#include <vector>

namespace tutti::nccl {

struct DriverFile {
    std::string title;               ///< "HIP", for messages
    std::string variable;            ///< names the file: "TUTTI_HIP_LIB"
    std::vector<std::string> files;  ///< names for the loader; the first that can be opened
    std::string how_to_get;          ///< "it comes with ROCm"
};

/// A driver that has been opened; it stays so.
struct OpenedDriver {
    void* handle = nullptr;
    std::string file;
};

/// The library that the process has loaded already, else the variable's, else the first that the loader finds. Throws
/// DistBackendError that lists the libraries it looked for, and their errors.
OpenedDriver open_driver_file(const DriverFile& wanted);

/// Throws DistBackendError that names the functions that need() has not found.
void check_symbols(const Symbols& symbols, const DriverFile& wanted, const std::string& file);

}  // namespace tutti::nccl
