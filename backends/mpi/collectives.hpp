// The collectives of MPI, in their non-blocking form, so that they can be given up.
//
// Threads: one at a time for a group. Never waits.
#pragma once

#include "mpi/communicators.hpp"

#include <tutti/backend.hpp>

#include <cstdint>
#include <list>
#include <vector>

namespace tutti::backends::mpi {

/// Any number of bytes as one element of a type.
class Block {
 public:
    explicit Block(std::uint64_t bytes);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    MPI_Datatype type() const noexcept { return type_; }

 private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// What MPI has begun, and the lists and types that it reads meanwhile: they stay until all of the requests are over.
struct Begun {
    std::vector<MPI_Request> requests{};
    std::list<std::vector<int>> ints{};
    std::list<Block> blocks{};
};

/// transport::Streams::offers(). MPI lacks avg; types that it does not know, or that are rounded once at the end; bool;
/// min and max of floating-point values, where it loses NaN; the order of ranks; in all_gather and reduce_scatter,
/// total counts that an int cannot hold. The answer is the same on all ranks.
bool has_collective(const BackendRequest& request);
/// Begins a request that it has. Throws DistBackendError with MPI's text.
void begin_collective(const BackendRequest& request, const Communicators& communicators, Begun& begun);

}  // namespace tutti::backends::mpi
