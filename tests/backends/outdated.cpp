// A transport that was built for an older tutti/transport.hpp.
#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#undef TUTTI_TRANSPORT_ABI
#define TUTTI_TRANSPORT_ABI 0

TUTTI_TRANSPORT_LIBRARY {
    tutti::register_transport("outdated", [](const auto&) { return nullptr; });
}
