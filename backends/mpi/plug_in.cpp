// The plug-in "mpi": it finds out which MPI this process has when the first group is made, and hands over to what was
// compiled for it.
#include "mpi/choice.hpp"

namespace tutti::backends::mpi {
namespace {

std::shared_ptr<CustomBackend> make(const DistributedBackendOptions& options, const std::any& pg_options) {
    static const Make part = part_for(choose());  // one MPI for a process
    return part(options, pg_options);
}

}  // namespace
}  // namespace tutti::backends::mpi

TUTTI_BACKEND_LIBRARY {
    tutti::Backend::register_backend("mpi", tutti::Backend::Extended(&tutti::backends::mpi::make),
                                     {tutti::Device::Type::cpu});
}

extern "C" __attribute__((visibility("default"))) const char* tutti_backend_report() {
    static std::string text;
    const auto choice = tutti::backends::mpi::choose();
    text = choice.family == nullptr ? "not here: " + choice.words : choice.words;
    return text.c_str();
}
