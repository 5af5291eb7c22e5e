#include "tune/tune.hpp"

#include "algorithm/select.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "core/suggestion.hpp"
#include "core/whole_file.hpp"
#include "object/codec.hpp"
#include "tune/cache.hpp"
#include "tune/machine.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace tutti::algorithm {
TUTTI_OBJECT(Rule, collective, algorithm, up_to_bytes, up_to_ranks);
}

namespace tutti::tune {
namespace {

using algorithm::CostModel;
using algorithm::Rule;
using algorithm::Tuning;

constexpr const char* variable = "environment variable TUTTI_TUNE";
constexpr std::size_t file_bytes_max = std::size_t{16} << 20U;
// Another process of this host is measuring: rank 0 waits a little for its numbers.
constexpr std::chrono::milliseconds patience{60};

// Rank 0's message to the others.
struct Written {
    std::string text;
    bool single_rounding = false, rank_order = false;  // as rank 0 has proved
};
TUTTI_OBJECT(Written, text, single_rounding, rank_order);

struct Decision {
    std::string named;
    Object costs;  // nil where formulas do not choose
    std::vector<Rule> rules;
    std::vector<Written> schedules;
};
TUTTI_OBJECT(Decision, named, costs, rules, schedules);

// The numbers that a rank offered; none if it offered anything else.
std::optional<CostModel> numbers_in(const std::string& offer) {
    try {
        return costs_of(object::decode_string(offer));
    } catch (const ObjectError&) {
        return std::nullopt;
    }
}

Measurement measured_now(Measurement known = {}) {
    known = measure(Deadline::after(measuring_limit), known);
    TUTTI_DEBUG("this machine was measured: {}", to_string(object_of(known.costs)));
    return known;
}

// Measures the missing numbers, or all anew where the machine was busy; of two busy times the quieter counts.
Measurement measured_again(const Measurement& known) {
    if (!known.outdated(std::time(nullptr))) return measured_now(known);
    Measurement now = measured_now();
    const auto disturbed = [](const Circumstances& c) { return c.stolen + c.waited + c.spread; };
    if (now.missing == 0 && disturbed(now.circumstances) <= disturbed(known.circumstances)) return now;
    if (known.missing != 0 && now.missing == 0) return now;
    Measurement kept = known;
    kept.circumstances.when = now.circumstances.when;
    return kept;
}

std::optional<Measurement> cached_or_measured(const Setting& setting, bool rank_0) {
    TUTTI_ASSERT(setting.numbers != Setting::Numbers::none);
    if (setting.numbers == Setting::Numbers::uncached) return rank_0 ? std::optional(measured_now()) : std::nullopt;
    Cache cache(topology());
    const bool fresh = setting.numbers == Setting::Numbers::remeasured;
    Measurement known;  // some of it, where there was no time for all
    const auto load = [&] {
        if (const auto cached = fresh ? std::nullopt : cache.load()) known = *cached;
        return known.settled() && !known.outdated(std::time(nullptr));
    };
    if (load()) return known;
    bool mine = cache.claim();
    if (!mine && !rank_0) return std::nullopt;
    for (const Deadline limit = Deadline::after(patience); !mine && cache.usable() && !limit.expired();) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        mine = cache.claim();
    }
    if (load()) return known;  // measured meanwhile
    known = measured_again(known);
    if (!cache.save(known)) TUTTI_DEBUG("the numbers of this machine cannot be kept in {}", Cache::user_folder());
    return known;
}

// This process's knowledge of its host: asked for once.
struct Known {
    std::mutex mutex;
    std::optional<Measurement> numbers;
};
Known& this_hosts() {
    static Known& known = *new Known;  // groups outlive static objects
    return known;
}

std::string text_of(const std::string& file, std::string_view of_variable, std::string_view content) {
    TUTTI_ASSERT(!of_variable.empty() && !content.empty());
    try {
        return whole_file(file, file_bytes_max);
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: \"{}\": expected a file that can be read and holds {}: it {}",
                                          of_variable, file, content, error.what()));
    }
}

void add_table(Setting& setting, const std::string& file, Files files) {
    if (files == Files::ignored) return;
    const auto rules =
        algorithm::parse_table(text_of(file, variable, "a table"), fmt::format("{}: {}", variable, file));
    setting.rules.insert(setting.rules.end(), rules.begin(), rules.end());
}

// For each number the one that makes things slower: more time, less bandwidth.
CostModel slowest(CostModel a, const CostModel& b) {
    for (const algorithm::CostField& field : algorithm::cost_fields()) {
        const bool time = field.name.ends_with("_us");
        a.*field.value = time ? std::max(a.*field.value, b.*field.value) : std::min(a.*field.value, b.*field.value);
    }
    return a;
}

}  // namespace

