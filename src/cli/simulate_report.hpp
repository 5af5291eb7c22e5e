// The answers of `tutti simulate` as text and as JSON.
#pragma once

#include "simulate/answer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::cli {

/// One play.
struct Simulated {
    std::uint64_t bytes = 0;  ///< of the whole buffer
    simulate::Answer answer;
    double wall_s = 0;  ///< how long the play took
};

/// "1.234 ms".
std::string time_in_words(double us);
/// "64M", "100".
std::string size_in_words(std::uint64_t bytes);
/// A line for each play, under a line of headings.
std::string table_of(const std::vector<Simulated>& plays);
/// One play in detail: when ranks are done, busy links, what the last rank waited for, and which ranks hear of a death
/// when.
std::string details_of(const Simulated& play, const simulate::Question& question);
std::string json_of(const std::vector<Simulated>& plays, const simulate::Question& question);

}  // namespace tutti::cli
