// Choice: the MPI that this process works with. MPIs differ in the type of a communicator and in the meaning of
// numbers, and form two families with one ABI each; the code that calls them is compiled once for each family, as
// libtutti-mpi-FAMILY.so beside this plug-in, and linked with no MPI.
//
// Threads: any; choose() and part_for() look at the libraries that are loaded at this moment.
#pragma once

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::backends::mpi {

struct Family;  // the MPIs of one ABI

struct Choice {
    const Family* family = nullptr;  ///< null: no MPI is here, and `words` say where the search looked
    std::string library;             ///< its file
    std::string words;  ///< "Open MPI: /usr/lib/x86_64-linux-gnu/libmpi.so.40, which the program has loaded"
};

/// The MPI that the process has loaded already (of several, the one that is initialised), else the file that
/// TUTTI_MPI_LIB names, else one that the loader finds: first of the family whose mpirun has started the process.
Choice choose();

using Make = std::unique_ptr<transport::Streams> (*)(const DistributedBackendOptions& options);
/// The interface of libtutti-mpi-FAMILY.so.
struct Part {
    Make make = nullptr;
    void (*ways)(std::uint64_t (*counts)[3]) = nullptr;  ///< its tutti_backend_ways
};
/// Shows the chosen MPI's functions to all libraries and loads the part of its family.
/// Throws DistBackendError that names the missing file or function and its place.
Part part_for(const Choice& choice);

}  // namespace tutti::backends::mpi
