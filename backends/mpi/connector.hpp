// MpiConnector: a rank's streams to the others of its group, over MPI, and MPI's own collectives.
//
// Threads: as tutti/transport.hpp says; one of its own (Post).
#pragma once

#include "mpi/post.hpp"
#include "mpi/stream.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <memory>
#include <vector>

namespace tutti::backends::mpi {

class MpiConnector final : public transport::Streams {
 public:
    /// Meets the others in the options' store. Errors: those of Communicators; DistBackendError if the system gives no
    /// thread.
    explicit MpiConnector(const DistributedBackendOptions& options);
    /// Waits for up to 10 s until written bytes have left this process.
    ~MpiConnector() override { post_.stop(); }
    MpiConnector(const MpiConnector&) = delete;
    MpiConnector& operator=(const MpiConnector&) = delete;

    transport::Stream* to(int peer) override;
    transport::Stream* existing(int peer) override;
    bool offers(const BackendRequest& request) override;
    std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& request) override;
    std::unique_ptr<transport::LibraryCall> receive(int peer, std::uint64_t number, std::span<std::byte> into) override;
    std::unique_ptr<transport::LibraryCall> send(int peer, std::uint64_t number,
                                                 std::span<const std::byte> bytes) override;

 private:
    Post post_;
    std::vector<std::unique_ptr<MpiStream>> streams_;  // by rank; null: this one
};

}  // namespace tutti::backends::mpi
