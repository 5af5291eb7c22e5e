#include "core/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace tutti {

void fail_assertion(const char* condition, const char* file, int line, const char* function) noexcept {
    std::fprintf(stderr, "tutti: %s:%d: %s: the assertion does not hold: %s\n", file, line, function, condition);
    std::abort();
}

}  // namespace tutti
