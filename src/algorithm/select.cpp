#include "algorithm/select.hpp"

#include "algorithm/plan.hpp"
#include "algorithm/table.hpp"
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace tutti::algorithm {
namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view text, const std::string& expected) {
    throw InvalidArgument(fmt::format("{}: \"{}\": expected {}", where, text, expected));
}

Collective collective_of(std::string_view name, std::string_view where) {
    std::vector<std::string_view> known;
    for (int c = 1; c <= collective_count; ++c) {
        known.push_back(to_string(static_cast<Collective>(c)));
        if (known.back() == name) return static_cast<Collective>(c);
    }
    refuse(where, name, fmt::format("a collective: {}{}", fmt::join(known, ", "), did_you_mean(name, known)));
}

void check_algorithm(Collective collective, const std::string& name, std::string_view where) {
    const auto names = algorithm_names(collective);
    if (std::ranges::find(names, name) == names.end())
        refuse(where, name,
               fmt::format("an algorithm for {}: {}{}", to_string(collective), fmt::join(names, ", "),
                           did_you_mean(name, names)));
}

// 65536, 64K, 1M, 2G or any.
std::uint64_t size_of(std::string_view text, std::string_view where) {
    if (text == "any") return any_size;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
    if (error != std::errc() || shift < 0 || value > (any_size >> shift))
        refuse(where, text, "a size in bytes such as 65536, 64K, 1M, or any");
    TUTTI_ASSERT(shift >= 0 && value <= any_size >> shift);
    return value << shift;
}

int ranks_of(std::string_view text, std::string_view where) {
    if (text == "any") return any_ranks;
    const auto value = number_in<int>(text);
    if (!value || *value < 1) refuse(where, text, "a number of ranks, or any");
    return *value;
}

// Of `bytes` in the buffer, or in each block.
Request request_of(Collective collective, std::uint64_t bytes, int ranks) {
    TUTTI_ASSERT(ranks >= 1);
    Request request{.collective = collective, .count = bytes};
    request.counts.assign(static_cast<std::size_t>(ranks), bytes);
    if (traits_of(collective).exchanges()) {
        request.largest_count = bytes;
        request.even = true;
    }
    return request;
}

}  // namespace

std::string table_line(std::string_view collective, std::string_view algorithm, std::string_view bytes,
                       std::string_view ranks, std::string_view why) {
    return fmt::format("{:<15} {:<19} {:>12} {:>7}  {}\n", collective, algorithm, bytes, ranks, why);
}

std::string describe_table(const std::vector<Rule>& rules) {
    std::string text = table_line("collective", "algorithm", "up to bytes", "ranks", "why");
    const auto add = [&](Collective collective, std::string_view name, std::uint64_t bytes, int ranks,
                         std::string_view why) {
        text += table_line(to_string(collective), name, bytes == any_size ? "any" : std::to_string(bytes),
                           ranks == any_ranks ? "any" : std::to_string(ranks), why);
    };
    for (const Rule& r : rules) add(r.collective, r.algorithm, r.up_to_bytes, r.up_to_ranks, "TUTTI_TUNE says so");
    for (const Algorithm& a : algorithms()) {
        if (!a.quantises) add(a.collective, a.name, a.preferred_bytes, a.preferred_ranks, a.reason);
    }
    return text;
}

std::string describe_choices(const Layout& layout) {
    TUTTI_ASSERT(layout.size() >= 1);
    std::string text = table_line("collective", "algorithm", "up to bytes", "ranks", "why");
    const std::string ranks = std::to_string(layout.size());
    for (int c = 1; c <= collective_count; ++c) {
        const auto collective = static_cast<Collective>(c);
        std::optional<Choice> last;
        std::uint64_t last_bytes = 0;
        for (std::uint64_t bytes = 64; bytes <= std::uint64_t{1} << 30; bytes *= 2) {
            const Choice choice = choose(layout, request_of(collective, bytes, layout.size()));
            if (last && last->algorithm != choice.algorithm)
                text +=
                    table_line(to_string(collective), last->algorithm, std::to_string(last_bytes), ranks, last->reason);
            last = choice;
            last_bytes = bytes;
        }
        TUTTI_ASSERT(last.has_value() && last_bytes > 0);
        text += table_line(to_string(collective), last->algorithm, "any", ranks, last->reason);
    }
    return text;
}

std::vector<std::string> algorithm_names(std::optional<Collective> collective) {
    std::vector<std::string> names;
    for (const Algorithm& a : algorithms()) {
        if (a.quantises || (collective && a.collective != *collective)) continue;
        if (std::ranges::find(names, a.name) == names.end()) names.emplace_back(a.name);
    }
    return names;
}

std::optional<std::string> parse_override(std::string_view text, Collective collective) {
    std::optional<std::string> result;
    const auto known = algorithm_names();
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const std::size_t equal = item.find('=');
        const std::string value(equal == std::string_view::npos ? item : item.substr(equal + 1));
        const std::string name = value.substr(is_exclusion(value) ? 1 : 0);
        if (std::ranges::find(known, name) == known.end()) {
            throw InvalidArgument(fmt::format("TUTTI_ALGORITHM: \"{}\" is no algorithm: expected one of {}{}", name,
                                              fmt::join(known, ", "), did_you_mean(name, known)));
        }
        if (equal == std::string_view::npos) {
            // Without a collective, only where it exists.
            const auto own = algorithm_names(collective);
            if (std::ranges::find(own, name) != own.end()) result = value;
        } else if (item.substr(0, equal) == to_string(collective)) {
            result = value;
        }
    }
    return result;
}

Rule parse_rule(std::string_view text, std::string_view where) {
    const std::size_t equal = text.find('=');
    if (equal == std::string_view::npos) refuse(where, text, "COLLECTIVE[:BYTES]=ALGORITHM");
    const std::string_view left = text.substr(0, equal);
    const std::size_t colon = left.find(':');
    Rule rule;
    rule.collective = collective_of(left.substr(0, colon), where);
    rule.algorithm = text.substr(equal + 1);
    check_algorithm(rule.collective, rule.algorithm, where);
    if (colon != std::string_view::npos) rule.up_to_bytes = size_of(left.substr(colon + 1), where);
    return rule;
}

std::vector<Rule> parse_table(std::string_view text, std::string_view where) {
    std::vector<Rule> rules;
    std::istringstream lines{std::string(text)};
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        std::istringstream words(line);
        std::string collective, algorithm, bytes, ranks;
        if (!(words >> collective) || collective.starts_with('#')) continue;
        words >> algorithm >> bytes >> ranks;
        if (collective == "collective" && algorithm == "algorithm") continue;
        const std::string place = fmt::format("{}, line {}", where, number);
        if (ranks.empty())
            refuse(place, line, "COLLECTIVE ALGORITHM UP-TO-BYTES UP-TO-RANKS, as tutti explain --table");
        const Collective c = collective_of(collective, place);
        check_algorithm(c, algorithm, place);
        rules.push_back({c, algorithm, size_of(bytes, place), ranks_of(ranks, place)});
    }
    TUTTI_ASSERT(rules.size() <= static_cast<std::size_t>(number));
    return rules;
}

}  // namespace tutti::algorithm
