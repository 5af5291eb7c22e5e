// Html: worlds as a page that a browser shows and asks for again every few seconds: who waits for whom, and what pairs
// of ranks have sent each other lately, each as a matrix that is the darker the more there is. No script, and nothing
// from elsewhere.
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

/// Matrices of more ranks are left out; the words below them tell of all ranks.
inline constexpr std::size_t matrix_ranks_max = 64;

/// Bytes from each rank (row) to each other one, of the messages and all_to_alls in the dumps: these alone say where
/// their bytes go.
std::vector<std::vector<std::uint64_t>> bytes_by_pair(const WorldTimeline& world);

/// `remarks`: lines on what the page does not know.
std::string html_of(std::span<const WorldTimeline> worlds, std::string_view remarks);

}  // namespace tutti::record
