#include "cli/simulate_conditions.hpp"

#include "algorithm/cost.hpp"
#include "command/arguments.hpp"
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "core/whole_file.hpp"
#include "simulate/infragraph.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace tutti::cli {
namespace {

constexpr std::size_t network_bytes_max = 64 << 20;

[[noreturn]] void refuse_value(const std::string& option, const std::string& value, const std::string& expected) {
    throw InvalidArgument(fmt::format("{} {}: expected {}", option, value, expected));
}

struct NumberAndRest {
    double value = -1;
    std::string rest;
};
NumberAndRest number_of(const std::string& text) {
    NumberAndRest result;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.value);
    if (error != std::errc() || !std::isfinite(result.value)) result.value = -1;
    result.rest.assign(end, text.data() + text.size());
    return result;
}

int index_of(const std::string& text, int end, const std::string& option, const std::string& value,
             std::string_view what) {
    const auto index = number_in<int>(text);
    if (!index || *index < 0 || *index >= end)
        refuse_value(option, value, fmt::format("a {} from 0 to {}, not \"{}\"", what, end - 1, text));
    return *index;
}

using Json = nlohmann::json;

// A number of a file, with what may be.
double number_from(const Json& object, const char* name, double otherwise, double least, double most,
                   const std::string& file) {
    if (!object.contains(name)) return otherwise;
    const Json& value = object[name];
    if (!value.is_number() || value.get<double>() < least || value.get<double>() > most)
        refuse_value("--network", file,
                     fmt::format("\"{}\" to be a number from {:g} to {:g}, not {}", name, least, most, value.dump()));
    return value.get<double>();
}

bool flag_from(const Json& object, const char* name, const std::string& file) {
    if (!object.contains(name)) return false;
    if (!object[name].is_boolean())
        refuse_value("--network", file, fmt::format("\"{}\" to be true or false, not {}", name, object[name].dump()));
    return object[name].get<bool>();
}

void only(const Json& object, const std::set<std::string>& known, const std::string& file) {
    if (!object.is_object()) refuse_value("--network", file, fmt::format("an object, not {}", object.dump()));
    for (const auto& [name, value] : object.items()) {
        if (!known.contains(name))
            refuse_value("--network", file, fmt::format("members {}; not \"{}\"", fmt::join(known, ", "), name));
    }
}

constexpr double bytes_of_gbit = 0.125;  // gigabytes

simulate::Network network_from(const std::string& file, algorithm::CostModel& costs) {
    std::string text;
    try {
        text = whole_file(file, network_bytes_max);
    } catch (const InvalidArgument& error) {
        refuse_value("--network", file, fmt::format("a file that can be read: {}", error.what()));
    }
    Json json;
    try {
        json = Json::parse(text);
    } catch (const Json::exception& error) {
        const bool yaml = file.ends_with(".yaml") || file.ends_with(".yml");
        refuse_value("--network", file,
                     yaml ? "JSON; python3 -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), "
                            "sys.stdout)' < FILE.yaml > FILE.json makes it of YAML"
                          : fmt::format("JSON: {}", error.what()));
    }
    if (simulate::is_infragraph(json)) {
        // What loopback takes, which has no wires.
        const double own_us = std::max(0.0, costs.tcp_us - costs.tcp_send_us - costs.tcp_receive_us);
        simulate::Network network = simulate::network_of_infragraph(json, fmt::format("--network {}", file), own_us);
        network.name = file;
        return network;
    }
    only(json, {"nic_gbit", "nics", "us", "rails", "levels", "host"}, file);
    if (!json.contains("nic_gbit")) refuse_value("--network", file, "\"nic_gbit\"");
    simulate::Network network{.name = file};
    network.nic_gbps = number_from(json, "nic_gbit", 0, 0, 1e6, file) * bytes_of_gbit;
    network.nics = static_cast<int>(number_from(json, "nics", 1, 1, 1024, file));
    network.us = number_from(json, "us", -1, 0, 1e6, file);
    network.rails = flag_from(json, "rails", file);
    if (json.contains("levels") && (!json["levels"].is_array() || json["levels"].size() > 4))
        refuse_value("--network", file, "\"levels\" to be a list of at most 4");
    int below = 1;
    for (const Json& level : json.value("levels", Json::array())) {
        only(level, {"hosts", "gbit", "us", "pairwise"}, file);
        below = static_cast<int>(number_from(level, "hosts", below, below, 1 << 24, file));
        network.levels.push_back({.hosts = below,
                                  .gbps = number_from(level, "gbit", 0, 0, 1e9, file) * bytes_of_gbit,
                                  .us = number_from(level, "us", 0, 0, 1e6, file),
                                  .pairwise = flag_from(level, "pairwise", file)});
    }
    const Json host = json.value("host", Json::object());
    std::set<std::string> names;
    for (const algorithm::CostField& field : algorithm::cost_fields()) names.emplace(field.name);
    only(host, names, file);
    for (const algorithm::CostField& field : algorithm::cost_fields())
        costs.*field.value =
            number_from(host, std::string(field.name).c_str(), costs.*field.value, field.min, field.max, file);
    return network;
}

}  // namespace

