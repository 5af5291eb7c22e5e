// Facts that only a PMIx process manager knows and no variable gives: PMIx's own library asks its server for them.
//
// Threads: any. Takes some 20 ms, most of that time in a child process.
#pragma once

#include <optional>
#include <string>

namespace tutti::rendezvous {

struct PmixFacts {
    std::optional<int> size, local_rank, local_size;
    std::string host_of_rank_0;  ///< empty: not known
};

/// Nothing if no PMIx server started this process, or libpmix.so.2 is not installed. Facts that the server does not
/// give stay empty.
std::optional<PmixFacts> ask_pmix();

}  // namespace tutti::rendezvous
