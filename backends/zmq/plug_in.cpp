// The backend "hf_zmq": a transport over ZeroMQ. For barriers, objects and other small data.
//   TUTTI_HOST=10.0.0.1   the address to listen on; otherwise the one by which this host reached the store
#include "zmq/connector.hpp"

TUTTI_TRANSPORT_LIBRARY {
    tutti::register_transport("hf_zmq", [](const tutti::DistributedBackendOptions& options) {
        return std::make_unique<tutti::backends::zeromq::ZmqConnector>(options);
    });
}
