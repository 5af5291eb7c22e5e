// Rendezvous: turns env://, tcp://, file:// or a store into a store, a rank and a world size.
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
    bool only_to_tell = false;  ///< this rank only reports a failure; its numbers may be invalid
};

/// How long a failing rank keeps the store that it serves, so that the others can learn why it failed.
inline constexpr std::chrono::seconds time_for_others{1};

/// After a failure to join: waits `time_for_others` if this rank serves the store (`serves`) and the failure is its
/// own.
void stay_for_others(const DistError& error, bool serves, int world_size);

struct Joined {
    Store store;
    int rank = -1;
    int world_size = -1;
    bool hosts_store = false;  ///< this process serves the store to the others
    bool is_fresh = false;     ///< rank 0 serves the store for this world alone: no other world has keys in it

    Attempt::Worlds worlds() const noexcept { return is_fresh ? Attempt::Worlds::one : Attempt::Worlds::many; }
};

/// Throws InvalidArgument that names the missing or contradictory facts, DistStoreError if no store can be reached.
Joined resolve(const Request& request);

/// The store that this process's launcher serves, in which newcomers wait for a job's ranks; none: no launcher does.
Store store_of_launcher(std::chrono::milliseconds timeout);

/// For a process that cannot join and has not reached the store yet: tells the ranks that wait for it there. `name`:
/// the group's. Best effort; takes half a second if there is no store yet, and a second if this process has to serve
/// it.
void say_failed(const Request& request, const std::string& name, const std::exception& error) noexcept;

}  // namespace tutti::rendezvous
