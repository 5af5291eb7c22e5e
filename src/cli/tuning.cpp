#include "cli/tuning.hpp"

#include "algorithm/scale.hpp"
#include "core/env.hpp"
#include "tune/tune.hpp"

#include <fmt/ranges.h>

namespace tutti::cli {

algorithm::Tuning tuning_of_this_host() {
    const tune::Setting setting = tune::setting_from_environment(tune::Files::read);
    return tune::decided(
        tune::decide(setting, env::get("TUTTI_ALGORITHM").value_or(""), {tune::offer(setting, true, {})}));
}

std::string source_of(const algorithm::Layout& layout) {
    if (!layout.tuning.costs)
        return algorithm::is_chosen_at_scale(layout) ? "assumed" : "assumed, and not asked: the table's limits choose";
    std::string source = "measured on this host";
    if (tune::measured_while_busy()) source += " while it was busy: later starts measure again";
    if (layout.machines > 1) source += "; the others are assumed to be alike";
    if (const auto missing = tune::still_missing(); !missing.empty())
        source += fmt::format("; not measured but assumed: {}", fmt::join(missing, ", "));
    return source;
}

}  // namespace tutti::cli
