// The backend "nccl": NVIDIA's library, or one with its interface.
#include "nccl/plug_in.hpp"

namespace tutti::nccl {
namespace {

const Vendor& vendor() {
    static const Vendor nccl{
        .backend = "nccl",
        .title = "NCCL",
        .prefix = "nccl",
        .files = {"libnccl.so.2"},
        .variable = "TUTTI_NCCL_LIB",
        .in_python = {"nvidia/nccl/lib", "torch/lib"},
        .devices = {Device::Type::cuda},
        .oldest = 21800,
        .oldest_text = "2.18",
        .how_to_get = "pip install nvidia-nccl-cu12 or nvidia-nccl-cu13 brings it",
        .resolve = &resolve_nccl,
        .abilities = &nccl_abilities,
        .version_text = &nccl_version_text,
    };
    return nccl;
}

}  // namespace
}  // namespace tutti::nccl

TUTTI_NCCL_PLUG_IN(tutti::nccl::vendor())
