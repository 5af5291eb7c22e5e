// HeldPort: a port of this host that is kept for the ranks. No system call gives it to a process that asks for any
// port, and a rank may listen on it, again after each restart, since such servers set SO_REUSEADDR.
//
// Threads: from one thread.
#pragma once

#include "core/unique_fd.hpp"

#include <cstdint>

namespace tutti::launch {

class HeldPort {
 public:
    /// `wanted`: 0: any that is free. Throws DistNetworkError that names --master-port when somebody listens there.
    explicit HeldPort(std::uint16_t wanted);
    std::uint16_t number() const noexcept { return number_; }

 private:
    UniqueFd socket_;
    std::uint16_t number_ = 0;
};

}  // namespace tutti::launch
