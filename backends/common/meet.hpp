// The ranks of a group exchange a card each while its backend is made (tutti/meeting.hpp). Threads: any.
#pragma once

#include <tutti/backend.hpp>

#include <exception>
#include <string>
#include <vector>

namespace tutti::backends {

/// All ranks call it with the same `name`, once; returns their cards by rank. Throws Timeout that names a rank which
/// did not come, PeerLost if one ended or said that it cannot.
std::vector<std::string> meet(const DistributedBackendOptions& options, const std::string& backend,
                              const std::string& name, const std::string& card);
/// Instead, on a rank that cannot go on: the others get `error`'s words.
void say_cannot_meet(const DistributedBackendOptions& options, const std::string& backend, const std::string& name,
                     const std::exception& error) noexcept;

}  // namespace tutti::backends
