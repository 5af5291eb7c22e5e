#include "launch/hosts.hpp"

#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "core/whole_file.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <sstream>
#include <vector>

namespace tutti::launch {
namespace {

constexpr int slots_max = 65536;
constexpr std::size_t hostfile_bytes_max = std::size_t{16} << 20U;

std::optional<int> number(std::string_view text) {
    const auto value = number_in<int>(text);
    return value && *value >= 0 && *value <= slots_max ? value : std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t start = 0; start <= text.size();) {
        const std::size_t end = std::min(text.find(separator, start), text.size());
        parts.push_back(text.substr(start, end - start));
        start = end + 1;
    }
    TUTTI_ASSERT(!parts.empty());
    return parts;
}

Host parse_line(const std::string& line, const std::string& where) {
    std::istringstream words(line);
    Host host;
    std::string word;
    words >> host.name;
    int slots = 1;
    while (words >> word) {
        const auto value = word.starts_with("slots=") ? number(word.substr(6)) : std::nullopt;
        if (!value || *value == 0) {
            const std::size_t equal = word.find('=');
            const bool other_key = equal != std::string::npos && !word.starts_with("slots=");
            throw InvalidArgument(
                fmt::format("{}: \"{}\": expected HOST slots=NUMBER{}", where, word,
                            other_key ? did_you_mean(word.substr(0, equal), std::array{"slots"}) : ""));
        }
        slots = *value;
    }
    // The name becomes a word of ssh's command line, where one that begins with a dash would be an option.
    if (host.name.empty() || host.name.front() == '-' || host.name.find('=') != std::string::npos)
        throw InvalidArgument(fmt::format("{}: \"{}\": expected the name of a host", where, host.name));
    host.slots.resize(static_cast<std::size_t>(slots));
    std::iota(host.slots.begin(), host.slots.end(), 0);
    TUTTI_ASSERT(!host.slots.empty() && host.slots.front() == 0);
    return host;
}

// "worker-0@worker-1:0,2": the named slots of each host, none named: all.
std::map<std::string, std::vector<int>> parse_filter(const std::string& text, const std::string& option,
                                                     const std::vector<Host>& hosts) {
    std::map<std::string, std::vector<int>> filter;
    for (const std::string_view item : split(text, '@')) {
        const std::size_t colon = item.find(':');
        const std::string name(item.substr(0, colon));
        const auto host = std::ranges::find(hosts, name, &Host::name);
        if (host == hosts.end()) {
            throw InvalidArgument(fmt::format("tutti run: {} {}: no host \"{}\" in the hostfile{}", option, text, name,
                                              did_you_mean(name, hosts | std::views::transform(&Host::name))));
        }
        auto& slots = filter[name];
        if (colon == std::string_view::npos) {
            slots = host->slots;
            continue;
        }
        for (const std::string_view slot : split(item.substr(colon + 1), ',')) {
            const auto value = number(slot);
            if (!value || std::ranges::find(host->slots, *value) == host->slots.end()) {
                throw InvalidArgument(fmt::format("tutti run: {} {}: slot \"{}\" of {}: expected 0 to {}", option, text,
                                                  slot, name, host->slots.size() - 1));
            }
            slots.push_back(*value);
        }
    }
    return filter;
}

void keep_or_remove(std::vector<Host>& hosts, const std::string& text, const std::string& option, bool keep) {
    TUTTI_ASSERT(!text.empty() && !hosts.empty());
    const auto filter = parse_filter(text, option, hosts);
    for (Host& host : hosts) {
        const auto named = filter.find(host.name);
        const auto is_named = [&](int slot) {
            return named != filter.end() && std::ranges::find(named->second, slot) != named->second.end();
        };
        host.chosen = std::erase_if(host.slots, [&](int slot) { return is_named(slot) != keep; }) > 0;
    }
    std::erase_if(hosts, [](const Host& host) { return host.slots.empty(); });
    if (hosts.empty()) throw InvalidArgument(fmt::format("tutti run: {} {}: no host is left", option, text));
}

}  // namespace

std::vector<Host> read_hostfile(const std::string& path) {
    std::string text;
    try {
        text = whole_file(path, hostfile_bytes_max);
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("tutti run: --hostfile {}: it {}", path, error.what()));
    }
    std::istringstream file(text);
    std::vector<Host> hosts;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        line.resize(std::min(line.find('#'), line.size()));
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        const std::string where = fmt::format("tutti run: --hostfile {}:{}", path, number);
        Host host = parse_line(line, where);
        if (std::ranges::find(hosts, host.name, &Host::name) != hosts.end())
            throw InvalidArgument(fmt::format("{}: \"{}\" comes twice: expected each host once", where, host.name));
        hosts.push_back(std::move(host));
    }
    if (hosts.empty())
        throw InvalidArgument(
            fmt::format("tutti run: --hostfile {}: no hosts: expected lines HOST slots=NUMBER", path));
    return hosts;
}

std::vector<Host> select_hosts(std::vector<Host> hosts, const HostSelection& selection) {
    const bool filtered = !selection.include.empty() || !selection.exclude.empty();
    TUTTI_ASSERT(!hosts.empty() && selection.hosts >= 0 && selection.ranks >= 0);
    if (!selection.include.empty() && !selection.exclude.empty())
        throw InvalidArgument("tutti run: --include and --exclude: expected one of them");
    if (filtered && (selection.hosts > 0 || selection.ranks > 0)) {
        throw InvalidArgument(
            "tutti run: --include and --exclude choose hosts and slots already: expected no --num-nodes and no "
            "--num-gpus beside them");
    }
    if (!selection.include.empty()) keep_or_remove(hosts, selection.include, "--include", true);
    if (!selection.exclude.empty()) keep_or_remove(hosts, selection.exclude, "--exclude", false);
    if (selection.hosts > static_cast<int>(hosts.size())) {
        throw InvalidArgument(
            fmt::format("tutti run: --num-nodes {}: the hostfile has {} hosts", selection.hosts, hosts.size()));
    }
    if (selection.hosts > 0) hosts.resize(static_cast<std::size_t>(selection.hosts));
    for (Host& host : hosts) {
        const auto wanted = static_cast<std::size_t>(selection.ranks);
        if (wanted > host.slots.size()) {
            throw InvalidArgument(fmt::format("tutti run: --num-gpus {}: {} has {} slots in the hostfile", wanted,
                                              host.name, host.slots.size()));
        }
        if (wanted > 0) host.slots.resize(wanted);
    }
    TUTTI_ASSERT(!hosts.empty() && !hosts.front().slots.empty());
    return hosts;
}

}  // namespace tutti::launch
