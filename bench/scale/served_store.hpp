// The TCPStore of a measurement, in a child process of its own.
#pragma once

#include "core/descriptors.hpp"
#include "scale/children.hpp"

#include <tutti/store.hpp>

#include <chrono>
#include <thread>

namespace tutti::bench {

/// Serves until the child is killed, which its destructor does. Returns when gates.number(`port`) has the store's port.
inline Child serve_store(Gates& gates, int port) {
    Child server([&] {
        descriptors::raise();
        const TCPStore store({.is_master = true, .wait_for_workers = false});
        gates.number(port) = store.port();
        std::this_thread::sleep_for(std::chrono::hours(1));
    });
    while (gates.number(port) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return server;
}

}  // namespace tutti::bench
