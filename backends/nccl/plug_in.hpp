// PlugIn: the CustomBackend of a vendor's library.
//
// Threads: as CustomBackend says.
#pragma once

#include "nccl/library.hpp"

#include <tutti/backend.hpp>

#include <any>
#include <memory>

namespace tutti::nccl {

/// Registers vendor.backend for the vendor's devices, and for host memory where its library works on that. The library
/// is opened here where it can be; a group that is made where it cannot gets the sentence. What a plug-in's
/// TUTTI_BACKEND_LIBRARY calls.
void register_plug_in(const Vendor& vendor);

/// With a library of the caller's: what tests call.
std::shared_ptr<CustomBackend> make_backend(std::shared_ptr<const Library> library,
                                            const DistributedBackendOptions& options, const std::any& pg_options);

}  // namespace tutti::nccl

/// What makes a library a plug-in for a vendor's: it registers itself, and has a text for `tutti doctor`, which stays.
#define TUTTI_NCCL_PLUG_IN(vendor)                                                         \
    TUTTI_BACKEND_LIBRARY {                                                                \
        tutti::nccl::register_plug_in(vendor);                                             \
    }                                                                                      \
    extern "C" __attribute__((visibility("default"))) const char* tutti_backend_report() { \
        static const std::string text = tutti::nccl::Library::report(vendor);              \
        return text.c_str();                                                               \
    }
