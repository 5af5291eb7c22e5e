// Libraries: shared libraries that bring backends, found by the backend's name.
//
// Threads: any. A loaded library stays: its code may be in use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::backend {

/// The folders of TUTTI_BACKEND_PATH, in order.
std::vector<std::filesystem::path> named_folders();

/// Loads libtutti-backend-NAME.so and runs its function, which registers the backend: from the first folder of
/// TUTTI_BACKEND_PATH that has one, else from tutti's own folder, tutti/backends beside libtutti.so. Returns its path,
/// or "" where there is none. Throws DistBackendError for one that cannot be loaded, with the loader's reason, or that
/// is no backend.
std::string load_library(const std::string& name);

/// Why a backend whose library has been loaded cannot be used here: the words of its tutti_backend_report() after "not
/// here: ". "" where it can be used, or says nothing.
std::string trouble_of(const std::string& name);

/// A known name's other spellings become that name: "hf_barrier" is "hf_zmq".
std::string canonical(std::string name);

/// The needs of a known backend that is not here, as a part of a sentence; "" for others.
std::string how_to_get(const std::string& name);

}  // namespace tutti::backend
