// The backend "rccl": AMD's library, which has NCCL's functions by NCCL's names, on HIP's streams.
#include "nccl/plug_in.hpp"
#include "nccl/vendors.hpp"

namespace tutti::nccl {

Vendor rccl_vendor() {
    Vendor vendor;
    vendor.backend = "rccl";
    vendor.title = "RCCL";
    vendor.prefix = "nccl";
    vendor.files = {"librccl.so.1", "librccl.so"};
    vendor.variable = "TUTTI_RCCL_LIB";
    vendor.in_python = {"torch/lib", "_rocm_sdk_libraries/lib"};
    vendor.devices = {Device::Type::rocm, Device::Type::cuda};
    vendor.oldest = 21800;
    vendor.oldest_text = "2.18";
    vendor.how_to_get = "ROCm 6.1 or later brings it, and PyTorch for ROCm";
    vendor.resolve = resolve_nccl;
    vendor.abilities = nccl_abilities;
    vendor.version_text = nccl_version_text;
    return vendor;
}

namespace {

Vendor with_driver() {
    provide_driver(Device::Type::rocm, open_hip_driver);
    provide_driver(Device::Type::cuda, open_hip_driver);
    return rccl_vendor();
}

}  // namespace
}  // namespace tutti::nccl

TUTTI_NCCL_PLUG_IN(tutti::nccl::with_driver())
