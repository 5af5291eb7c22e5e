#include "group/survivors.hpp"

#include "core/assert.hpp"
#include "core/interrupt.hpp"
#include "core/patience.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace tutti::detail {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_look{15}, between_looks{60};
constexpr milliseconds turn{4}, turn_of_others{40};  // of the rank that makes the list, and of those that wait for it
// The first word of the result: then come the ranks, or milliseconds and the missing ranks.
constexpr const char* agreed = "agreed";
constexpr const char* too_late = "late";

}  // namespace

Survivors::Survivors(const Group& group, int attempt, milliseconds timeout, std::optional<milliseconds> patience)
    : group_(group),
      store_(PrefixStore(fmt::format("group/{}/shrink/{}/{}", group.world().name(), group.index(), attempt),
                         group.world().setup().store)),
      start_(Clock::now()),
      deadline_(Deadline::after(timeout, start_)),
      patience_(patience),
      next_look_(start_ + first_look) {
    TUTTI_ASSERT(attempt > 0 && timeout.count() > 0);
    store_.set_timeout(timeout + milliseconds(1000));
}

std::vector<int> Survivors::agree() {
    try {
        say("here", group_.rank());
        return understood(wait_for_result());
    } catch (const DistStoreError& error) {
        if (error.code() == ErrorCode::timeout) throw;
        hear_of_the_gone();
        const auto gone = group_.ranks().global(std::vector<int>(gone_.begin(), gone_.end()));
        throw DistStoreError(
            fmt::format("shrink: the survivors of group \"{}\" cannot meet: its store {} is gone{}{}: expected a store "
                        "that outlives the ranks, as that of `tutti run` does: {}",
                        group_.name(), store_.describe(), gone.empty() ? "" : ", as is rank ", fmt::join(gone, ", "),
                        error.what()),
            {.operation = "shrink", .group = group_.name(), .rank = group_.world().rank()});
    }
}

std::string Survivors::wait_for_result() {
    const Patience patience([this] { return fmt::format("the survivors of group \"{}\" to meet", group_.name()); });
    for (;;) {
        if (auto known = result(decides() ? turn : turn_of_others)) return *known;
        if (interrupt_requested()) {
            clear_interrupt();
            throw Aborted("shrink: interrupted by a signal", {.operation = "shrink"}, ErrorCode::interrupted);
        }
        hear();
        const int first = first_left();
        look_after(first < group_.rank() ? std::vector<int>{first} : missing());
        if (decides() && (missing().empty() || patience_is_over())) return settle(list_of_those_here());
        if (!deadline_.expired()) continue;
        std::vector<int> late = missing();
        if (late.empty()) late.push_back(first);
        const auto waited = std::chrono::duration_cast<milliseconds>(deadline_.when() - start_);
        return settle(fmt::format("{} {} {}", too_late, waited.count(), fmt::join(late, " ")));
    }
}

void Survivors::say(const char* what, int rank) {
    TUTTI_ASSERT(rank >= 0 && rank < group_.size());
    store_.append("said", fmt::format("{} {}\n", what, rank));
}

// The deaths and goodbyes that have come over the lifelines.
std::vector<int> Survivors::hear_of_the_gone() {
    std::vector<int> fresh;
    for (const int r : group_.world().verdicts().gone_for_good()) {
        const int rank = group_.ranks().rank_of(r);
        if (rank >= 0 && rank != group_.rank() && gone_.insert(rank).second) fresh.push_back(rank);
    }
    TUTTI_ASSERT(!gone_.contains(group_.rank()));
    return fresh;
}

void Survivors::hear() {
    for (const int rank : hear_of_the_gone()) say("gone", rank);
    std::istringstream said(store_.get("said"));
    std::string what;
    for (int rank = 0; said >> what >> rank;) {
        if (rank >= 0 && rank < group_.size()) (what == "here" ? here_ : gone_).insert(rank);
    }
}

// Asks ranks whether they still listen, now and then.
void Survivors::look_after(const std::vector<int>& ranks) {
    if (Clock::now() < next_look_) return;
    for (const int rank : ranks) {
        if (group_.world().verdicts().is_deaf(group_.ranks().global(rank))) {
            gone_.insert(rank);
            say("gone", rank);
        }
    }
    next_look_ = Clock::now() + between_looks;
}

bool Survivors::patience_is_over() const {
    return patience_ && Clock::now() - start_ >= *patience_;
}

// No rank before this one will make the list.
bool Survivors::decides() const {
    for (int rank = 0; rank < group_.rank(); ++rank) {
        if (!gone_.contains(rank) && (here_.contains(rank) || !patience_is_over())) return false;
    }
    return true;
}

int Survivors::first_left() const {
    int rank = 0;
    while (rank < group_.rank() && gone_.contains(rank)) ++rank;
    TUTTI_ASSERT(rank >= 0 && rank <= group_.rank());
    return rank;
}

std::vector<int> Survivors::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank) {
        if (!here_.contains(rank) && !gone_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
}

std::optional<std::string> Survivors::result(milliseconds limit) {
    try {
        return store_.get("result", limit);
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        return std::nullopt;
    }
}

/// Returns the outcome that stands: this one, or an earlier one.
std::string Survivors::settle(const std::string& outcome) {
    TUTTI_ASSERT(!outcome.empty());
    return store_.compare_set("result", "", outcome);
}

// A rank may have come and died since.
std::string Survivors::list_of_those_here() {
    std::string list = agreed;
    for (const int rank : here_) {
        const bool own = rank == group_.rank();
        if (own || (!gone_.contains(rank) && !group_.world().verdicts().is_deaf(group_.ranks().global(rank))))
            list += fmt::format(" {}", rank);
    }
    TUTTI_ASSERT(here_.contains(group_.rank()));
    return list;
}

std::vector<int> Survivors::understood(const std::string& result) const {
    std::istringstream text(result);
    std::string outcome;
    long long waited = 0;
    text >> outcome;
    if (outcome == too_late) text >> waited;
    std::vector<int> ranks;
    for (int rank = 0; text >> rank;) ranks.push_back(rank);
    ErrorContext context{.operation = "shrink", .group = group_.name(), .rank = group_.world().rank()};
    const auto exists = [this](int rank) { return rank >= 0 && rank < group_.size(); };
    if (ranks.empty() || !text.eof() || !std::ranges::all_of(ranks, exists)) {
        throw DistStoreError(fmt::format("shrink of group \"{}\" ({} ranks): the store says \"{}\": expected ranks of "
                                         "the group",
                                         group_.name(), group_.size(), result),
                             context);
    }
    if (outcome == too_late) {
        context.peer = group_.ranks().global(ranks.front());
        throw Timeout(fmt::format("shrink of group \"{}\" ({} ranks): not called within {} ms by rank{} {}, which "
                                  "is not known to be dead",
                                  group_.name(), group_.size(), waited, ranks.size() == 1 ? "" : "s",
                                  fmt::join(group_.ranks().global(ranks), ", ")),
                      context);
    }
    if (std::ranges::find(ranks, group_.rank()) != ranks.end()) return ranks;
    context.peer = context.rank;
    throw PeerLost(
        fmt::format("shrink of group \"{}\" ({} ranks): ranks {} go on without this rank, {}: it came too late, "
                    "or could not be reached",
                    group_.name(), group_.size(), fmt::join(group_.ranks().global(ranks), ", "), context.rank),
        context);
}

}  // namespace tutti::detail
