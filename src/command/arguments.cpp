#include "command/arguments.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/suggestion.hpp"

#include <tutti/dtype.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace tutti::command {

std::string both_spellings(const std::string& names) {
    std::string all;
    for (std::size_t start = 0; start < names.size();) {
        const std::size_t end = std::min(names.find(',', start), names.size());
        const std::string name = names.substr(start, end - start);
        TUTTI_ASSERT(name.size() >= 2 && name.front() == '-');
        std::string other = name;
        std::replace(other.begin() + 2, other.end(), '-', '_');  // after "--"
        all += (all.empty() ? "" : ",") + name + (other == name ? "" : "," + other);
        start = end + 1;
    }
    return all;
}

std::uint64_t bytes_of(const std::string& text, const std::string& option) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string unit(end, text.data() + text.size());
    for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    static constexpr std::string_view letters = "BKMGT";
    const std::size_t power = unit.empty() ? 0 : letters.find(unit.front());
    const bool known = unit.size() <= 1 || (power > 0 && (unit.substr(1) == "B" || unit.substr(1) == "IB"));
    if (error != std::errc() || power == std::string_view::npos || !known ||
        (power > 0 && value >> (64 - 10 * power) != 0)) {
        throw CLI::ValidationError(option, "\"" + text + "\": expected a size such as 8, 64K, 1M or 2G");
    }
    TUTTI_ASSERT(power < letters.size());
    return value << (10 * power);
}

// CLI's own checks let nan and inf pass.
CLI::Validator is_duration(Zero zero) {
    const bool zero_too = zero == Zero::allowed;
    return {[zero_too](const std::string& text) -> std::string {
                double value = -1;
                const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
                const bool good = error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                                  (zero_too ? value >= 0 : value > 0);
                return good ? ""
                            : fmt::format("{}: expected seconds, {}", text, zero_too ? "0 or more" : "more than 0");
            },
            "SECONDS"};
}

CLI::Validator one_of(const std::vector<std::string>& words) {
    TUTTI_ASSERT(!words.empty());
    return {[words](const std::string& text) -> std::string {
                if (std::ranges::find(words, text) != words.end()) return "";
                return fmt::format("\"{}\": expected {}{}", text, fmt::join(words, ", "), did_you_mean(text, words));
            },
            fmt::format("{{{}}}", fmt::join(words, ","))};
}

CLI::Validator shows(const std::vector<std::string>& words, Form form) {
    TUTTI_ASSERT(!words.empty());
    return {[](const std::string&) { return std::string(); },
            fmt::format("{{{}}}{}", fmt::join(words, ","), form == Form::list ? ",..." : "")};
}

std::vector<std::string> dtype_names() {
    std::vector<std::string> names;
    for (int i = 0; i < dtype_count; ++i) names.emplace_back(to_string(static_cast<DType>(i)));
    return names;
}

std::string python_of_scripts() {
    return env::get("PYTHON_EXEC").value_or("python3");
}

std::vector<std::string> option_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
    return names;
}

std::vector<std::string> take_command(const CLI::App& sub, std::vector<std::string>& arguments) {
    TUTTI_ASSERT(!arguments.empty() && arguments.front() == sub.get_name());
    auto at = arguments.begin() + 1;
    for (; at != arguments.end(); ++at) {
        if (*at == "-np") *at = "--np";  // mpirun's
        if (*at == "--" || at->size() < 2 || at->front() != '-') break;
        const bool is_long = at->starts_with("--");
        const std::size_t equals = is_long ? at->find('=') : std::string::npos;
        const CLI::Option* option = sub.get_option_no_throw(is_long ? at->substr(0, equals) : at->substr(0, 2));
        const bool value_follows = option != nullptr && option->get_expected_min() > 0 &&
                                   (is_long ? equals == std::string::npos : at->size() == 2);
        if (value_follows && at + 1 != arguments.end()) ++at;
    }
    std::vector<std::string> command(at, arguments.end());
    arguments.erase(at, arguments.end());
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    return command;
}

}  // namespace tutti::command
