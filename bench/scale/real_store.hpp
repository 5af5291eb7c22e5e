// What a store with many clients costs on this machine: the server is a process, the clients are threads of others,
// each with a connection of its own.
//
// Threads: one; it forks, so no other may run.
#pragma once

namespace tutti::bench {

struct StoreFigures {
    double connect_s = 0;                           ///< until the last client is connected
    double server_kib = 0, server_descriptors = 0;  ///< for each client
    double client_kib = 0;                          ///< private memory of a client, with its thread
    double wake_ms = 0;                             ///< from a set until the last of all clients has its value
    double requests_per_s = 0;                      ///< add of one counter each, by all clients at once
    double end_s = 0;  ///< until the server has forgotten all, when they die at once, waiting
};

/// Throws std::runtime_error if a process fails.
StoreFigures measure_store(int clients);

}  // namespace tutti::bench
