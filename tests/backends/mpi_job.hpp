// What the tests on ranks of mpirun have in common: who they are, their store, and groups over it.
#pragma once

#include "support/job_of_mpirun.hpp"

#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdlib>
#include <string>

namespace tutti::test {

struct Job {
    int rank = rank_of_mpirun();
    int size = ranks_of_mpirun();
    TCPStore store{
        {.port = static_cast<std::uint16_t>(std::atoi(std::getenv("TUTTI_CONFORMANCE_PORT"))), .is_master = rank == 0}};

    // mpirun kills the others where a process ends without MPI_Finalize, and rank 0 has the store: so each leaves when
    // all have said how their tests have ended.
    ~Job() {
        try {
            store.set("left " + std::to_string(rank), "");
            for (int other = 0; other < size; ++other)
                store.wait({"left " + std::to_string(other)}, std::chrono::seconds(10));
        } catch (const DistError&) {
            // A test has told of its fault by now, or rank 0 has left with the store.
        }
    }

    ProcessGroup world(const std::string& name, const std::string& backend = "mpi",
                       TransportKind transport = TransportKind::automatic) {
        return ProcessGroup({.store = PrefixStore(name, store),
                             .rank = rank,
                             .world_size = size,
                             .timeout = std::chrono::seconds(20),
                             .transport = transport,
                             .backend = backend});
    }
    void meet(const std::string& name) {  // whatever has become of the groups
        if (store.add(name, 1) == size) store.set(name + " all", "");
        store.wait({name + " all"});
    }
};
inline Job& job() {
    static Job one;
    return one;
}

}  // namespace tutti::test
