// The backend "hf_zmq": every operation as messages of ZeroMQ. For barriers, objects and other small data.
//   TUTTI_HOST=10.0.0.1   the address to listen on; otherwise the one by which this host reached the store
#include "shared/message_backend.hpp"
#include "zmq/carrier.hpp"

#include <tutti/backend.hpp>

#include <any>
#include <memory>

namespace tutti::backends::zeromq {
namespace {

std::shared_ptr<CustomBackend> make(const DistributedBackendOptions& options, const std::any&) {
    return std::make_shared<MessageBackend>(MessageBackend::Parts{.name = "hf_zmq",
                                                                  .rank = options.group_rank,
                                                                  .size = options.group_size,
                                                                  .carrier = std::make_shared<ZmqCarrier>(options)});
}

}  // namespace
}  // namespace tutti::backends::zeromq

TUTTI_BACKEND_LIBRARY {
    tutti::Backend::register_backend("hf_zmq", tutti::Backend::Extended(&tutti::backends::zeromq::make),
                                     {tutti::Device::Type::cpu});
}