std::vector<std::uint64_t> sizes_of(const std::string& text, const std::string& option) {
    const std::size_t colon = text.find(':');
    const std::uint64_t first = command::bytes_of(text.substr(0, colon), option);
    if (colon == std::string::npos) return {first};
    const std::uint64_t last = command::bytes_of(text.substr(colon + 1), option);
    if (first < 1 || last < first) refuse_value(option, text, "a size, or FROM:TO with FROM from 1 to TO");
    std::vector<std::uint64_t> sizes;
    constexpr std::uint64_t factor = 4;
    for (std::uint64_t size = first; size < last; size *= factor) {
        sizes.push_back(size);
        if (size > last / factor) break;
    }
    if (sizes.empty() || sizes.back() != last) sizes.push_back(last);
    return sizes;
}

double duration_us(const std::string& text, const std::string& option) {
    const auto [value, unit] = number_of(text);
    const double factor = unit == "ns" ? 1e-3 : unit == "us" ? 1 : unit == "ms" ? 1e3 : unit == "s" ? 1e6 : 0;
    if (value < 0 || factor == 0) refuse_value(option, text, "a time with its unit: 20us, 5ms, 1s");
    return value * factor;
}

simulate::Conditions conditions_of(const ConditionTexts& texts, int ranks, int hosts) {
    TUTTI_ASSERT(ranks >= 1 && hosts >= 1);
    simulate::Conditions conditions{.seed = texts.seed};
    for (const std::string& text : texts.delays) {
        const std::size_t equal = text.find('=');
        if (equal == std::string::npos) refuse_value("--delay", text, "RANK=TIME, such as 3=5ms");
        conditions.delays_us.emplace_back(index_of(text.substr(0, equal), ranks, "--delay", text, "rank"),
                                          duration_us(text.substr(equal + 1), "--delay"));
    }
    for (const std::string& text : texts.slow_links) {
        const std::size_t dash = text.find('-'), equal = text.find('=');
        if (dash == std::string::npos || equal == std::string::npos || dash > equal)
            refuse_value("--slow-link", text, "HOST-HOST=SHARE, such as 0-1=0.5");
        simulate::Conditions::SlowLink slow;
        slow.a = index_of(text.substr(0, dash), hosts, "--slow-link", text, "host");
        slow.b = index_of(text.substr(dash + 1, equal - dash - 1), hosts, "--slow-link", text, "host");
        const auto [share, rest] = number_of(text.substr(equal + 1));
        if (!(share > 0 && share <= 1) || !rest.empty() || slow.a == slow.b)
            refuse_value("--slow-link", text, "two hosts, and a share above 0 and up to 1");
        slow.share = share;
        conditions.slow_links.push_back(slow);
    }
    if (!texts.jitter.empty()) {
        const auto [percent, unit] = number_of(texts.jitter);
        if (percent < 0 || percent > 1000 || unit != "%") refuse_value("--jitter", texts.jitter, "0% to 1000%");
        conditions.jitter = percent / 100;
    }
    if (!texts.kill.empty()) {
        const std::size_t at = texts.kill.find('@');
        if (at == std::string::npos) refuse_value("--kill", texts.kill, "RANK@TIME, such as 3@5ms");
        conditions.kill = {.rank = index_of(texts.kill.substr(0, at), ranks, "--kill", texts.kill, "rank"),
                           .us = duration_us(texts.kill.substr(at + 1), "--kill")};
    }
    return conditions;
}

simulate::Network network_of(const std::string& text, algorithm::CostModel& costs) {
    const std::vector<std::string> names = simulate::network_names();
    if (std::ranges::find(names, text) != names.end()) return simulate::network_named(text);
    const bool file = text.find('/') != std::string::npos || text.ends_with(".json") || text.ends_with(".yaml");
    if (!file)
        refuse_value("--network", text,
                     fmt::format("{}, or a file (its name has a slash, or ends in .json){}", fmt::join(names, ", "),
                                 did_you_mean(text, names)));
    return network_from(text, costs);
}

}  // namespace tutti::cli
