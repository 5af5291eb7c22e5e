// The transport "mpi", compiled for one family of MPIs: MPI's messages and collectives, between the processes that
// mpirun has started, or in a single process.
#include "mpi/choice.hpp"
#include "mpi/connector.hpp"

namespace tutti::backends::mpi {
namespace {

std::unique_ptr<transport::Streams> make(const DistributedBackendOptions& options) {
    return std::make_unique<MpiConnector>(options);
}

}  // namespace
}  // namespace tutti::backends::mpi

extern "C" __attribute__((visibility("default"))) const tutti::backends::mpi::Make tutti_mpi_make =
    &tutti::backends::mpi::make;