Setting parse_setting(std::string_view text, Files files) {
    Setting setting;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        if (item == "auto")
            setting.numbers = Setting::Numbers::cached;
        else if (item == "off")
            setting.numbers = Setting::Numbers::none;
        else if (item == "nocache")
            setting.numbers = Setting::Numbers::uncached;
        else if (item == "remeasure")
            setting.numbers = Setting::Numbers::remeasured;
        else if (item.find('=') != std::string_view::npos)
            setting.rules.push_back(algorithm::parse_rule(item, variable));
        else if (item.find('/') != std::string_view::npos)
            add_table(setting, std::string(item), files);
        else
            throw InvalidArgument(
                fmt::format("{}: \"{}\": expected auto, off, nocache, remeasure, "
                            "COLLECTIVE[:BYTES]=ALGORITHM, or a file with a table (./NAME){}",
                            variable, item, did_you_mean(item, std::array{"auto", "off", "nocache", "remeasure"})));
    }
    return setting;
}

Setting setting_from_environment(Files files) {
    Setting setting = parse_setting(env::get("TUTTI_TUNE").value_or(""), files);
    if (files == Files::ignored) return setting;
    static constexpr const char* schedules = "environment variable TUTTI_SCHEDULE";
    std::istringstream list(env::get("TUTTI_SCHEDULE").value_or(""));
    for (std::string file; std::getline(list, file, ',');) {
        setting.schedules.push_back(algorithm::UserSchedule::proved(text_of(file, schedules, "schedules as text"),
                                                                    fmt::format("{}: {}", schedules, file)));
    }
    return setting;
}

std::string offer(const Setting& setting, bool rank_0, std::chrono::microseconds round_trip) {
    TUTTI_ASSERT(round_trip.count() >= 0);
    if (setting.numbers == Setting::Numbers::none) return {};
    Known& known = this_hosts();
    const std::lock_guard lock(known.mutex);
    if (!known.numbers) known.numbers = cached_or_measured(setting, rank_0);
    if (!known.numbers) return {};
    CostModel costs = known.numbers->costs;
    if (settings::huge_pages() != settings::HugePages::all) costs.pull_huge_gbps = costs.pull_gbps;
    if (round_trip >= net::far_round_trip) {
        const double under_way = static_cast<double>(round_trip.count()) / 2;
        costs.tcp_us = std::max(costs.tcp_us, costs.tcp_send_us + under_way + costs.tcp_receive_us);
    }
    return object::encode_string(object_of(costs));
}

std::vector<std::string_view> still_missing() {
    Known& known = this_hosts();
    const std::lock_guard lock(known.mutex);
    std::vector<std::string_view> names;
    TUTTI_ASSERT(names.size() <= algorithm::cost_fields().size());
    if (!known.numbers) return names;
    std::uint32_t bit = 1;
    for (const algorithm::CostField& field : algorithm::cost_fields()) {
        if ((known.numbers->missing & bit) != 0) names.push_back(field.name);
        bit <<= 1;
    }
    return names;
}

bool measured_while_busy() {
    Known& known = this_hosts();
    const std::lock_guard lock(known.mutex);
    return known.numbers && known.numbers->circumstances.busy();
}

std::string decide(const Setting& setting, const std::string& named, const std::vector<std::string>& offers) {
    std::optional<CostModel> costs;
    for (const std::string& text : offers) {
        if (const auto theirs = numbers_in(text)) costs = costs ? slowest(*costs, *theirs) : *theirs;
    }
    const bool counts = costs && setting.numbers != Setting::Numbers::none;
    Decision all{named, counts ? object_of(*costs) : Object(), setting.rules, {}};
    for (const algorithm::UserSchedule& one : setting.schedules) {
        all.schedules.push_back({one.text(), one.what_is_proved().single_rounding, one.what_is_proved().rank_order});
    }
    return object::encode_string(all);
}

Tuning decided(const std::string& decision) {
    try {
        auto all = object::decode_string(decision).get<Decision>();
        Tuning tuning{.rules = std::move(all.rules), .named = std::move(all.named)};
        for (Rule& rule : tuning.rules) {
            const int collective = std::clamp(static_cast<int>(rule.collective), 1, collective_count);
            rule.collective = static_cast<Collective>(collective);
        }
        if (!all.costs.is_nil()) tuning.costs = costs_of(all.costs);
        for (Written& one : all.schedules) {
            const algorithm::UserSchedule::Proved proved{one.single_rounding, one.rank_order};
            tuning.schedules.push_back(std::make_shared<algorithm::UserSchedule>(std::move(one.text), proved));
        }
        return tuning;
    } catch (const ObjectError& error) {
        throw InternalError(fmt::format("the tuning of this group cannot be read: {}", error.what()));
    }
}

}  // namespace tutti::tune
