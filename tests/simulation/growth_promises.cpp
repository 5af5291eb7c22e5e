// What a GrowthWorld has to keep (membership.md), looked at when it has ended.
#include "simulation/growth_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace tutti::simulation {

using namespace std::chrono_literals;

std::string GrowthWorld::check_results() {
    std::set<std::string> plans;
    std::set<std::pair<std::string, int>> calls;
    for (const Result& one : results_) {
        made_ += one.is_made ? 1 : 0;
        excluded_ += one.is_excluded ? 1 : 0;
        told_ += one.error.empty() ? 0 : 1;
        if (std::string wrong = check_sentence(one); !wrong.empty()) return wrong;
        if (!one.plan.empty()) plans.insert(one.plan);
        if (one.call > 0) calls.emplace(one.group, one.call);
    }
    for (const std::string& plan : plans) {
        if (std::string wrong = check_plan(plan); !wrong.empty()) return wrong;
    }
    for (const auto& [group, call] : calls) {
        if (std::string wrong = check_call(group, call); !wrong.empty()) return wrong;
    }
    return check_trainings();
}

// All that were to be in the new group are, or none is; and all are told the same.
std::string GrowthWorld::check_plan(const std::string& number) const {
    const Result* first = nullptr;
    for (const Result& one : results_) {
        if (one.plan != number || !processes_[one.process]->has_store) continue;
        if (first == nullptr) first = &one;
        if (one.is_made != first->is_made || one.cards != first->cards || one.error != first->error)
            return "plan " + number + ": " + processes_[first->process]->label + " has \"" + first->error + "\", " +
                   processes_[one.process]->label + " has \"" + one.error + "\"";
    }
    if (first == nullptr || !first->is_made) return {};
    for (const std::string& card : first->cards) {
        const auto process = std::ranges::find_if(processes_, [&](const auto& one) { return one->label == card; });
        const bool is_in = std::ranges::any_of(results_, [&](const Result& one) {
            return one.plan == number && one.is_made && one.process == (*process)->number;
        });
        if ((*process)->is_alive && (*process)->has_store && !is_in)
            return "plan " + number + " has " + card + ", which is not in it";
    }
    return {};
}

// No split: of one call of a group's ranks comes one new group at most, and every rank that lives is in it, or was told
// that the others go on without it. If none comes of it, all are told the same.
std::string GrowthWorld::check_call(const std::string& group, int call) const {
    std::set<std::string> made;
    const Result* failed = nullptr;
    for (const Result& one : results_) {
        if (one.call != call || one.group != group || !processes_[one.process]->has_store) continue;
        if (one.is_made) made.insert(one.plan);
        if (one.is_excluded || one.error.empty()) continue;
        if (failed != nullptr && failed->error != one.error)
            return group + ", call " + std::to_string(call) + ": " + processes_[failed->process]->label +
                   " is told \"" + failed->error + "\", " + processes_[one.process]->label + " \"" + one.error + "\"";
        failed = &one;
    }
    if (made.size() > 1) return group + " has become two groups";
    if (!made.empty() && failed != nullptr)
        return group + " goes on without " + processes_[failed->process]->label + ": " + failed->error;
    return {};
}

// Those that end a training are in one group, have completed the same number of steps, and leave nobody behind.
std::string GrowthWorld::check_trainings() {
    if (is_quiet_ && recoveries_ + times_back_ > 0) return "a rank goes back without a cause";
    std::map<std::int64_t, const Process*> firsts;
    for (const auto& process : processes_) {
        if (!process->training || process->training->end() != Training::End::over) continue;
        ++trained_;
        const Training& training = *process->training;
        const Process& first = *firsts.emplace(training.origin(), process.get()).first->second;
        if (process->seat->group != first.seat->group || training.completed() != first.training->completed())
            return fmt::format("{} ends behind {} steps in {}, {} behind {} in {}", process->label,
                               training.completed(), process->seat->group->name(), first.label,
                               first.training->completed(), first.seat->group->name());
        const bool is_at_end = training.completed() == training_.steps ||
                               (training_.stops_in && training.completed() == *training_.stops_in + 1);
        if (!is_at_end) return fmt::format("{} ends behind {} steps", process->label, training.completed());
    }
    for (const auto& process : processes_) {
        if (std::string wrong = check_group_of(*process); !wrong.empty()) return wrong;
    }
    return {};
}

