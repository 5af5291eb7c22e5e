#include "atb/param.hpp"

#include "atb/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace tutti::atb {
namespace {

constexpr std::array known_parameters{"backend",  "commDomain",    "commMode", "hcclComm", "rank",
                                      "rankRoot", "rankTableFile", "rankSize", "rsv"};

template <class... Args>
[[noreturn]] void refuse_parameter(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(ERROR_INVALID_PARAM, "AllToAllVV2Param: " + fmt::format(format, std::forward<Args>(args)...));
}

int number(const Json& json) {
    return static_cast<int>(json.integer(INT32_MIN, INT32_MAX));
}

CommMode mode(const Json& json) {
    const std::string text = json.text();
    for (const auto& [name, mode] : {std::pair{"COMM_MULTI_PROCESS", COMM_MULTI_PROCESS},
                                     {"COMM_MULTI_THREAD", COMM_MULTI_THREAD},
                                     {"COMM_UNDEFINED", COMM_UNDEFINED}}) {
        if (text == name) return mode;
    }
    return static_cast<CommMode>(number(json));
}

}  // namespace

void check(const AllToAllVV2Param& p) {
    if (p.backend != "hccl") refuse_parameter("backend is \"{}\": expected \"hccl\"", p.backend);
    if (p.commMode != COMM_MULTI_PROCESS && p.commMode != COMM_MULTI_THREAD) {
        refuse_parameter("commMode is {}: expected {} (COMM_MULTI_PROCESS) or {} (COMM_MULTI_THREAD)",
                         static_cast<int>(p.commMode), static_cast<int>(COMM_MULTI_PROCESS),
                         static_cast<int>(COMM_MULTI_THREAD));
    }
    if (p.commDomain.size() > domain_name_characters) {
        refuse_parameter("commDomain has {} characters: expected at most {}", p.commDomain.size(),
                         domain_name_characters);
    }
    const auto reserved = std::ranges::find_if(p.rsv, [](std::uint8_t byte) { return byte != 0; });
    if (reserved != std::end(p.rsv))
        refuse_parameter("rsv[{}] is {}: expected zeros", reserved - std::begin(p.rsv), static_cast<int>(*reserved));
    if (!p.rankTableFile.empty()) {
        std::error_code error;
        if (!std::filesystem::exists(p.rankTableFile, error))
            refuse_parameter("rankTableFile \"{}\": {}", p.rankTableFile,
                             error ? error.message() : "there is no such file");
    }
    if (p.hcclComm) {
        if (p.hcclComm.group().is_non_member()) refuse_parameter("hcclComm: this rank is not in that group");
        return;
    }
    if (!p.rankTableFile.empty()) return;  // the ranks are those that it lists
    if (p.rankSize < 1) refuse_parameter("rankSize is {}: expected 1 or more", p.rankSize);
    if (p.rank == -1 && p.rankSize > 1) refuse_parameter("rank is -1: expected 0 to {}", p.rankSize - 1);
    if (p.rank < -1 || p.rank >= p.rankSize) refuse_parameter("rank is {}: expected 0 to {}", p.rank, p.rankSize - 1);
    if (p.rankRoot < 0 || p.rankRoot >= p.rankSize)
        refuse_parameter("rankRoot is {}: expected 0 to {}", p.rankRoot, p.rankSize - 1);
}

AllToAllVV2Param param_from_json(const std::string& text) {
    const Json json("set_param", text);
    for (const std::string& key : json.keys()) {
        if (std::ranges::find(known_parameters, key) == known_parameters.end())
            json.fail(fmt::format("\"{}\" is no parameter: expected {}", key, fmt::join(known_parameters, ", ")));
    }
    AllToAllVV2Param p;
    if (const auto value = json.find("rank")) p.rank = number(*value);
    if (const auto value = json.find("rankSize")) p.rankSize = number(*value);
    if (const auto value = json.find("rankRoot")) p.rankRoot = number(*value);
    if (const auto value = json.find("backend")) p.backend = value->text();
    if (const auto value = json.find("commMode")) p.commMode = mode(*value);
    if (const auto value = json.find("rankTableFile")) p.rankTableFile = value->text();
    if (const auto value = json.find("commDomain")) p.commDomain = value->text();
    if (const auto value = json.find("hcclComm"))
        value->fail("a text has no group: give set_param a structure with hcclComm");
    if (const auto value = json.find("rsv")) {
        const auto bytes = value->list();
        if (bytes.size() > sizeof p.rsv)
            value->fail(fmt::format("{} numbers: expected at most {}", bytes.size(), sizeof p.rsv));
        for (std::size_t i = 0; i < bytes.size(); ++i)
            p.rsv[i] = static_cast<std::uint8_t>(bytes[i].integer(0, UINT8_MAX));
    }
    return p;
}

}  // namespace tutti::atb
