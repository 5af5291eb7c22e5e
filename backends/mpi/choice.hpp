// Choice: which MPI this process works with. MPIs differ in what a communicator is and which numbers mean what, and
// come in two families of equal ones; what calls them is compiled once for each family, as libtutti-mpi-FAMILY.so
// beside this plug-in, and linked with no MPI.
//
// Threads: any; choose() and part_for() look at what is loaded at this moment.
#pragma once

#include <tutti/backend.hpp>

#include <any>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::backends::mpi {

struct Family;  // the MPIs of one ABI

struct Choice {
    const Family* family = nullptr;  ///< nothing: no MPI is here, and `words` say where it was looked for
    std::string library;             ///< its file
    std::string words;  ///< "Open MPI: /usr/lib/x86_64-linux-gnu/libmpi.so.40, which the program has loaded"
};

/// The MPI that the process has loaded already (of several, the one that is initialised), else the file that
/// TUTTI_MPI_LIB names, else one that the loader finds: first of the family whose mpirun has started the process.
Choice choose();

using Make = std::shared_ptr<CustomBackend> (*)(const DistributedBackendOptions& options, const std::any& pg_options);
/// What libtutti-mpi-FAMILY.so has to offer.
struct Part {
    Make make = nullptr;
    void (*ways)(std::uint64_t (*counts)[3]) = nullptr;  ///< its tutti_backend_ways
};
/// Shows the chosen MPI's functions to all libraries and loads the part of its family.
/// Throws DistBackendError that tells what was not found where.
Part part_for(const Choice& choice);

}  // namespace tutti::backends::mpi