// A rank that lives and reaches the store ends as the others do, unless they went on without it.
std::string GrowthWorld::check_group_of(const Process& process) const {
    if (!process.training || !process.is_alive || !process.has_store) return {};
    switch (process.training->end()) {
        case Training::End::over: return {};
        case Training::End::left_out:
            if (may_be_accused(process) || may_be_unreached(process)) return {};
            return process.label + " is left out without a cause";
        case Training::End::without_state:
            // Of two ranks that have lost each other, the one without may be left.
            if (deaths_ > 0 || stopped_ > 0 || parted_from_) return {};
            if (std::ranges::any_of(processes_, [](const auto& other) { return was_cut(*other); })) return {};
            [[fallthrough]];
        default: return process.label + " does not end its training";
    }
}

// Nobody is accused falsely, and nothing fails without a cause.
std::string GrowthWorld::check_sentence(const Result& result) const {
    if (result.error.empty()) return {};
    const std::string who = processes_[result.process]->label + " is told: " + result.error;
    // A training may need no newcomer.
    if (is_quiet_ && (!trains_ || result.error.find("no group took this process in") == std::string::npos)) return who;
    // The end of a process whose connections something keeps open shows late.
    const bool is_fresh = last_death_ && result.when - *last_death_ <= LifelineNetwork::outlived_time + 100ms;
    if (result.is_late && stopped_ == 0 && !parted_from_ && !is_fresh)
        return "nobody says why a rank does not come to the new group: " + who;
    // A newcomer's time may be over while its leader waits for more.
    if (result.error.find(" gave up before it had joined") != std::string::npos) return {};
    const Process& told = *processes_[result.process];
    if (result.is_excluded && !may_be_accused(told) && !(trains_ && may_be_unreached(told)))
        return "without a cause " + who;
    for (const auto& process : processes_) {
        const auto names = [&](const std::string& words) { return result.error.find(words) != std::string::npos; };
        const bool is_named =
            names(process->label + " ended") || names("pid " + std::to_string(1000 + process->number) + ") is gone");
        if (is_named && process->is_alive && !may_be_accused(*process)) return "falsely " + who;
    }
    return {};
}

// Within a step it waits behind a rank that is stopped, or whose death shows late, and another one fails: of two
// such faults beside each other the news may not reach it (README.md).
bool GrowthWorld::may_be_unreached(const Process& process) const {
    return std::ranges::any_of(process.seats, [this](const Seat& seat) {
        int failed = 0;
        for (int rank = 0; rank < seat.group->size(); ++rank) {
            const Process& other = *processes_[seat.group->process(rank)];
            failed += !other.is_alive || other.stopped > 0ms ? 1 : 0;
        }
        return failed > 1;
    });
}

bool GrowthWorld::was_cut(const Process& process) {
    return std::ranges::any_of(process.seats, [](const Seat& seat) { return seat.group->was_cut(seat.rank); });
}

// It was away for longer than the others are patient, as they measure it, or they have lost the connection to it.
bool GrowthWorld::may_be_accused(const Process& process) const {
    const Milliseconds parted = parted_from_ ? std::chrono::ceil<Milliseconds>(parted_until_ - *parted_from_) : 0ms;
    // News wait for those before them on a lagging lifeline, and a rank keeps a loss that it has seen itself.
    const Milliseconds late = 3 * process.lag + 500ms;
    const Milliseconds away = process.stopped + parted + (process.lag + parted > 0ms ? late : 0ms);
    return was_cut(process) || parted >= silence_limit_ || away + first_calls_within + 25 * slowest_ >= patience_;
}

}  // namespace tutti::simulation
