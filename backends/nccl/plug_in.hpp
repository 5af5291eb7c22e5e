// PlugIn: the CustomBackend of a vendor's library.
//
// Threads: as CustomBackend says.
#pragma once

#include "nccl/library.hpp"

#include <tutti/backend.hpp>

#include <any>
#include <memory>

namespace tutti::nccl {

/// Registers vendor.backend for the vendor's devices, and for host memory where its library works on that. Opens the
/// library here if it can; otherwise a new group gets the error. A plug-in's TUTTI_BACKEND_LIBRARY calls it.
void register_plug_in(const Vendor& vendor);

/// The same with a library of the caller's, for tests.
std::shared_ptr<CustomBackend> make_backend(std::shared_ptr<const Library> library,
                                            const DistributedBackendOptions& options, const std::any& pg_options);

}  // namespace tutti::nccl

/// Makes a library a plug-in for a vendor's: it registers itself, and has a lasting text for `tutti doctor`.
#define TUTTI_NCCL_PLUG_IN(vendor)                                                         \
    TUTTI_BACKEND_LIBRARY {                                                                \
        tutti::nccl::register_plug_in(vendor);                                             \
    }                                                                                      \
    extern "C" __attribute__((visibility("default"))) const char* tutti_backend_report() { \
        static const std::string text = tutti::nccl::Library::report(vendor);              \
        return text.c_str();                                                               \
    }
