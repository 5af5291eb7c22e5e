// The backend "mpi", compiled for one family of MPIs: MPI's collectives and messages, between the processes that mpirun
// has started, or in a single process.
#include "mpi/carrier.hpp"
#include "mpi/choice.hpp"
#include "mpi/collectives.hpp"
#include "mpi/communicators.hpp"
#include "shared/message_backend.hpp"

namespace tutti::backends::mpi {
namespace {

std::shared_ptr<CustomBackend> make(const DistributedBackendOptions& options, const std::any&) {
    const auto communicators = std::make_shared<Communicators>(options);
    return std::make_shared<MessageBackend>(MessageBackend::Parts{
        .name = "mpi",
        .rank = options.group_rank,
        .size = options.group_size,
        .carrier = std::make_shared<MpiCarrier>(communicators),
        .foreign = [communicators](const BackendRequest& request,
                                   int) { return run_collective(request, *communicators); },
    });
}

}  // namespace
}  // namespace tutti::backends::mpi

extern "C" __attribute__((visibility("default"))) const tutti::backends::mpi::Make tutti_mpi_make =
    &tutti::backends::mpi::make;
