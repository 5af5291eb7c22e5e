#include "launch/torchrun_variables.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

namespace tutti::launch {
namespace {

constexpr std::string_view prefix = "PET_";
constexpr auto known =
    std::to_array<std::string_view>({"PET_LOG_DIR", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_MAX_RESTARTS",
                                     "PET_MODULE", "PET_NNODES", "PET_NODE_RANK", "PET_NO_PYTHON", "PET_NPROC_PER_NODE",
                                     "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_REDIRECTS", "PET_STANDALONE", "PET_TEE"});

std::string variable_of(const std::string& flag) {
    TUTTI_ASSERT(flag.starts_with("--"));
    if (flag == "--run-id") return "PET_RDZV_ID";
    std::string name(prefix);
    for (const char c : flag.substr(2)) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    return name;
}

// Ranks that meet at an address is all that these two mean; here they do so in any case.
bool says_nothing_new(std::string_view name, std::string_view value) {
    return value.empty() || (name == "PET_RDZV_BACKEND" && (value == "c10d" || value == "static"));
}

}  // namespace

Given flag_or_torchrun(const std::string& value, const std::string& flag, const Pod& pod) {
    if (!value.empty()) return {value, flag};
    const std::string variable = variable_of(flag);
    TUTTI_ASSERT(pod.variable != nullptr && variable.starts_with(prefix));
    const auto from = pod.variable(variable);
    return from && !from->empty() ? Given{*from, variable} : Given{};
}

std::string unread_torchrun_variables(std::span<const char* const> environment) {
    std::vector<std::string_view> unread;
    for (const std::string_view variable : environment) {
        const std::string_view name = variable.substr(0, variable.find('='));
        const std::string_view value = variable.substr(std::min(name.size() + 1, variable.size()));
        if (!name.starts_with(prefix) || says_nothing_new(name, value)) continue;
        if (std::ranges::find(known, name) == known.end()) unread.push_back(name);
    }
    if (unread.empty()) return {};
    std::ranges::sort(unread);
    return fmt::format("tutti run: {} {} set, and not read here; of torchrun's variables tutti run reads {}",
                       fmt::join(unread, ", "), unread.size() == 1 ? "is" : "are", fmt::join(known, ", "));
}

}  // namespace tutti::launch
