#include <tutti/version.hpp>

namespace tutti {

const char* version() noexcept {
    return TUTTI_VERSION_STRING;
}

}  // namespace tutti
