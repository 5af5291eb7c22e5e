#include "store/spin.hpp"

#include "core/assert.hpp"

#include <sched.h>

namespace tutti::store {

int usable_cores() {
    cpu_set_t cores;
    const int count = ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    TUTTI_ASSERT(count >= 1);
    return count;
}

}  // namespace tutti::store
