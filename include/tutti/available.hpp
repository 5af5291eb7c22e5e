// Whether the whole library is here. A build with USE_DISTRIBUTED=OFF installs this header alone, so that a program
// that can do without tutti asks before it uses anything else of it.
//
// Threads: any. Follows torch.distributed.is_available.
#pragma once

#include <tutti/export.hpp>

namespace tutti {

/// False: nothing but this function is here.
#if defined(TUTTI_WITHOUT_DISTRIBUTED)
inline bool is_available() noexcept {
    return false;
}
#else
TUTTI_API bool is_available() noexcept;
#endif

}  // namespace tutti
