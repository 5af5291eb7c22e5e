// The backend "gloo": a transport over Gloo's connections, with Gloo's own collectives.
//   GLOO_SOCKET_IFNAME=eth0,eth1   the interfaces, equally many on all ranks; all of them are used
#include "gloo/connector.hpp"

TUTTI_TRANSPORT_LIBRARY {
    tutti::register_transport("gloo", [](const tutti::DistributedBackendOptions& options) {
        return std::make_unique<tutti::backends::gloo::GlooConnector>(options);
    });
}
