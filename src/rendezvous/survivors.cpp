#include "rendezvous/survivors.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr Milliseconds first_look{15}, between_looks{60};
constexpr Milliseconds turn{4};             // of the rank that makes the list
constexpr Milliseconds turn_of_others{40};  // at most, of those that wait for it
// The first word of the result: then come the ranks, or milliseconds and the missing ranks.
constexpr const char* agreed = "agreed";
constexpr const char* too_late = "late";

}  // namespace

std::vector<int> SurvivorsTerms::numbers_of(const std::vector<int>& ranks) const {
    std::vector<int> all;
    for (const int one : ranks) all.push_back(numbers.at(static_cast<std::size_t>(one)));
    return all;
}

Survivors::Survivors(SurvivorsTerms terms, int store)
    : terms_(std::move(terms)),
      at_(store),
      start_(Clock::now()),
      deadline_(Deadline::after(terms_.timeout, start_)),
      heard_(start_),
      next_look_(start_ + first_look) {
    TUTTI_ASSERT(terms_.timeout.count() > 0 && terms_.rank >= 0 && terms_.rank < terms_.size());
    TUTTI_ASSERT(terms_.gone && terms_.is_deaf && terms_.check);
}

Milliseconds Survivors::limit() const {
    return deadline_.timeout() + Milliseconds(1000);
}

std::string Survivors::awaited() const {
    return fmt::format("the survivors of group \"{}\" to meet", terms_.group);
}

StoreRequest Survivors::in_store(StoreRequest request) const {
    request.store = at_;
    request.keys.front() = terms_.keys + request.keys.front();
    return request;
}

StoreTalk<std::vector<int>> Survivors::agree() {
    try {
        co_await say("here", terms_.rank);
        const std::string result = co_await wait_for_result();
        co_return understood(result);
    } catch (const DistStoreError& error) {
        if (error.code() == ErrorCode::timeout) throw;
        hear_of_the_gone();
        const auto gone = terms_.numbers_of(std::vector<int>(gone_.begin(), gone_.end()));
        throw DistStoreError(
            fmt::format("shrink: the survivors of group \"{}\" cannot meet: its store {} is gone{}{}: expected a store "
                        "that outlives the ranks, as that of `tutti run` does: {}",
                        terms_.group, terms_.store, gone.empty() ? "" : ", as is rank ", fmt::join(gone, ", "),
                        error.what()),
            {.operation = "shrink", .group = terms_.group, .rank = terms_.numbers_of({terms_.rank}).front()});
    }
}

StoreTalk<std::string> Survivors::wait_for_result() {
    for (;;) {
        const StoreRequest asked = in_store(ask::await("result", decides() ? turn : pause(turn, turn_of_others)));
        const StoreAnswer known = co_await asked;
        if (known.is_there()) co_return known.value();
        terms_.check();
        co_await hear();
        const int first = first_left();
        std::vector<int> watched(1, first);
        if (first == terms_.rank) watched = missing();
        co_await look_after(watched);
        std::string outcome;
        if (decides() && (missing().empty() || patience_is_over())) {
            outcome = list_of_those_here();
        } else if (heard_ >= deadline_.when()) {
            std::vector<int> late = missing();
            if (late.empty()) late.push_back(first);
            const auto waited = std::chrono::duration_cast<Milliseconds>(deadline_.when() - start_);
            outcome = fmt::format("{} {} {}", too_late, waited.count(), fmt::join(late, " "));
        }
        if (outcome.empty()) continue;
        const std::string stands = co_await settle(outcome);
        co_return stands;
    }
}

StoreTalk<bool> Survivors::say(const char* what, int rank) {
    TUTTI_ASSERT(rank >= 0 && rank < terms_.size());
    const StoreRequest line = in_store(ask::append("said", fmt::format("{} {}\n", what, rank)));
    co_await line;
    co_return true;
}

// The deaths and goodbyes that have come over the lifelines.
std::vector<int> Survivors::hear_of_the_gone() {
    std::vector<int> fresh;
    for (const int rank : terms_.gone()) {
        if (rank >= 0 && rank != terms_.rank && gone_.insert(rank).second) fresh.push_back(rank);
    }
    TUTTI_ASSERT(!gone_.contains(terms_.rank));
    return fresh;
}

