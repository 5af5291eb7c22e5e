// Rendezvous: from env://, tcp://, file:// or a store to a store, a rank and a world size.
//
// Threads: any; a function of its arguments and of the environment.
#pragma once

#include <tutti/store.hpp>

#include <chrono>
#include <string>

namespace tutti::rendezvous {

struct Request {
    std::string init_method;  ///< empty: env://, unless there is a store
    int rank = -1;            ///< -1: from the URL or the environment
    int world_size = -1;
    Store store;
    std::chrono::milliseconds timeout{0};
};

struct Joined {
    Store store;
    int rank = -1;
    int world_size = -1;
};

/// Throws InvalidArgument that says what is missing or contradictory, DistStoreError if no store can be reached.
Joined resolve(const Request& request);

}  // namespace tutti::rendezvous
