// Groups of some ranks: torch.distributed.new_group and its relatives.
//
// A group needs no connections of its own: it shares those of its world, and its shared memory and progress thread, so
// a job may have thousands of groups. Collectives of different groups run concurrently; a receive never matches a
// message of another group.
//
// All ranks of the world, members or not, call these functions in the same order; a call returns when all ranks have
// made it. A disagreement between ranks is an error on all of them. With use_local_synchronization only the members
// call.
//
// Errors: InvalidArgument names the rank whose arguments are wrong; CollectiveMismatch says which groups the ranks
// asked for; Timeout after the world's timeout. An operation that fails in one group ends the world with all its
// groups.
//
// Threads: any, in the same order on all ranks, as for collectives. If several threads of a rank make groups at the
// same time and the order of their calls differs between ranks, all ranks get CollectiveMismatch.
#pragma once

#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>

#include <any>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct NewGroupOptions {
    std::optional<std::chrono::milliseconds>
        timeout{};          ///< of the group's operations; default: TUTTI_TIMEOUT_MS, else as in InitOptions
    std::string backend{};  ///< "": the world's; else as InitOptions::backend
    std::any pg_options{};  ///< for the backend's constructor; empty: the world's
    /// Only the members call new_group, and wait for each other in the store. Ranks that deadlock, because they make
    /// overlapping groups in different orders, get InvalidArgument.
    bool use_local_synchronization = false;
    std::string group_desc{};           ///< free text, for messages
    std::optional<Device> device_id{};  ///< as InitOptions::device_id
    ProcessGroup world{};               ///< `ranks` are ranks of this group; default: the default group
};

/// Makes a group of some ranks of the world, in ascending order. The other ranks get ProcessGroup::non_member().
TUTTI_API ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options = {});
/// Makes a group of all ranks.
TUTTI_API ProcessGroup new_group(const NewGroupOptions& options = {});
/// Makes several groups at once, for the cost of one. Returns for each list the group, or non_member(). Not with
/// use_local_synchronization.
TUTTI_API std::vector<ProcessGroup> new_groups(std::vector<std::vector<int>> ranks,
                                               const NewGroupOptions& options = {});
/// Makes groups of `group_size` consecutive ranks; the number of ranks must be a multiple of it. Returns this rank's
/// group (first) and all groups (second).
TUTTI_API std::pair<ProcessGroup, std::vector<ProcessGroup>> new_subgroups(int group_size,
                                                                           const NewGroupOptions& options = {});
/// Makes a group of each list; a rank may be in at most one list. Returns this rank's group, or non_member() (first),
/// and all groups (second).
TUTTI_API std::pair<ProcessGroup, std::vector<ProcessGroup>> new_subgroups_by_enumeration(
    std::vector<std::vector<int>> ranks_per_subgroup, const NewGroupOptions& options = {});

/// The rank in `group` of a global rank. Throws InvalidArgument if the group does not contain that rank.
TUTTI_API int get_group_rank(const ProcessGroup& group, int global_rank);
/// The global rank of a rank in `group`. Throws InvalidArgument when there is no such rank.
TUTTI_API int get_global_rank(const ProcessGroup& group, int group_rank);
/// The global ranks of a group (default: the default group), by group rank.
TUTTI_API std::vector<int> get_process_group_ranks(const ProcessGroup& group = {});

/// The memory, in bytes, that this rank adds to what the ranks of its host share for the group: slots, staging and the
/// rings of messages (of a rank that is the only one, what it has for itself). An upper bound, as the system provides
/// pages when they are first written. Symmetric memory does not count. 0 if the ranks of the host share no memory.
TUTTI_API std::size_t shared_memory_bytes(const ProcessGroup& group = {});

}  // namespace tutti
