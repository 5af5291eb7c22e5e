// The plug-in "mpi": finds the process's MPI when the first group is made, and hands over to the part that is compiled
// for it.
#include "common/ways.hpp"
#include "mpi/choice.hpp"

#include <tutti/backend.hpp>

namespace tutti::backends::mpi {
namespace {

const Part& part() {
    static const Part one = part_for(choose());  // one MPI for a process
    return one;
}

}  // namespace
}  // namespace tutti::backends::mpi

// The counts of the part, which has run the collectives.
void tutti_backend_ways(std::uint64_t (*counts)[3]) {
    tutti::backends::mpi::part().ways(counts);
}

TUTTI_TRANSPORT_LIBRARY {
    tutti::register_transport("mpi", [](const tutti::DistributedBackendOptions& options) {
        return tutti::backends::mpi::part().make(options);
    });
}

extern "C" __attribute__((visibility("default"))) const char* tutti_backend_report() {
    static std::string text;
    const auto choice = tutti::backends::mpi::choose();
    text = choice.family == nullptr ? "not here: " + choice.words : choice.words;
    return text.c_str();
}
