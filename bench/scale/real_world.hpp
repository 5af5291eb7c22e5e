// What a world of many ranks costs on this machine: the ranks are threads of a few processes, the last is a process of
// its own, and another one serves their store.
//
// Threads: one; it forks, so no other may run.
#pragma once

#include <tutti/process_group.hpp>

namespace tutti::bench {

struct WorldFigures {
    double join_s = 0;                               ///< until the last rank has joined
    double requests = 0, requests_of_rank_0 = 0;     ///< to the store while they join: of a rank on average, of rank 0
    double bytes_given = 0, bytes_got = 0;           ///< keys and values, of a rank on average
    double private_kib = 0, shared_kib = 0;          ///< memory of a rank-thread when all have joined
    double descriptors = 0, threads = 0;             ///< of a rank-thread
    double all_ms = 0, half_ms = 0, members_ms = 0;  ///< new_group of all, of half, and of half which alone call it
    double leave_ms = 0;                             ///< until the last rank has destroyed its group
    double verdict_ms = 0;  ///< from the death of the last rank until the last other one has its error
};

/// Joins twice, once to leave and once for the death. Throws std::runtime_error if a process fails.
WorldFigures measure_world(int ranks, TransportKind transport);

}  // namespace tutti::bench
