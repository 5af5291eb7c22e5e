#include "store/spin.hpp"

#include <sched.h>

namespace tutti::store {

int usable_cores() {
    cpu_set_t cores;
    return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace tutti::store
