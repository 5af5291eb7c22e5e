// The exchange between the ranks of a group before they make a communicator: each rank's abilities and device, on the
// cards of tutti/meeting.hpp. From the same cards all ranks come to the same result, also if the ranks do not fit.
//
// Threads: any; meet() blocks.
#pragma once

#include "nccl/context.hpp"
#include "nccl/interface.hpp"

#include <string>
#include <vector>

namespace tutti::nccl {

/// The first meeting of a group, before any step that waits for others: checks that all ranks have their library.
/// `trouble`: why this one does not; empty: it does. Throws DistBackendError with one rank's trouble on all of them;
/// Timeout if some do not come, PeerLost if one ends before.
void roll_call(const DistributedBackendOptions& options, const std::string& backend, const std::string& trouble);

/// Whether all ranks say yes to `what`. Throws as roll_call() if some do not come.
bool all_say_yes(const DistributedBackendOptions& options, const std::string& backend, const std::string& what,
                 bool yes);

/// The facts of one rank.
struct Facts {
    int version = 0;
    bool gathers = false;     ///< its library has Gather and Scatter
    int capability = 0;       ///< of its device
    std::string library;      ///< version and file, for messages
    std::string host;         ///< as NCCL sees it: NCCL_HOSTID, or the machine's own
    std::string device;       ///< its identity; empty: cannot be compared
    std::string device_text;  ///< "cuda:1"
    bool may_share = false;   ///< NCCL_MULTI_RANK_GPU_ENABLE is set, and the library knows it
    std::string trouble;      ///< why this rank cannot take part; empty: it can
};

/// The facts that hold for all ranks.
struct Agreement {
    int version = 0;
    bool gathers = false;
    bool reduces_float8 = false;
    std::vector<UniqueId> ids;
};

/// Why these ranks can have no communicator, in a sentence; empty: they can. By rank.
std::string disagreement(const std::string& backend, const std::vector<Facts>& facts);
/// The agreement of ranks without disagreement.
Agreement agreement(const std::vector<Facts>& facts);

/// The facts of this rank. `trouble` says why it cannot take part.
Facts facts_of(Context& context, const Place& place);

/// All ranks call it in the same order, each with its own facts; `meeting` tells their meetings apart. Throws
/// DistBackendError with the disagreement; as roll_call() if some do not come; Aborted once the context is over.
Agreement meet(Context& context, const Facts& own, const std::string& meeting);

}  // namespace tutti::nccl
