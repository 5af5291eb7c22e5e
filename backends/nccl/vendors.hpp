// The relatives of NCCL: which libraries they are, and the drivers of their devices.
#pragma once

#include "nccl/driver.hpp"
#include "nccl/library.hpp"

#include <memory>

namespace tutti::nccl {

/// AMD's RCCL: NCCL's names and numbers. Its tensors are rocm's, or cuda's as PyTorch names AMD's devices.
Vendor rccl_vendor();
/// Huawei's HCCL, made to look like NCCL (hccl.cpp).
Vendor hccl_vendor();
/// Intel's oneCCL by its C interface, made to look like NCCL (xccl.cpp). Without a device it works on host memory.
Vendor xccl_vendor();
/// OpenUCX's UCC, made to look like NCCL (ucc.cpp): host memory, and NVIDIA's devices.
Vendor ucc_vendor();

/// Once for the process. Each throws DistBackendError that names the library it looked for.
std::shared_ptr<const Driver> open_hip_driver();   // TUTTI_HIP_LIB, or libamdhip64.so
std::shared_ptr<const Driver> open_acl_driver();   // TUTTI_ACL_LIB, or libascendcl.so
std::shared_ptr<const Driver> open_sycl_driver();  // TUTTI_SYCL_LIB, or libtutti-sycl.so

}  // namespace tutti::nccl
