// What `tutti simulate` is asked, as values of the room simulate. Everything throws InvalidArgument that names the
// option, the value and what is expected.
#pragma once

#include "simulate/answer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::cli {

/// "8", "64M", or "8:64M": 8, 32, 128, … and 64M.
std::vector<std::uint64_t> sizes_of(const std::string& text, const std::string& option);
/// Microseconds: "5ms", "20us", "1s", "300ns".
double duration_us(const std::string& text, const std::string& option);

struct ConditionTexts {
    std::vector<std::string> delays, slow_links;  ///< "R=5ms", "A-B=0.5"
    std::string jitter, kill;                     ///< "10%"; "R@5ms"
    std::uint64_t seed = 1;
};
simulate::Conditions conditions_of(const ConditionTexts& texts, int ranks, int hosts);

/// A preset by its name, or a network from a JSON file:
///   {"nic_gbit": 100, "nics": 1, "us": 8, "rails": false, "levels": [{"hosts": 32, "gbit": 1600, "us": 1, "pairwise":
///   false}], "host": {"tcp_send_us": 3}}
/// All members but "nic_gbit" may be left out. "host": numbers of a CostModel, which are stored in `costs`. Or from one
/// in InfraGraph's format (simulate/infragraph.hpp).
simulate::Network network_of(const std::string& text, algorithm::CostModel& costs);

}  // namespace tutti::cli
