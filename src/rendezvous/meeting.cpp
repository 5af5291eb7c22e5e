#include "rendezvous/meeting.hpp"

#include "core/log.hpp"
#include "core/rank_list.hpp"
#include "core/text.hpp"
#include "object/codec.hpp"
#include "rendezvous/table.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::rendezvous {

TUTTI_OBJECT(MeetingOutcome, kind, rank, text, nonce, cards);

/// A rank's card in the store: its payload, and what rank 0 compares.
struct MeetingCard {
    std::string version;
    std::uint64_t nonce = 0;
    int size = 0;
    std::string digest, words, space;
    int process = 0;
    std::string process_in_words, payload;
};
TUTTI_OBJECT(MeetingCard, version, nonce, size, digest, words, space, process, process_in_words, payload);

/// A rank's note on the board while it waits. The nonce tells one wait from the next.
struct MeetingNote {
    std::uint64_t nonce = 0;
    std::string id, words;
    std::vector<int> members;
};
TUTTI_OBJECT(MeetingNote, nonce, id, words, members);

namespace {

/// Rank 0 looks this often at the ranks that have come while others are missing; other ranks do so where they look for
/// a circle, or their caller wants to know.
constexpr Milliseconds long_look{400}, short_look{100};
/// A look for a circle takes a request for each rank of the meeting, so a rank that waits long looks ever more seldom.
constexpr Milliseconds longest_between_circles{1600};
/// A rank whose time is over waits so long for rank 0, which knows best who is missing.
constexpr Milliseconds time_for_rank_0{200};
/// For a rank that has said that it cannot come, and is about to say why.
constexpr Milliseconds words_time{1000};
/// A store has so long to answer, also where the rank's time is over.
constexpr Milliseconds least_limit{1000};
constexpr int most_attempts = 1000;  // of a rank that says that it cannot come

/// Instead of a card: its rank cannot come. Why not is the outcome, which comes at once.
bool is_no_card(const std::string& bytes) {
    return bytes.starts_with('-');
}

std::string board_key(int number) {
    return fmt::format("board/{}", number);
}

template <class T>
T decode(const std::string& bytes, const std::string& operation, const std::string& what) {
    try {
        return object::decode_string(bytes).get<T>();
    } catch (const ObjectError& error) {
        throw DistStoreError(fmt::format("{}: {} in the store cannot be read: {}; does every process run the same "
                                         "version of tutti?",
                                         operation, what, error.what()),
                             {.operation = operation});
    }
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

Meeting::Meeting(MeetingTerms terms, std::string card, Surroundings surroundings)
    : terms_(std::move(terms)),
      surroundings_(std::move(surroundings)),
      deadline_(Deadline::after(terms_.timeout)),
      payload_(std::move(card)),
      own_(object::encode_string(Object(MeetingCard{version(), surroundings_.random(), terms_.size, terms_.digest,
                                                    terms_.words, surroundings_.own.space, surroundings_.own.number,
                                                    surroundings_.own.in_words, payload_}))) {
    if (terms_.once) id_ = terms_.name;
}

int Meeting::number_of(int rank) const {
    return terms_.members.empty() ? rank : terms_.members[static_cast<std::size_t>(rank)];
}

Milliseconds Meeting::left() const {
    constexpr Milliseconds most = std::chrono::hours(24);
    return std::min(most, std::chrono::ceil<Milliseconds>(std::min<Clock::duration>(deadline_.remaining(), most)));
}

Milliseconds Meeting::limit() const {
    return is_ending_ ? least_limit : std::max(left(), least_limit);
}

std::string Meeting::awaited() const {
    std::vector<int> missing;
    for (const int rank : missing_) missing.push_back(number_of(rank));
    const std::string who = missing.empty() ? "the other ranks" : rank_list(missing);
    return fmt::format("{} to come: {} {}{}{}", who, name_of(terms_.rank), terms_.words,
                       terms_.about.empty() ? "" : ", ", terms_.about);
}

Meeting::Outcome Meeting::outcome(Outcome::Kind kind, int rank, const std::string& why) const {
    return {.kind = kind,
            .rank = rank,
            .text = fmt::format("{}{}{}: {}", terms_.operation, terms_.about.empty() ? "" : " ", terms_.about, why),
            .nonce = surroundings_.random()};
}

Meeting::Outcome Meeting::outcome_in(const std::string& bytes) const {
    return decode<Outcome>(bytes, terms_.operation, "the outcome of a meeting");
}

// ---- The way of a rank

StoreTalk<Met> Meeting::run() {
    std::exception_ptr error;
    Met met;
    std::string why;
    try {
        met = co_await come();
    } catch (const std::exception& failure) {
        error = std::current_exception();
        why = failure.what();
    }
    is_ending_ = true;
    if (error && !settled_) co_await say_failed(std::move(why));
    co_await leave();
    if (error) std::rethrow_exception(error);
    co_return met;
}

StoreTalk<Met> Meeting::come() {
    for (;;) {
        const bool is_in = co_await enter();
        if (is_in) {
            Outcome outcome;
            if (terms_.rank == 0) {
                outcome = co_await gather();
            } else {
                outcome = co_await await_outcome();
            }
            Met met;
            if (accept(std::move(outcome), met)) co_return met;
        }
        co_await next();
    }
}

// False: the attempt was over before this rank came, or is one that it has been in.
StoreTalk<bool> Meeting::enter() {
    if (id_.empty()) {
        const StoreAnswer newest = co_await ask::compare_set(key_of_newest(), "", "1");
        be(newest.value());
    }
    const Outcome end = outcome(
        Outcome::ended, terms_.rank,
        fmt::format("{} is gone: {} ended before all had come", name_of(terms_.rank), surroundings_.own.in_words));
    co_await ask::will(outcome_key(), object::encode_string(Object(end)));
    const StoreAnswer there = co_await ask::compare_set(card_key(terms_.rank), "", own_);
    entered_ = there.value() == own_;
    if (entered_) co_return true;
    const bool is_in = co_await enter_behind(there.value());
    co_return is_in;
}

// There is a card of this rank: of an earlier call, of a process that has ended, or of another one.
StoreTalk<bool> Meeting::enter_behind(std::string other_card) {
    const std::string key = outcome_key();
    const StoreAnswer stands = co_await ask::read(key);
    Outcome found;
    if (stands.is_there()) {
        found = outcome_in(stands.value());
    } else if (is_no_card(other_card)) {
        found = co_await hear_why(terms_.rank);
    } else {
        const auto other = decode<MeetingCard>(other_card, terms_.operation, "the card of " + name_of(terms_.rank));
        const MeetingProcess process{other.space, other.process, other.process_in_words};
        const bool has_ended = process.space == surroundings_.own.space && surroundings_.has_ended(process);
        const Outcome mine =
            has_ended ? outcome(Outcome::ended, terms_.rank,
                                fmt::format("{} is gone: {} ended before all had come", name_of(terms_.rank),
                                            process.in_words))
                      : outcome(Outcome::disagrees, terms_.rank,
                                fmt::format("two say that they are {}, {} and {}: expected each rank once",
                                            name_of(terms_.rank), process.in_words, surroundings_.own.in_words));
        found = co_await settle(mine);
        Met met;
        if (!has_ended && found.nonce == mine.nonce) (void)accept(found, met);  // throws
    }
    if (!terms_.once) co_return false;
    Met met;
    if (found.kind != Outcome::met && found.kind != Outcome::none) (void)accept(found, met);  // throws
    settled_ = true;
    throw InvalidArgument(fmt::format("{}: {} has been at the meeting \"{}\" before: expected each rank once",
                                      terms_.operation, name_of(terms_.rank), terms_.name),
                          {.operation = terms_.operation, .rank = terms_.rank, .peer = terms_.rank});
}

StoreTalk<bool> Meeting::next() {
    const auto number = number_in<std::uint64_t>(number_);
    const StoreAnswer newest = co_await ask::compare_set(key_of_newest(), number_, std::to_string(*number + 1));
    be(newest.value());
    co_return true;
}

void Meeting::be(const std::string& number) {
    if (!number_in<std::uint64_t>(number)) {
        throw DistStoreError(
            fmt::format("{}: the number of the newest meeting \"{}\" in the store is \"{}\": expected a "
                        "number",
                        terms_.operation, terms_.name, number),
            {.operation = terms_.operation});
    }
    number_ = number;
    id_ = terms_.name + "/" + number;
    entered_ = false;
    between_circles_ = Milliseconds(0);
    next_circle_ = Deadline::after(between_circles_);
}

// True: the ranks have met. False: the attempt is that of others. Throws the failure that all ranks get.
bool Meeting::accept(Outcome outcome, Met& met) {
    const bool has_place = std::cmp_greater(outcome.cards.size(), terms_.rank);
    if (outcome.kind == Outcome::met && !has_place && !terms_.once) return false;
    settled_ = true;
    const bool is_of_ours = outcome.rank >= 0 && outcome.rank < terms_.size;  // the sizes may be what is wrong
    const ErrorContext context{.operation = terms_.operation,
                               .rank = number_of(terms_.rank),
                               .peer = is_of_ours ? number_of(outcome.rank) : outcome.rank};
    switch (outcome.kind) {
        case Outcome::met:
            if (!has_place) {
                throw InvalidArgument(
                    fmt::format("{}: {} ranks have met without rank {}: expected one size on all ranks",
                                terms_.operation, outcome.cards.size(), terms_.rank),
                    context);
            }
            met = {std::move(outcome.cards), number_in<std::uint64_t>(number_).value_or(0)};
            return true;
        case Outcome::late: throw Timeout(outcome.text, context);
        case Outcome::failed:
        case Outcome::ended: throw PeerLost(outcome.text, context);
        case Outcome::disagrees: throw InvalidArgument(outcome.text, context);
        default: throw DistStoreError(terms_.operation + ": the outcome in the store is of an unknown kind", context);
    }
}

// Of a rank that has said that it cannot come, and may have ended before its words.
StoreTalk<Meeting::Outcome> Meeting::hear_why(int rank) {
    const StoreAnswer words = co_await ask::await(outcome_key(), words_time);
    if (words.is_there()) co_return outcome_in(words.value());
    const Outcome silent = outcome(Outcome::failed, rank, name_of(rank) + " cannot come, and has not said why");
    co_return co_await settle(silent);
}

StoreTalk<Meeting::Outcome> Meeting::settle(Outcome outcome) {
    const std::string own = object::encode_string(Object(outcome));
    const StoreAnswer stands = co_await ask::compare_set(outcome_key(), "", own);
    co_return outcome_in(stands.value());
}

// ---- Waiting

// Rank 0.
StoreTalk<Meeting::Outcome> Meeting::gather() {
    cards_.assign(static_cast<std::size_t>(terms_.size), {});
    cards_.front() = payload_;
    missing_.resize(static_cast<std::size_t>(terms_.size) - 1);
    std::iota(missing_.begin(), missing_.end(), 1);
    for (;;) {
        const StoreAnswer stands = co_await ask::read(outcome_key());
        if (stands.is_there()) co_return outcome_in(stands.value());
        const std::string trouble = co_await take_cards();
        if (!trouble.empty()) {
            const Outcome refusal = outcome(Outcome::disagrees, missing_.front(), trouble);
            co_return co_await settle(refusal);
        }
        if (missing_.empty()) break;
        if (deadline_.expired()) co_return co_await give_up();
        if (terms_.check) terms_.check();
        if (!terms_.members.empty()) co_await look_for_circle();
    }
    Outcome all = outcome(Outcome::met, 0, "");
    all.cards = std::move(cards_);
    all.text.clear();
    co_return co_await settle(all);
}

// Waits for the missing, for a while. Returns why they cannot meet, then the rank is the first of the missing.
StoreTalk<std::string> Meeting::take_cards() {
    std::vector<std::string> keys;
    for (const int rank : missing_) keys.push_back(card_key(rank));
    const StoreAnswer come = co_await ask::await(keys, std::min(left(), must_look() ? short_look : long_look));
    for (std::size_t i = 0, at = 0; i < keys.size(); ++i) {
        std::string card;
        if (come.is_there()) {
            card = come.values[i];
        } else {
            const StoreAnswer one = co_await ask::read(keys[i]);
            if (one.is_there()) card = one.value();
        }
        if (is_no_card(card)) {
            co_await hear_why(missing_[at]);
            co_return "";  // gather() reads it
        }
        const int rank = missing_[at];
        if (card.empty()) {
            ++at;
            continue;
        }
        const std::string trouble = why_not_to_take(rank, card);
        if (!trouble.empty()) {
            std::swap(missing_.front(), missing_[at]);
            co_return trouble;
        }
        missing_.erase(missing_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    co_return "";
}

std::string Meeting::why_not_to_take(int rank, const std::string& bytes) {
    auto card = decode<MeetingCard>(bytes, terms_.operation, "the card of " + name_of(rank));
    const auto differ = [&](const std::string& theirs, const std::string& own) {
        return fmt::format("{} {}, {} {}: expected the same on all ranks", name_of(rank), theirs, name_of(0), own);
    };
    if (!can_work_together(card.version, version()))
        return differ("runs tutti " + card.version, std::string("runs tutti ") + version());
    if (card.size != terms_.size)
        return differ(fmt::format("says {} ranks", card.size), fmt::format("says {} ranks", terms_.size));
    if (card.digest != terms_.digest) return differ(card.words, terms_.words);
    cards_[static_cast<std::size_t>(rank)] = std::move(card.payload);
    return "";
}

// The others.
StoreTalk<Meeting::Outcome> Meeting::await_outcome() {
    for (;;) {
        const bool is_late = deadline_.expired();
        const Milliseconds patience = is_late ? time_for_rank_0 : must_look() ? std::min(left(), short_look) : left();
        const StoreAnswer stands = co_await ask::await(outcome_key(), patience);
        if (stands.is_there()) co_return outcome_in(stands.value());
        if (is_late) co_return co_await give_up();
        if (terms_.check) terms_.check();
        if (!terms_.members.empty()) co_await look_for_circle();
    }
}

StoreTalk<Meeting::Outcome> Meeting::give_up() {
    std::vector<int> missing;
    for (int rank = 0; rank < terms_.size; ++rank) {
        const StoreAnswer card = co_await ask::read(card_key(rank));
        if (!card.is_there()) missing.push_back(rank);
    }
    const int first = missing.empty() ? 0 : missing.front();
    for (int& rank : missing) rank = number_of(rank);
    const std::string who = missing.empty() ? fmt::format("; rank {} has not answered", number_of(0))
                                            : fmt::format("; not there: {}", fmt::join(missing, ", "));
    const Outcome late =
        outcome(Outcome::late, first, fmt::format("timed out on rank {}{}", number_of(terms_.rank), who));
    co_return co_await settle(late);
}

StoreTalk<bool> Meeting::say_failed(std::string why) {
    is_ending_ = true;
    try {
        for (int attempts = 0; attempts < most_attempts; ++attempts) {
            if (id_.empty()) {
                const StoreAnswer newest = co_await ask::compare_set(key_of_newest(), "", "1");
                be(newest.value());
            }
            const std::string mark = fmt::format("-{}", surroundings_.random());
            bool is_first = false;
            if (!entered_) {
                const StoreAnswer there = co_await ask::compare_set(card_key(terms_.rank), "", mark);
                is_first = there.value() == mark;
            }
            const Outcome mine =
                outcome(Outcome::failed, terms_.rank, fmt::format("{} cannot come: {}", name_of(terms_.rank), why));
            const Outcome stands = co_await settle(mine);
            if (entered_ || stands.nonce == mine.nonce) co_return true;
            if (is_first && stands.kind != Outcome::met) co_return true;  // this rank fails as the others do
            if (terms_.once) break;
            co_await next();
        }
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("{}: {} cannot say that it does not come: {}", terms_.operation, name_of(terms_.rank),
                    silent.what());
    }
    co_return false;
}

StoreTalk<bool> Meeting::leave() {
    if (noted_.empty()) co_return true;
    try {
        co_await ask::write(board_key(number_of(terms_.rank)), "");
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("{}: {} cannot say that it waits no more: {}", terms_.operation, name_of(terms_.rank),
                    silent.what());
    }
    noted_.clear();
    co_return true;
}

// ---- Circles

// Settles all meetings on a circle, with one sentence.
StoreTalk<bool> Meeting::look_for_circle() {
    if (!next_circle_.expired()) co_return false;
    between_circles_ = std::clamp(2 * between_circles_, short_look, longest_between_circles);
    next_circle_ = Deadline::after(between_circles_);
    const int own = number_of(terms_.rank);
    if (noted_ != id_) {
        const MeetingNote note{surroundings_.random(), id_, terms_.words, terms_.members};
        co_await ask::write(board_key(own), object::encode_string(Object(note)));
        noted_ = id_;
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
    const Outcome failure{.kind = Outcome::disagrees,
                          .rank = -1,
                          .text = text + " expected one order of meetings on all ranks",
                          .nonce = surroundings_.random()};
    for (const int number : circle) {
        co_await ask::compare_set(notes[number].id + "/outcome", "", object::encode_string(Object(failure)));
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
        auto read = decode<MeetingNote>(stands.value(), terms_.operation, fmt::format("the note of rank {}", number));
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
