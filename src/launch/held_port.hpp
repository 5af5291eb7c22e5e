// HeldPort: reserves a port of this host for the ranks. The system does not give it to processes that ask for any free
// port, but a rank may listen on it, also after a restart, since such servers set SO_REUSEADDR.
//
// Threads: from one thread.
#pragma once

#include "core/unique_fd.hpp"

#include <cstdint>

namespace tutti::launch {

class HeldPort {
 public:
    /// `wanted`: 0: any free port. Throws DistNetworkError that names --master-port if another process listens there.
    explicit HeldPort(std::uint16_t wanted);
    std::uint16_t number() const noexcept { return number_; }

 private:
    UniqueFd socket_;
    std::uint16_t number_ = 0;
};

}  // namespace tutti::launch
