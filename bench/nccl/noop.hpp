// A library with NCCL's interface and a driver, of which no function does anything: the time left is our own.
#pragma once

#include "nccl/driver.hpp"
#include "nccl/interface.hpp"

#include <memory>

namespace tutti::bench {

nccl::Interface noop_calls();
std::shared_ptr<const nccl::Driver> noop_driver();

}  // namespace tutti::bench
