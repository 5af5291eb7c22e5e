#include "mpi/communicators.hpp"

#include "common/meet.hpp"

#include <tutti/error.hpp>

#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::backends::mpi {
namespace {

constexpr const char* ranks_meeting = "ranks";

// Tells the others at once when this rank cannot take part, and why.
Membership enter_or_say_so(const DistributedBackendOptions& o) {
    try {
        return enter();
    } catch (const DistBackendError& error) {
        say_cannot_meet(o, "mpi", ranks_meeting, error);
        throw;
    }
}

// The members' ranks in MPI_COMM_WORLD, by group rank.
std::vector<int> world_ranks(const DistributedBackendOptions& o, const Membership& own) {
    std::vector<int> ranks;
    std::set<std::string> worlds;
    std::string all;
    const std::string card = std::to_string(own.rank) + " " + std::to_string(own.size) + " " + own.job;
    for (const std::string& value : meet(o, "mpi", ranks_meeting, card)) {
        std::istringstream in(value);
        int rank = -1;
        std::string size, job;
        in >> rank >> size >> job;
        all += (ranks.empty() ? "rank " : ", rank ") + std::to_string(ranks.size()) + ": MPI rank " +
               std::to_string(rank) + " of " + size;
        worlds.insert(size + " " + job);
        ranks.push_back(rank);
    }
    if (worlds.size() == 1 && std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size()) return ranks;
    throw DistBackendError("mpi: the members of group \"" + o.group_id +
                           "\" are not different ranks of one MPI world (" + all +
                           "): expected a program that mpirun has started, and one member in each process; this one "
                           "has " +
                           library_version() + ", so it must be that MPI's mpirun");
}

// The tag that tells apart groups that are made at the same time.
int tag_of(const std::string& group) {
    std::uint32_t hash = 2166136261U;
    for (const char c : group) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    return static_cast<int>(hash % 32767U);  // a tag that every MPI allows
}

}  // namespace

Communicators::Communicators(const DistributedBackendOptions& o) : rank_(o.group_rank), size_(o.group_size) {
    const Membership own = enter_or_say_so(o);
    try {
        const std::vector<int> ranks = world_ranks(o, own);
        MPI_Group everybody = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
        check(MPI_Comm_group(MPI_COMM_WORLD, &everybody), "MPI_Comm_group");
        check(MPI_Group_incl(everybody, size_, ranks.data(), &members), "MPI_Group_incl");
        check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag_of(o.group_id), &collectives_),
              "MPI_Comm_create_group");
        check(MPI_Group_free(&members), "MPI_Group_free");
        check(MPI_Group_free(&everybody), "MPI_Group_free");
        check(MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Comm_dup(collectives_, &messages_), "MPI_Comm_dup");
        check(MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    } catch (...) {
        leave();
        throw;
    }
}

Communicators::~Communicators() {
    if (!has_broken_off()) {
        if (messages_ != MPI_COMM_NULL) MPI_Comm_free(&messages_);
        MPI_Comm_free(&collectives_);
    }
    leave();
}

}  // namespace tutti::backends::mpi
