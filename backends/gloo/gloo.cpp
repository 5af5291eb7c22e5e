// The backend "gloo": Gloo's collectives over TCP, and messages over its buffers for the collectives that it lacks.
//   GLOO_SOCKET_IFNAME=eth0,eth1   the interfaces, equally many on all ranks; operations take them in turn
#include "gloo/carrier.hpp"
#include "gloo/collectives.hpp"
#include "gloo/lanes.hpp"
#include "shared/message_backend.hpp"

#include <tutti/backend.hpp>

#include <any>
#include <memory>

namespace tutti::backends::gloo {
namespace {

std::shared_ptr<CustomBackend> make(const DistributedBackendOptions& options, const std::any&) {
    auto lanes = connect_lanes(options);
    return std::make_shared<MessageBackend>(MessageBackend::Parts{
        .name = "gloo",
        .rank = options.group_rank,
        .size = options.group_size,
        .carrier = std::make_shared<GlooCarrier>(lanes),
        .lanes = static_cast<int>(lanes.size()),
        .foreign = [lanes](const BackendRequest& request,
                           int lane) { return run_collective(request, lanes[static_cast<std::size_t>(lane)]); },
    });
}

}  // namespace
}  // namespace tutti::backends::gloo

TUTTI_BACKEND_LIBRARY {
    tutti::Backend::register_backend("gloo", tutti::Backend::Extended(&tutti::backends::gloo::make),
                                     {tutti::Device::Type::cpu});
}
