// Flight: dumps in the form of PyTorch's flight recorder, for torchfrtrace and other readers of that form.
//
// A file is the pickle of a dictionary, of one rank of one world, with all its groups: schema 2.11 (2.10 and the sizes
// of splits). Its readers assume the following, so these files comply:
// - operations are named as gloo's are ("gloo:all_reduce"): no other name of ours is accepted;
// - operations have sizes that are equal on all ranks where equal sizes are no mistake; those of which only a digest is
//   known have none;
// - every pair of ranks that exchange messages has a group for each direction, in which only these two are, and
//   messages are numbered: otherwise all ranks of the group are expected to take part in each.
//
// Threads: free functions.
#pragma once

#include "record/dump.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::record {

struct FlightFile {
    /// "flight_1f3a…_rank_3": the common prefix that torchfrtrace expects, and the rank in the world.
    std::string name;
    std::string bytes;
};

/// One file for each rank of each world of which there are dumps.
std::vector<FlightFile> flight_files(std::span<const Dump> dumps);

/// Protocol 2 of Python's pickle: dictionaries, lists, strings, integers, floats, booleans and None.
std::string pickle(const nlohmann::json& value);

/// Entry::what, "all_gather of float32 × 10, root 0", taken apart.
struct What {
    std::string operation{};
    std::string dtype{};                   ///< empty: it has none
    std::optional<std::uint64_t> count{};  ///< of elements; of one rank's block where there are blocks
    bool several = false;                  ///< several at once, or blocks that differ by rank
};
/// `message`: of a send or receive.
What what_of(std::string_view text, bool message);

}  // namespace tutti::record