StoreTalk<bool> Survivors::hear() {
    heard_ = Clock::now();
    const std::vector<int> fresh = hear_of_the_gone();
    for (const int rank : fresh) co_await say("gone", rank);
    const StoreRequest asked = in_store(ask::read("said"));
    const StoreAnswer all = co_await asked;
    std::istringstream said(all.is_there() ? all.value() : "");
    std::string what;
    for (int rank = 0; said >> what >> rank;) {
        const bool is_false = what != "here" && rank == terms_.rank;  // others have lost the connection to this rank
        if (rank >= 0 && rank < terms_.size() && !is_false) (what == "here" ? here_ : gone_).insert(rank);
    }
    co_return true;
}

// Asks ranks whether they still listen, now and then.
StoreTalk<bool> Survivors::look_after(std::vector<int> ranks) {
    if (Clock::now() < next_look_) co_return false;
    for (const int rank : ranks) {
        if (terms_.is_deaf(rank)) {
            gone_.insert(rank);
            co_await say("gone", rank);
        }
    }
    next_look_ = Clock::now() + pause(first_look, between_looks);
    co_return true;
}

// As long as this rank has waited so far. Most deaths are known within milliseconds of each other, so a rank that looks
// soon again loses little by having looked too early; one that has waited long asks seldom.
Milliseconds Survivors::pause(Milliseconds least, Milliseconds most) const {
    TUTTI_ASSERT(least <= most);
    return std::clamp(std::chrono::duration_cast<Milliseconds>(Clock::now() - start_), least, most);
}

// By the time of what this rank has heard: it may have been stopped since, while others came.
bool Survivors::patience_is_over() const {
    return terms_.patience && heard_ - start_ >= *terms_.patience;
}

// No rank before this one will make the list.
bool Survivors::decides() const {
    for (int rank = 0; rank < terms_.rank; ++rank) {
        if (!gone_.contains(rank) && (here_.contains(rank) || !patience_is_over())) return false;
    }
    return true;
}

int Survivors::first_left() const {
    int rank = 0;
    while (rank < terms_.rank && gone_.contains(rank)) ++rank;
    TUTTI_ASSERT(rank >= 0 && rank <= terms_.rank);
    return rank;
}

std::vector<int> Survivors::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < terms_.size(); ++rank) {
        if (!here_.contains(rank) && !gone_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
}

/// Returns the outcome that stands: this one, or an earlier one.
StoreTalk<std::string> Survivors::settle(std::string outcome) {
    TUTTI_ASSERT(!outcome.empty());
    const StoreRequest result = in_store(ask::compare_set("result", "", outcome));
    const StoreAnswer stands = co_await result;
    co_return stands.value();
}

// A rank may have come and died since.
std::string Survivors::list_of_those_here() const {
    std::string list = agreed;
    for (const int rank : here_) {
        if (rank == terms_.rank || (!gone_.contains(rank) && !terms_.is_deaf(rank))) list += fmt::format(" {}", rank);
    }
    TUTTI_ASSERT(here_.contains(terms_.rank));
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
    ErrorContext context{
        .operation = "shrink", .group = terms_.group, .rank = terms_.numbers_of({terms_.rank}).front()};
    const auto exists = [this](int rank) { return rank >= 0 && rank < terms_.size(); };
    if (ranks.empty() || !text.eof() || !std::ranges::all_of(ranks, exists)) {
        throw DistStoreError(fmt::format("shrink of group \"{}\" ({} ranks): the store says \"{}\": expected ranks of "
                                         "the group",
                                         terms_.group, terms_.size(), result),
                             context);
    }
    const std::vector<int> numbers = terms_.numbers_of(ranks);
    if (outcome == too_late) {
        context.peer = numbers.front();
        throw Timeout(
            fmt::format("shrink of group \"{}\" ({} ranks): not called within {} ms by rank{} {}, which "
                        "is not known to be dead",
                        terms_.group, terms_.size(), waited, ranks.size() == 1 ? "" : "s", fmt::join(numbers, ", ")),
            context);
    }
    if (std::ranges::find(ranks, terms_.rank) != ranks.end()) return ranks;
    context.peer = context.rank;
    throw PeerLost(
        fmt::format("shrink of group \"{}\" ({} ranks): ranks {} go on without this rank, {}: it came too late, "
                    "or could not be reached",
                    terms_.group, terms_.size(), fmt::join(numbers, ", "), context.rank),
        context);
}

}  // namespace tutti::rendezvous
