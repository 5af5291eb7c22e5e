// What the ranks of a group tell each other before they make a communicator: who can what, and where. Rank 0 decides,
// and everybody gets its word, also where the ranks do not fit: one sentence for all.
//
// Threads: any; meet() blocks.
#pragma once

#include "nccl/context.hpp"
#include "nccl/interface.hpp"

#include <string>
#include <vector>

namespace tutti::nccl {

/// The first meeting of a group, before anything is made that waits for others: whether all ranks have their library.
/// `trouble`: why this one does not; empty: it does. Throws DistBackendError with one rank's trouble on all of them;
/// Timeout where some do not come.
void roll_call(const DistributedBackendOptions& options, const std::string& backend, const std::string& trouble);

/// Whether all ranks say yes to `what`. Throws as roll_call() where some do not come.
bool all_say_yes(const DistributedBackendOptions& options, const std::string& backend, const std::string& what,
                 bool yes);

/// Of one rank.
struct Facts {
    int version = 0;
    bool gathers = false;     ///< its library has Gather and Scatter
    int capability = 0;       ///< of its device
    std::string library;      ///< version and file, for messages
    std::string host;         ///< as NCCL sees it: NCCL_HOSTID, or the machine's own
    std::string device;       ///< its identity; empty: not to be compared
    std::string device_text;  ///< "cuda:1"
    bool may_share = false;   ///< NCCL_MULTI_RANK_GPU_ENABLE is set, and the library knows it
    std::string trouble;      ///< why this rank cannot take part; empty: it can
};

/// What holds for all ranks.
struct Agreement {
    int version = 0;
    bool gathers = false;
    bool reduces_float8 = false;
    std::vector<UniqueId> ids;
};

/// Why these ranks can have no communicator, in a sentence; empty: they can. By rank.
std::string disagreement(const std::string& backend, const std::vector<Facts>& facts);
/// Of ranks that can.
Agreement agreement(const std::vector<Facts>& facts);

/// Of this rank. What keeps it from taking part is in `trouble`.
Facts facts_of(Context& context, const Place& place);

/// All ranks call it in the same order, with the place that each uses; `meeting` tells their meetings apart. Throws
/// DistBackendError with the disagreement; Timeout that names a rank that did not come; Aborted once the context is
/// over.
Agreement meet(Context& context, const Facts& own, const std::string& meeting);

}  // namespace tutti::nccl
