// Libraries: shared libraries that provide backends, found by the backend's name.
//
// Threads: any. A loaded library is never unloaded: its code may be in use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::backend {

/// The folders of TUTTI_BACKEND_PATH, in order.
std::vector<std::filesystem::path> named_folders();

/// Loads libtutti-backend-NAME.so and calls its function that registers the backend. The library comes from the first
/// folder of TUTTI_BACKEND_PATH that has one, else from tutti's own folder, tutti/backends beside libtutti.so. Returns
/// its path, or "" if there is none. Throws DistBackendError if the library cannot be loaded, with the loader's reason,
/// or is no backend.
std::string load_library(const std::string& name);

/// Why a backend whose library has been loaded cannot be used here: the text after "not here: " that its
/// tutti_backend_report() returns. "" if the backend can be used, or reports nothing.
std::string trouble_of(const std::string& name);

/// The usual name of a backend, also for its other spellings: "hf_zmq" for "hf_barrier".
std::string canonical(std::string name);

/// How to get a known backend that is missing here, as a part of a sentence; "" for other backends.
std::string how_to_get(const std::string& name);

}  // namespace tutti::backend
