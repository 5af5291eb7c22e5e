// A backend that lacks what the variable TROUBLE says.
#include <tutti/backend.hpp>

#include <cstdlib>
#include <memory>

TUTTI_BACKEND_LIBRARY {
    tutti::Backend::register_backend("troubled", tutti::Backend::Plain([](auto...) { return nullptr; }));
}

extern "C" __attribute__((visibility("default"))) const char* tutti_backend_report() {
    return std::getenv("TROUBLE");
}
