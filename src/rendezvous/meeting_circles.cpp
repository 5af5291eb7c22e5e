// How ranks of several meetings find that they wait for each other in a circle: by their notes on the board.
#include "rendezvous/meeting.hpp"

#include "core/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace tutti::rendezvous {
namespace {

/// A look for a circle takes a request for each rank of the meeting, so a rank that waits long looks ever more seldom.
constexpr Milliseconds first_between_circles{100}, longest_between_circles{1600};
/// If all ranks of a large meeting look, they ask for a card in this time on average: a store answers twice as fast.
constexpr std::chrono::microseconds between_requests{10};

std::string board_key(int number) {
    return fmt::format("board/{}", number);
}

// The path from `own` back to it along absent ranks; empty: there is none.
template <class Notes>
std::vector<int> circle_in(const Notes& notes, int own) {
    std::vector<int> path{own};
    std::vector<int> seen{own};
    const auto walk = [&](const auto& self, int from) -> bool {
        for (const int next : notes.at(from).absent) {
            if (next == own && path.size() > 1) return true;
            if (std::ranges::find(seen, next) != seen.end()) continue;
            seen.push_back(next);
            path.push_back(next);
            if (self(self, next)) return true;
            path.pop_back();
        }
        return false;
    };
    if (!walk(walk, own)) return {};
    std::ranges::rotate(path, std::ranges::min_element(path));  // all that find it say the same
    return path;
}

}  // namespace

StoreTalk<bool> Meeting::leave() {
    if (noted_.empty()) co_return true;
    try {
        co_await ask::write(board_key(number_of(terms_.rank)), "");
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("{}: rank {} cannot say that it waits no more: {}", terms_.operation, number_of(terms_.rank),
                    silent.what());
    }
    noted_.clear();
    co_return true;
}

Milliseconds Meeting::time_of_looks() const {
    return std::chrono::duration_cast<Milliseconds>(std::int64_t{terms_.size} * terms_.size * between_requests);
}

// Settles all meetings on a circle, with one sentence.
StoreTalk<bool> Meeting::look_for_circle() {
    if (!next_circle_.expired()) co_return false;
    between_circles_ = std::clamp(2 * between_circles_, first_between_circles, longest_between_circles);
    between_circles_ = std::max(between_circles_, time_of_looks());
    next_circle_ = Deadline::after(between_circles_);
    const int own = number_of(terms_.rank);
    if (noted_ != id_) {
        const MeetingNote note{surroundings_.random(), id_, terms_.words, terms_.members};
        noted_ = id_;  // before it stands there: a write without an answer may have been done
        co_await ask::write(board_key(own), encode_record(Object(note)));
    }
    Notes notes = co_await read_notes();
    const std::vector<int> circle = circle_in(notes, own);
    if (circle.empty()) co_return false;
    // All of them wait at once if none has stopped meanwhile, and no attempt is over: a rank that came is in one that
    // is.
    std::string text = terms_.operation + ": ranks wait for each other:";
    for (const int number : circle) {
        const StoreAnswer now = co_await ask::read(board_key(number));
        if (!now.is_there() || now.value() != notes[number].text) co_return false;
        const StoreAnswer over = co_await ask::read(notes[number].id + "/outcome");
        if (over.is_there()) co_return false;
        text += fmt::format(" rank {} {};", number, notes[number].words);
    }
    for (const int number : circle) {
        const Outcome failure{.kind = Outcome::disagrees,
                              .text = text + " expected one order of meetings on all ranks",
                              .nonce = surroundings_.random()};
        co_await ask::compare_set(notes[number].id + "/outcome", "", encode_record(Object(failure)));
    }
    co_return true;
}

// Of this rank, of those that it waits for, of those for which these wait, and so on.
StoreTalk<Meeting::Notes> Meeting::read_notes() {
    Notes notes;
    std::vector<int> open{number_of(terms_.rank)};
    while (!open.empty()) {
        const int number = open.back();
        open.pop_back();
        if (notes.contains(number)) continue;
        Note& note = notes[number];
        const StoreAnswer stands = co_await ask::read(board_key(number));
        if (!stands.is_there() || stands.value().empty()) continue;
        auto read =
            decode_record<MeetingNote>(stands.value(), terms_.operation, fmt::format("the note of rank {}", number));
        note = {stands.value(), std::move(read.id), std::move(read.words), std::move(read.members), {}};
        for (std::size_t rank = 0; rank < note.members.size(); ++rank) {
            const StoreAnswer card = co_await ask::read(fmt::format("{}/card/{}", note.id, rank));
            if (card.is_there()) continue;
            note.absent.push_back(note.members[rank]);
            open.push_back(note.members[rank]);
        }
    }
    co_return notes;
}

}  // namespace tutti::rendezvous
