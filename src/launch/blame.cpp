#include "launch/blame.hpp"

#include "core/assert.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace tutti::launch {
namespace {

using rendezvous::FailureReport;

const FailureReport* verdict_of(const Suspect& suspect) {
    TUTTI_ASSERT(suspect.said != nullptr);
    return *suspect.said ? &**suspect.said : nullptr;
}

bool is_about_a_rank(const FailureReport& verdict) {
    return verdict.culprit >= 0 || !verdict.place.empty();
}

// The error of all ranks where some of them mean different things.
bool is_disagreement(const FailureReport& verdict) {
    const auto code = static_cast<ErrorCode>(verdict.code);
    return code == ErrorCode::collective_mismatch ||
           (code == ErrorCode::invalid_argument && verdict.culprit >= 0 && verdict.culprit != verdict.from);
}

bool waited_in_vain(const Suspect& suspect) {
    const FailureReport* verdict = verdict_of(suspect);
    return verdict != nullptr && verdict->code == static_cast<int>(ErrorCode::timeout);
}

// The others' first verdict about a third rank, before this one ended.
const FailureReport* earlier_verdict(std::span<const Suspect> suspects, const Suspect& first) {
    const Suspect* earliest = nullptr;
    for (const Suspect& one : suspects) {
        const FailureReport* verdict = verdict_of(one);
        if (verdict == nullptr || verdict->culprit < 0 || verdict->culprit == first.rank || one.said_at > first.ended)
            continue;
        if (earliest == nullptr || one.said_at < earliest->said_at) earliest = &one;
    }
    return earliest == nullptr ? nullptr : verdict_of(*earliest);
}

// Its first line, and what it says of the one rank.
std::string brief(const FailureReport& verdict, bool with_rank) {
    std::string_view rest = verdict.text;
    std::string text(take_line(rest));
    while (with_rank && !rest.empty()) {
        const std::string_view line = take_line(rest);
        if (line.starts_with(fmt::format("  rank {}: ", verdict.culprit))) text += fmt::format("\n{}", line);
    }
    return text;
}

std::string pid_of(const Suspect& suspect) {
    return suspect.child->pid > 0 ? fmt::format(" (pid {})", suspect.child->pid) : "";
}

}  // namespace

bool was_killed(const Child& child) {
    return child.status && WIFSIGNALED(*child.status) && WTERMSIG(*child.status) != SIGABRT;
}

std::optional<std::size_t> first_to_fail(std::span<const Suspect> suspects) {
    std::vector<std::size_t> failed;
    for (std::size_t s = 0; s < suspects.size(); ++s) {
        if (suspects[s].failed_by_itself()) failed.push_back(s);
        TUTTI_ASSERT(failed.size() <= suspects.size());
    }
    if (failed.empty()) return std::nullopt;
    const auto start = suspects[*std::ranges::min_element(failed, {}, [&](auto s) { return suspects[s].ended; })].ended;
    const auto order = [&](std::size_t s) {
        const Suspect& one = suspects[s];
        const bool comes_first = one.child->not_started || (was_killed(*one.child) && one.ended <= start + courtesy);
        const bool exited = one.child->status && WIFEXITED(*one.child->status);
        return std::tuple(!comes_first, one.ended, exited, s);
    };
    return *std::ranges::min_element(failed, {}, order);
}

std::optional<Blame> find_culprit(std::span<const Suspect> suspects) {
    const auto first = first_to_fail(suspects);
    if (!first) return std::nullopt;
    TUTTI_ASSERT(*first < suspects.size() && suspects[*first].failed_by_itself());
    Blame blame{.first = *first, .culprit = first};
    const FailureReport* verdict = verdict_of(suspects[*first]);
    if (verdict == nullptr && !suspects[*first].child->not_started && !was_killed(*suspects[*first].child))
        verdict = earlier_verdict(suspects, suspects[*first]);
    std::vector<bool> seen(suspects.size());
    while (verdict != nullptr && !seen[*blame.culprit]) {
        seen[*blame.culprit] = true;
        if (is_disagreement(*verdict)) return Blame{Blame::Way::disagree, *first, std::nullopt, verdict};
        if (!is_about_a_rank(*verdict)) break;
        const auto accused = std::ranges::find(suspects, verdict->culprit, &Suspect::rank);
        if (verdict->culprit < 0 || accused == suspects.end())
            return Blame{Blame::Way::accused, *first, std::nullopt, verdict};
        const auto index = static_cast<std::size_t>(accused - suspects.begin());
        TUTTI_ASSERT(index < suspects.size());
        // One that ended badly long after the first, or because it waited in vain itself, did not begin it by that.
        const bool ended = accused->failed_by_itself() && accused->ended <= suspects[*first].ended + courtesy &&
                           !waited_in_vain(*accused);
        blame = {ended ? Blame::Way::ended : Blame::Way::accused, *first, index, ended ? nullptr : verdict};
        verdict = verdict_of(*accused);
    }
    TUTTI_ASSERT(blame.culprit && (blame.way == Blame::Way::ended || blame.verdict != nullptr));
    return blame;
}

std::string in_words(const Blame& blame, std::span<const Suspect> suspects, Suspect::Moment started, bool alone) {
    TUTTI_ASSERT(blame.first < suspects.size() && (blame.way == Blame::Way::ended || blame.verdict != nullptr));
    const auto after = [&](std::size_t index) {
        return fmt::format("after {:.1f} s", std::chrono::duration<double>(suspects[index].ended - started).count());
    };
    if (blame.way == Blame::Way::disagree) {
        return fmt::format("the ranks disagree, {}: {}", after(blame.first), brief(*blame.verdict, false));
    }
    if (blame.way == Blame::Way::ended) {
        const Suspect& culprit = suspects[*blame.culprit];
        return fmt::format("{}{}{} {}: {}", culprit.name, pid_of(culprit),
                           alone ? " failed" : " was the first to fail,", after(*blame.culprit),
                           cause_in_words(*culprit.child));
    }
    const FailureReport& verdict = *blame.verdict;
    std::string who = verdict.culprit >= 0 ? fmt::format("rank {}", verdict.culprit) : "a process";
    if (blame.culprit) {
        const Child& child = *suspects[*blame.culprit].child;
        const bool runs = !child.status || suspects[*blame.culprit].stopped_by_us;
        who += fmt::format(" (pid {}, {})", child.pid, runs ? "still running" : cause_in_words(child));
    } else if (!verdict.place.empty()) {
        who += fmt::format(" ({})", verdict.place);
    }
    return fmt::format("the ranks blame {}, {}: {}", who, after(blame.first), brief(verdict, true));
}

std::string the_others(const Blame& blame, std::span<const Suspect> suspects) {
    std::string text;
    int more = 0;
    for (std::size_t s = 0; s < suspects.size(); ++s) {
        const Suspect& one = suspects[s];
        if (s == blame.culprit || !one.child->status) continue;
        if (text.size() > 1000) {
            ++more;
            continue;
        }
        text +=
            fmt::format("{}{} {}{}", text.empty() ? (blame.culprit ? "  the others: " : "  the ranks here: ") : "; ",
                        one.name, cause_in_words(*one.child), one.stopped_by_us ? " (stopped by tutti run)" : "");
    }
    if (more > 0) text += fmt::format("; and {} more", more);
    return text.empty() ? text : text + "\n";
}

}  // namespace tutti::launch
