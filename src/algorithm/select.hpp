// The table that chooses an algorithm, as text; and the users' rules that take precedence over it.
#pragma once

#include "algorithm/request.hpp"
#include "algorithm/tuning.hpp"
#include "schedule/schedule.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

/// The algorithm that TUTTI_ALGORITHM ("ring" or "all_reduce=ring,broadcast=^chain") names for a collective; nullopt if
/// none. Throws InvalidArgument that lists the names for an unknown one.
std::optional<std::string> parse_override(std::string_view text, Collective collective);

/// "all_reduce=ring", or "all_reduce:64K=ring" for up to 64 KB (of the buffer, or of the largest block). `where` names
/// the source in messages. Throws InvalidArgument that names it, the rule and the expected form.
Rule parse_rule(std::string_view text, std::string_view where);
/// Rules as describe_table() prints them: "collective algorithm up-to-bytes ranks [why]", a line each; "any" for no
/// limit; empty lines, lines that begin with # and the line of headings do not count. Throws as parse_rule, with the
/// number of the line.
std::vector<Rule> parse_table(std::string_view text, std::string_view where);

/// The table, for people and for parse_table(), without the rows of quantised collectives, preceded by `rules`.
std::string describe_table(const std::vector<Rule>& rules = {});

/// The choices of choose() for this layout, by size, in the form of the table.
std::string describe_choices(const Layout& layout);
/// One line of such a text.
std::string table_line(std::string_view collective, std::string_view algorithm, std::string_view bytes,
                       std::string_view ranks, std::string_view why);

/// The algorithms' names in the table: for one collective, or for all; without those of quantised collectives, which
/// have only one algorithm each.
std::vector<std::string> algorithm_names(std::optional<Collective> collective = std::nullopt);

}  // namespace tutti::algorithm
