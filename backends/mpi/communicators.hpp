// Communicators: a group's ranks as MPI communicators, one for messages and one for collectives.
//
// Threads: any; the constructor blocks until all members have come.
#pragma once

#include "mpi/library.hpp"

#include <tutti/backend.hpp>

#include <utility>

namespace tutti::backends::mpi {

class Communicators {
 public:
    /// Finds the members' MPI ranks in the options' store. Only members take part.
    /// Errors: those of enter(); DistBackendError if the members are not different ranks of one MPI_COMM_WORLD;
    /// DistStoreError if one does not come within the options' timeout.
    explicit Communicators(const DistributedBackendOptions& options);
    /// Frees them, unless MPI has broken off.
    ~Communicators();
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    MPI_Comm messages() const noexcept { return messages_; }
    MPI_Comm collectives() const noexcept { return collectives_; }
    /// The caller frees the one for messages.
    MPI_Comm take_messages() noexcept { return std::exchange(messages_, MPI_COMM_NULL); }
    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }

 private:
    const int rank_, size_;
    MPI_Comm messages_ = MPI_COMM_NULL, collectives_ = MPI_COMM_NULL;
};

}  // namespace tutti::backends::mpi
