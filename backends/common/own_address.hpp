// The address by which the other ranks of a job reach this one. Free function; any thread.
#pragma once

#include <tutti/store.hpp>

#include <string>

namespace tutti::backends {

/// TUTTI_HOST if it is set; else the address by which this process reached the store. Where the store's server is on
/// this host and serves others too, that one says nothing: then MASTER_ADDR, if it is an address of this host, else the
/// host's first address that is not its loopback. "127.0.0.1" where there is nothing else.
std::string own_address(const Store& store);

}  // namespace tutti::backends
