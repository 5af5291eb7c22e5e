// is_available(): whether all of tutti is installed. A build with USE_DISTRIBUTED=OFF installs only this header, so
// that a program that can do without tutti can ask before it uses anything else of tutti.
//
// Threads: any. Follows torch.distributed.is_available.
#pragma once

#include <tutti/export.hpp>

namespace tutti {

/// False: only this function is installed.
#if defined(TUTTI_WITHOUT_DISTRIBUTED)
inline bool is_available() noexcept {
    return false;
}
#else
TUTTI_API bool is_available() noexcept;
#endif

}  // namespace tutti
