// Rendezvous: from env://, tcp://, file:// or a store to a store, a rank and a world size.
//
// Threads: any; a function of its arguments and of the environment.
#pragma once

#include "rendezvous/attempt.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <chrono>
#include <exception>
#include <string>

namespace tutti::rendezvous {

struct Request {
    std::string init_method;  ///< empty: env://, unless there is a store
    int rank = -1;            ///< -1: from the URL or the environment
    int world_size = -1;
    Store store;
    std::chrono::milliseconds timeout{0};
    bool only_to_tell = false;  ///< this rank does not join, and may make no sense
};

/// How long a store that a rank serves stays for the others when that rank fails, so that they can learn why.
inline constexpr std::chrono::seconds time_for_others{1};

/// After a failure to join: keeps the store that this rank serves so long for the others (`serves`), if the failure is
/// this rank's own.
void stay_for_others(const DistError& error, bool serves, int world_size);

struct Joined {
    Store store;
    int rank = -1;
    int world_size = -1;
    bool hosts_store = false;  ///< this process serves it to the others
    bool is_fresh = false;     ///< rank 0 serves it for this world alone, so that nothing is left there from another

    Attempt::Worlds worlds() const noexcept { return is_fresh ? Attempt::Worlds::one : Attempt::Worlds::many; }
};

/// Throws InvalidArgument that names the missing or contradictory facts, DistStoreError if no store can be reached.
Joined resolve(const Request& request);

/// For a process that cannot join and has not reached the store yet: tells the ranks that wait for it there.
/// `name`: of their group. Best effort; takes half a second where there is no store yet, and a second
/// where this process has to serve it.
void say_failed(const Request& request, const std::string& name, const std::exception& error) noexcept;

}  // namespace tutti::rendezvous
