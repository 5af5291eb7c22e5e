// How a function leaves the library: NCCL_EXPORT before its definition's name, and the second name, with a "p" before.
#pragma once

#include "interface.h"

#define NCCL_EXPORT(result, name, arguments)                                                                  \
    extern "C" __attribute__((visibility("default"))) result p##name arguments __attribute__((alias(#name))); \
    extern "C" __attribute__((visibility("default"))) result name arguments
