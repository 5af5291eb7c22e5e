// Html: worlds as a page that a browser shows and reloads every few seconds: which ranks wait for which, and how much
// each pair of ranks has sent lately, each as a matrix with darker cells for larger values. No scripts, and no external
// resources.
//
// Threads: free functions.
#pragma once

#include "record/timeline.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::record {

/// Worlds with more ranks get no matrices; the text below covers all ranks.
inline constexpr std::size_t matrix_ranks_max = 64;

/// Bytes from each rank (row) to each other rank (column), in the messages and all_to_alls of the dumps: only these
/// records say where their bytes go.
std::vector<std::vector<std::uint64_t>> bytes_by_pair(const WorldTimeline& world);

/// `remarks`: lines about what the page lacks.
std::string html_of(std::span<const WorldTimeline> worlds, std::string_view remarks);

}  // namespace tutti::record
