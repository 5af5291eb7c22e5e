// Flight: dumps in the format of PyTorch's flight recorder, for torchfrtrace and other readers of this format.
//
// A file is the pickle of a dictionary for one rank of one world with all its groups, in schema 2.11 (2.10 and the
// sizes of splits). Its readers make these assumptions, with which the files comply:
// - operations have the names of gloo's ("gloo:all_reduce"): readers accept no name of tutti's own;
// - the sizes of an operation are equal on all ranks unless they differ by mistake; operations of which only a digest
//   is known have no sizes;
// - every pair of ranks that exchange messages has, for each direction, a group of only these two ranks, with numbered
//   messages: in a larger group readers would expect all ranks to take part in each message.
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

/// One file for each rank of each world that has a dump.
std::vector<FlightFile> flight_files(std::span<const Dump> dumps);

/// Encodes `value` in protocol 2 of Python's pickle: dictionaries, lists, strings, integers, floats, booleans and None.
std::string pickle(const nlohmann::json& value);

/// The parts of Entry::what, such as "all_gather of float32 × 10, root 0".
struct What {
    std::string operation{};
    std::string dtype{};                   ///< empty: it has none
    std::optional<std::uint64_t> count{};  ///< elements; of one rank's block if there are blocks
    bool several = false;                  ///< several tensors in one operation, or blocks that differ by rank
};
/// `message`: the text is that of a send or receive.
What what_of(std::string_view text, bool message);

}  // namespace tutti::record
