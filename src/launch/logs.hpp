// Logs: which streams of which ranks go to files, and the making of these files. Threads: from one thread.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <map>
#include <string>
#include <string_view>

namespace tutti::launch {

/// Streams of ranks: bit 0 is stdout, bit 1 is stderr.
struct Streams {
    int all = 0;
    std::map<int, int> of_local_rank{};  ///< instead of `all`

    int of(int local_rank) const {
        const auto found = of_local_rank.find(local_rank);
        const int streams = found == of_local_rank.end() ? all : found->second;
        TUTTI_ASSERT(local_rank >= 0 && streams >= 0 && streams <= 3);
        return streams;
    }
    bool any() const noexcept { return all != 0 || !of_local_rank.empty(); }
};
/// Parses torchrun's format: "3": both streams of all ranks; "0:1,2:3": by local rank (other ranks: none). Throws
/// InvalidArgument that names `option`.
Streams parse_streams(std::string_view text, const std::string& option);

/// Makes an empty file at `path`, and its folders. Throws InvalidArgument that names --log-dir.
UniqueFd make_log(const std::string& path);

}  // namespace tutti::launch
