// The names of nccl.h that nccl-tests use and nccl/interface.h does not have. The version is the last one without the
// device API; the library says its own.
#pragma once
#include "../../../nccl/interface.h"
#include "cuda_runtime.h"

#undef NCCL_MINOR
#define NCCL_MINOR 27
#undef NCCL_VERSION_CODE
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

constexpr ncclDataType_t ncclChar = ncclInt8, ncclInt = ncclInt32, ncclHalf = ncclFloat16, ncclFloat = ncclFloat32,
                         ncclDouble = ncclFloat64;

#define NCCL_WIN_COLL_SYMMETRIC 1
// With the members that came after this version: the size says that they are there.
#define NCCL_CONFIG_INITIALIZER                                                                                  \
    {                                                                                                            \
        sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, nullptr, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
            nullptr, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT           \
    }
