#include "cli/simulate_report.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::cli {
namespace {

using simulate::Answer;
using simulate::LinkUse;
using simulate::Moment;
using simulate::never;

// The time of the last rank's path by what it was: a step's own time, or the way to it.
std::vector<std::pair<std::string, double>> path_by_kind(const Answer& answer) {
    std::map<std::string, double> sums;
    double before = 0;
    for (std::size_t i = 0; i < answer.play.path.size(); ++i) {
        const Moment& moment = answer.play.path[i];
        sums["on the way, or waiting"] += std::max(0.0, moment.begin_us - before);
        sums[std::string(schedule::to_string(answer.path_kinds[i]))] +=
            moment.end_us - std::max(before, moment.begin_us);
        before = std::max(before, moment.end_us);
    }
    std::vector<std::pair<std::string, double>> sorted(sums.begin(), sums.end());
    std::ranges::stable_sort(sorted, std::greater{}, [](const auto& entry) { return entry.second; });
    std::erase_if(sorted, [](const auto& entry) { return entry.second <= 0; });
    return sorted;
}

struct Told {
    int died = 0, before = 0;  // the dead rank; ranks that were done before they heard
    double first_us = never, last_us = 0;
    int last = 0;
};
Told told_of(const Answer& answer, const simulate::Question& question) {
    Told told{.died = question.conditions.kill->rank};
    for (std::size_t rank = 0; rank < answer.told_us.size(); ++rank) {
        if (answer.play.finish_us[rank] < never) ++told.before;
        if (static_cast<int>(rank) == told.died) continue;
        told.first_us = std::min(told.first_us, answer.told_us[rank]);
        if (answer.told_us[rank] > told.last_us) {
            told.last_us = answer.told_us[rank];
            told.last = static_cast<int>(rank);
        }
    }
    return told;
}

double gbps_of(double bytes, double us) {
    return us > 0 ? bytes / us / 1e3 : 0;
}

}  // namespace

std::string time_in_words(double us) {
    if (us >= 1e6) return fmt::format("{:.3f} s", us / 1e6);
    return us >= 1e3 ? fmt::format("{:.3f} ms", us / 1e3) : fmt::format("{:.2f} us", us);
}

std::string size_in_words(std::uint64_t bytes) {
    for (const auto& [shift, unit] : {std::pair{30, "G"}, {20, "M"}, {10, "K"}}) {
        if (bytes > 0 && bytes % (std::uint64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
    }
    return std::to_string(bytes);
}

std::string table_of(const std::vector<Simulated>& plays) {
    std::string text = fmt::format("{:>10}  {:<20} {:>12} {:>9} {:>12} {:>9}  {}\n", "bytes", "algorithm", "time",
                                   "GB/s", "steps", "took", "played");
    for (const Simulated& play : plays) {
        const Answer& answer = play.answer;
        text += fmt::format("{:>10}  {:<20} {:>12} {:>9.3f} {:>12} {:>7.2f} s  {}\n", size_in_words(play.bytes),
                            answer.algorithm, answer.play.end_us > 0 ? time_in_words(answer.call_us) : "-",
                            gbps_of(static_cast<double>(play.bytes), answer.call_us), answer.steps, play.wall_s,
                            answer.words);
    }
    return text;
}

std::string details_of(const Simulated& play, const simulate::Question& question) {
    const Answer& answer = play.answer;
    std::string text;
    if (answer.formula_us)
        text += fmt::format("  by formula, which knows no links: {}\n", time_in_words(*answer.formula_us));
    const std::vector<double> times = finish_times(answer);
    if (!times.empty())
        text += fmt::format("  ranks are done: first {}, half of them {}, last {}\n", time_in_words(times.front()),
                            time_in_words(times[times.size() / 2]), time_in_words(times.back()));
    if (question.conditions.kill) {
        const Told told = told_of(answer, question);
        text += fmt::format("  rank {} dies at {}; {} ranks are done before they hear of it, and their result counts\n",
                            told.died, time_in_words(question.conditions.kill->us), told.before);
        if (told.first_us < never)
            text += fmt::format("  the others are told \"rank {} died\": the first at {}, the last (rank {}) at {}\n",
                                told.died, time_in_words(told.first_us), told.last, time_in_words(told.last_us));
    }
    const auto links = busiest_links(answer, 4);
    for (const LinkUse& use : links)
        text += fmt::format("  link: {}: {} bytes, busy for {}{}\n", use.name, static_cast<std::uint64_t>(use.bytes),
                            time_in_words(use.busy_us),
                            use.share > 0 ? fmt::format(", {:.1f} % of its capacity", 100 * use.share) : "");
    const auto kinds = path_by_kind(answer);
    if (!kinds.empty()) {
        text += fmt::format("  the last rank, {}, waited on {} steps:", answer.play.path.back().rank,
                            answer.play.path.size());
        for (const auto& [kind, us] : kinds) text += fmt::format(" {} {};", kind, time_in_words(us));
        text.back() = '\n';
        constexpr std::size_t shown = 12;
        const std::size_t first = answer.play.path.size() > shown ? answer.play.path.size() - shown : 0;
        if (first > 0) text += fmt::format("  its last {} steps:\n", shown);
        for (std::size_t i = first; i < answer.play.path.size(); ++i) {
            const Moment& moment = answer.play.path[i];
            text += fmt::format("    {:>12} to {:>12}  rank {:<7} step {:<7} {}\n", time_in_words(moment.begin_us),
                                time_in_words(moment.end_us), moment.rank, moment.op,
                                schedule::to_string(answer.path_kinds[i]));
        }
    }
    return text;
}

std::string json_of(const std::vector<Simulated>& plays, const simulate::Question& question) {
    nlohmann::ordered_json json{{"collective", to_string(question.request.collective)},
                                {"ranks", question.layout.size()},
                                {"hosts", question.layout.host_of.back() + 1},
                                {"network", question.network.name},
                                {"calls", question.calls},
                                {"plays", nlohmann::ordered_json::array()}};
    for (const Simulated& play : plays) {
        const Answer& answer = play.answer;
        nlohmann::ordered_json one{{"bytes", play.bytes},
                                   {"algorithm", answer.algorithm},
                                   {"played", answer.words},
                                   {"exact", answer.exact},
                                   {"us", answer.call_us},
                                   {"steps", answer.steps},
                                   {"messages", answer.play.messages},
                                   {"message_bytes", answer.play.bytes},
                                   {"events", answer.play.events},
                                   {"took_s", play.wall_s}};
        if (answer.formula_us) one["formula_us"] = *answer.formula_us;
        if (const auto times = finish_times(answer); !times.empty())
            one["done_us"] = {{"first", times.front()}, {"median", times[times.size() / 2]}, {"last", times.back()}};
        // `null`: it does not finish.
        auto& finishes = one["finish_us"] = nlohmann::ordered_json::array();
        for (const double us : answer.play.finish_us)
            finishes.push_back(us < never ? nlohmann::ordered_json(us) : nlohmann::ordered_json());
        if (!answer.told_us.empty()) one["told_us"] = answer.told_us;
        auto& links = one["links"] = nlohmann::ordered_json::array();
        for (const LinkUse& use : busiest_links(answer, 64))
            links.push_back({{"name", use.name}, {"bytes", use.bytes}, {"busy_us", use.busy_us}, {"share", use.share}});
        auto& path = one["path_us"] = nlohmann::ordered_json::object();
        for (const auto& [kind, us] : path_by_kind(answer)) path[kind] = us;
        json["plays"].push_back(std::move(one));
    }
    return json.dump(1) + '\n';
}

}  // namespace tutti::cli
