// Communicators: a group's ranks as MPI communicators, one for messages and one for collectives.
//
// Threads: any; the constructor blocks until all members have come.
#pragma once

#include "mpi/library.hpp"

#include <tutti/backend.hpp>

#include <atomic>

namespace tutti::backends::mpi {

class Communicators {
 public:
    /// Finds the members' MPI ranks in the options' store. Only members take part.
    /// Errors: those of enter(); DistBackendError if the members are not different ranks of one MPI_COMM_WORLD;
    /// DistStoreError if one does not come within the options' timeout.
    explicit Communicators(const DistributedBackendOptions& options);
    /// Frees them, unless the group was given up.
    ~Communicators();
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    MPI_Comm messages() const noexcept { return messages_; }
    MPI_Comm collectives() const noexcept { return collectives_; }
    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }

    /// Any thread: makes waits end soon, with Aborted.
    void give_up() noexcept { given_up_ = true; }
    bool given_up() const noexcept { return given_up_; }
    /// Polls until the request is over; yields the core meanwhile. Throws Aborted once given up, and MPI breaks off.
    void wait(MPI_Request* request) const;

 private:
    const int rank_, size_;
    MPI_Comm messages_ = MPI_COMM_NULL, collectives_ = MPI_COMM_NULL;
    std::atomic<bool> given_up_{false};
};

}  // namespace tutti::backends::mpi
