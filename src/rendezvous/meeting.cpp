#include "rendezvous/meeting.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/rank_list.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace tutti::rendezvous {
namespace {

/// Rank 0 looks this often at the ranks that have come while others are missing; other ranks do so where they look for
/// a circle, or their caller wants to know.
constexpr Milliseconds long_look{400}, short_look{100};
/// A rank whose time is over waits so long for rank 0, which knows best who is missing; the higher its number the
/// longer, so that few of many ask the store for all cards.
constexpr Milliseconds time_for_rank_0{200}, most_time_for_lower_ranks{800};
constexpr int cards_between_looks = 64;
/// While many are missing rank 0 asks for so many cards at once, and takes those that are complete. It looks for the
/// single ones of the others once in so long a time for each.
constexpr std::size_t cards_at_once = 256;
constexpr Milliseconds time_for_a_card{1};
/// For a rank that has said that it cannot come, and is about to say why.
constexpr Milliseconds words_time{1000};
/// A store has so long to answer, also where the rank's time is over.
constexpr Milliseconds least_limit{1000};
constexpr int most_attempts = 1000;  // of a rank that says that it cannot come

}  // namespace

Meeting::Meeting(MeetingTerms terms, Caller caller, Surroundings surroundings)
    : terms_(std::move(terms)),
      caller_(std::move(caller)),
      surroundings_(std::move(surroundings)),
      sentences_(*caller_.sentences),
      deadline_(Deadline::after(terms_.timeout)),
      next_single_cards_(Deadline::after(terms_.size * time_for_a_card)),
      next_circle_(Deadline::after(time_of_looks())) {
    TUTTI_ASSERT(surroundings_.has_ended && surroundings_.random);
    TUTTI_ASSERT(!terms_.name.empty());
    if (terms_.once) id_ = terms_.name;
}

int Meeting::number_of(int rank) const {
    if (terms_.members.empty()) return rank;
    TUTTI_ASSERT(rank >= 0 && std::cmp_less(rank, terms_.members.size()));
    return terms_.members[static_cast<std::size_t>(rank)];
}

Milliseconds Meeting::left() const {
    constexpr Milliseconds most = std::chrono::hours(24);
    return std::min(most, std::chrono::ceil<Milliseconds>(std::min<Clock::duration>(deadline_.remaining(), most)));
}

// For a request that waits, before this rank looks at something else.
Milliseconds Meeting::patience(Milliseconds most) const {
    if (terms_.check) return std::min(left(), short_look);
    const auto until_circle = std::chrono::ceil<Milliseconds>(next_circle_.remaining());
    return std::min(left(), terms_.members.empty() ? most : std::min(most, std::max(until_circle, short_look)));
}

Milliseconds Meeting::limit() const {
    return is_ending_ ? least_limit : std::max(left(), least_limit);
}

std::string Meeting::awaited() const {
    std::vector<int> missing;
    for (const int rank : missing_) missing.push_back(number_of(rank));
    const std::string who = missing.empty() ? "the other ranks" : rank_list(missing);
    return fmt::format("{} to come: rank {} {}{}{}", who, number_of(terms_.rank), terms_.words,
                       terms_.about.empty() ? "" : ", ", terms_.about);
}

Meeting::Outcome Meeting::outcome(Outcome::Kind kind, int rank, const std::string& why) const {
    return {.kind = kind,
            .rank = rank,
            .size = terms_.size,
            .text = fmt::format("{}{}{}: {}", terms_.operation, terms_.about.empty() ? "" : " ", terms_.about, why),
            .nonce = surroundings_.random()};
}

Meeting::Outcome Meeting::outcome_in(const std::string& bytes) const {
    if (const auto version = other_version(bytes, number_of(0))) return outcome(Outcome::disagrees, 0, *version);
    return decode_record<Outcome>(bytes, terms_.operation, "the outcome of a meeting");
}

bool Meeting::is_dead(const MeetingProcess& process) const {
    const bool can_tell = process.number != 0 && process.space == surroundings_.own.space;
    return can_tell && process.number != surroundings_.own.number && surroundings_.has_ended(process);
}

// ---- The way of a rank

StoreTalk<Met> Meeting::run() {
    TUTTI_ASSERT(caller_.card && terms_.rank >= 0 && terms_.rank < terms_.size);
    std::exception_ptr error;
    Met met;
    std::string why;
    bool may_be_busy = false;
    try {
        met = co_await come();
    } catch (const std::exception& failure) {
        error = std::current_exception();
        why = failure.what();
        may_be_busy = may_leave_busy(failure);
    }
    is_ending_ = true;
    if (error && !settled_) co_await say_failed(std::move(why), may_be_busy);
    co_await leave();
    if (error) std::rethrow_exception(error);
    TUTTI_ASSERT(!met.cards.empty() && settled_);
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

// The newest attempt, unless this rank has found one before.
StoreTalk<bool> Meeting::find() {
    if (id_.empty()) {
        const StoreAnswer newest = co_await ask::compare_set(key_of_newest(), "", "1");
        be(newest.value());
    }
    TUTTI_ASSERT(!id_.empty());
    co_return true;
}

// False: the attempt was over before this rank came, or is one that it has been in.
StoreTalk<bool> Meeting::enter() {
    co_await find();
    if (terms_.size > 1) {
        const Outcome end =
            outcome(Outcome::ended, terms_.rank, sentences_.ended(number_of(terms_.rank), surroundings_.own));
        co_await ask::will(outcome_key(), encode_record(Object(end)));
    }
    if (own_.empty()) {
        payload_ = caller_.card();
        own_ = encode_record(Object(MeetingCard{surroundings_.random(), terms_.size, terms_.digest, terms_.words,
                                                surroundings_.own, payload_}));
    }
    const StoreAnswer there = co_await ask::compare_set(card_key(terms_.rank), "", own_);
    entered_ = there.value() == own_;
    if (entered_) co_return true;
    const bool is_in = co_await enter_behind(there.value());
    co_return is_in;
}

// There is a card of this rank: of an earlier call, of a process that has ended, or of another one.
StoreTalk<bool> Meeting::enter_behind(std::string other_card) {
    const int own_number = number_of(terms_.rank);
    MeetingProcess other;
    if (!is_no_card(other_card))
        other = decode_record<MeetingCard>(other_card, terms_.operation, fmt::format("the card of rank {}", own_number))
                    .process;
    const std::string key = outcome_key();
    const StoreAnswer stands = co_await ask::read(key);
    Outcome found;
    if (stands.is_there()) {
        found = outcome_in(stands.value());
    } else if (is_no_card(other_card)) {
        found = co_await hear_why(terms_.rank);
    } else {
        const bool has_ended = is_dead(other);
        const Outcome mine = has_ended ? outcome(Outcome::ended, terms_.rank, sentences_.ended(own_number, other))
                                       : outcome(Outcome::disagrees, terms_.rank,
                                                 sentences_.twice(own_number, other, surroundings_.own));
        found = co_await settle(mine);
        Met met;
        if (!has_ended && found.nonce == mine.nonce) (void)accept(found, met);  // throws
    }
    if (!terms_.once) {
        if (found.kind == Outcome::met) process_before_ = other.in_words;
        co_return false;
    }
    Met met;
    if (found.kind != Outcome::met && found.kind != Outcome::none) (void)accept(found, met);  // throws
    settled_ = true;
    throw InvalidArgument(fmt::format("{}: {}", terms_.operation,
                                      sentences_.was_there(own_number, terms_.name, other, surroundings_.own)),
                          {.operation = terms_.operation, .rank = terms_.rank, .peer = terms_.rank});
}

StoreTalk<bool> Meeting::next() {
    TUTTI_ASSERT(!terms_.once);
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

// Whether this rank may join the next attempt without a word: others have met without a place for it, have failed as a
// meeting of another size, or have missed a process that this rank's takes the place of.
bool Meeting::is_of_others(const Outcome& outcome) const {
    const bool is_of_other_size = outcome.size != 0 && outcome.size != terms_.size;
    switch (outcome.kind) {
        case Outcome::met: return outcome.size <= terms_.rank;
        case Outcome::late:
        case Outcome::failed: return is_of_other_size;
        case Outcome::ended: return is_of_other_size || outcome.rank == terms_.rank;
        default: return false;  // ranks disagree, perhaps about the size
    }
}

bool Meeting::is_news(const Outcome& outcome) const {
    return outcome.kind == Outcome::met || !surroundings_.is_news || surroundings_.is_news(outcome.nonce);
}

std::string Meeting::other_size(int rank, int says, int rank_0_says) const {
    return fmt::format(
        "rank {} says {} ranks, rank {} says {} ranks: expected one size (WORLD_SIZE, world_size) on all ranks",
        number_of(rank), says, number_of(0), rank_0_says);
}

// True: the ranks have met. False: the attempt is that of others. Throws the failure that all ranks get.
bool Meeting::accept(Outcome outcome, Met& met) {
    if (!terms_.once && (is_of_others(outcome) || !is_news(outcome))) return false;
    settled_ = true;
    const bool is_of_ours = outcome.rank >= 0 && outcome.rank < terms_.size;  // the sizes may be what is wrong
    const ErrorContext context{.operation = terms_.operation,
                               .rank = number_of(terms_.rank),
                               .peer = is_of_ours ? number_of(outcome.rank) : outcome.rank};
    switch (outcome.kind) {
        case Outcome::met:
            if (outcome.size <= terms_.rank) {
                throw InvalidArgument(
                    fmt::format("{}: {}", terms_.operation, other_size(terms_.rank, terms_.size, outcome.size)),
                    context);
            }
            if (std::cmp_not_equal(outcome.cards.size(), caller_.conclude ? 1 : outcome.size))
                throw DistStoreError(
                    fmt::format("{}: the outcome in the store has {} cards", terms_.operation, outcome.cards.size()),
                    context);
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
    const Outcome silent = outcome(Outcome::failed, rank, sentences_.failed(number_of(rank), ""));
    co_return co_await settle(silent);
}

StoreTalk<Meeting::Outcome> Meeting::settle(Outcome outcome) {
    TUTTI_ASSERT(outcome.kind != Outcome::none);
    const std::string own = encode_record(Object(outcome));
    const StoreAnswer stands = co_await ask::compare_set(outcome_key(), "", own);
    co_return outcome_in(stands.value());
}

// ---- Waiting

// Rank 0.
StoreTalk<Meeting::Outcome> Meeting::gather() {
    TUTTI_ASSERT(terms_.rank == 0);
    const auto size = static_cast<std::size_t>(terms_.size);
    cards_.assign(size, {});
    cards_.front() = payload_;
    processes_.assign(size, {});
    missing_.resize(size - 1);
    std::iota(missing_.begin(), missing_.end(), 1);
    while (!missing_.empty()) {
        const StoreAnswer stands = co_await ask::read(outcome_key());
        if (stands.is_there()) co_return outcome_in(stands.value());
        const Outcome trouble = co_await take_cards();
        if (trouble.kind != Outcome::none) co_return co_await settle(trouble);
        if (missing_.empty()) break;
        if (deadline_.expired()) co_return co_await give_up();
        const Outcome absent = checked();
        if (absent.kind != Outcome::none) co_return co_await settle(absent);
        if (!terms_.members.empty()) co_await look_for_circle();
    }
    co_return co_await settle(conclude());
}

// All have come: what they get.
Meeting::Outcome Meeting::conclude() const {
    TUTTI_ASSERT(missing_.empty());
    try {
        Outcome all = outcome(Outcome::met, 0, "");
        all.text.clear();
        all.cards = caller_.conclude ? std::vector{caller_.conclude(cards_)} : cards_;
        return all;
    } catch (const Disagreement& disagreement) {
        return outcome(Outcome::disagrees, disagreement.rank, disagreement.why);
    }
}

// Waits for the missing, for a while. Returns why they cannot meet, if that shows.
StoreTalk<Meeting::Outcome> Meeting::take_cards() {
    std::vector<std::string> keys;
    for (const int rank : missing_) keys.push_back(card_key(rank));
    const StoreAnswer come = co_await ask::await(keys, patience(long_look));
    std::vector<int> still_missing;
    const bool are_many = !come.is_there() && keys.size() > cards_at_once;
    const bool takes_single = !are_many || next_single_cards_.expired() || deadline_.expired();
    if (are_many && takes_single) next_single_cards_ = Deadline::after(terms_.size * time_for_a_card);
    StoreAnswer part;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (are_many && i % cards_at_once == 0) {
            part = {};
            const std::span<const std::string> rest = std::span(keys).subspan(i);
            const auto some = rest.first(std::min(rest.size(), cards_at_once));
            const std::vector<std::string> wanted(some.begin(), some.end());
            const StoreAnswer complete = co_await ask::check(wanted);
            if (complete.is_there()) part = co_await ask::await(wanted, short_look);
        }
        std::string card;
        if (come.is_there()) {
            card = come.values[i];
        } else if (part.is_there()) {
            card = part.values[i % cards_at_once];
        } else if (takes_single) {
            const StoreAnswer one = co_await ask::read(keys[i]);
            if (one.is_there()) card = one.value();
        }
        const int rank = missing_[i];
        if (card.empty()) {
            still_missing.push_back(rank);
            continue;
        }
        if (is_no_card(card)) co_return co_await hear_why(rank);
        Outcome trouble = take(rank, card);
        if (trouble.kind != Outcome::none) co_return trouble;
    }
    missing_ = std::move(still_missing);
    co_return dead_one();
}

// Nothing: it is as expected.
Meeting::Outcome Meeting::take(int rank, const std::string& bytes) {
    TUTTI_ASSERT(rank > 0 && rank < terms_.size);
    const int number = number_of(rank);
    const auto disagree = [&](const std::string& why) { return outcome(Outcome::disagrees, rank, why); };
    if (const auto version = other_version(bytes, number)) return disagree(*version);
    auto card = decode_record<MeetingCard>(bytes, terms_.operation, fmt::format("the card of rank {}", number));
    if (card.size != terms_.size) return disagree(other_size(rank, card.size, terms_.size));
    if (card.digest != terms_.digest)
        return disagree(fmt::format("rank {} {}, rank {} {}: expected the same on all ranks", number, card.words,
                                    number_of(0), terms_.words));
    cards_[static_cast<std::size_t>(rank)] = std::move(card.payload);
    processes_[static_cast<std::size_t>(rank)] = std::move(card.process);
    return {};
}

// The end of a process that has come and ended before the outcome: the store may have no wills, or be late with this
// one. Nothing: all live, as far as this process can tell.
Meeting::Outcome Meeting::dead_one() const {
    const auto dead = std::ranges::find_if(processes_, [this](const MeetingProcess& one) { return is_dead(one); });
    if (dead == processes_.end()) return {};
    const auto rank = static_cast<int>(dead - processes_.begin());
    return outcome(Outcome::ended, rank, sentences_.ended(number_of(rank), *dead));
}

// Nothing: the caller sees no reason to end the attempt.
Meeting::Outcome Meeting::checked() const {
    try {
        if (terms_.check) terms_.check();
        return {};
    } catch (const Absent& absent) {
        TUTTI_ASSERT(absent.rank >= 0 && absent.rank < terms_.size);
        return outcome(Outcome::ended, absent.rank, absent.why);
    }
}

// The others.
StoreTalk<Meeting::Outcome> Meeting::await_outcome() {
    TUTTI_ASSERT(terms_.rank > 0 && entered_);
    const Milliseconds grace = time_for_rank_0 + std::min(Milliseconds(terms_.rank), most_time_for_lower_ranks);
    for (;;) {
        const bool is_late = deadline_.expired();
        const Milliseconds wait = is_late ? grace : patience(left());
        const StoreAnswer stands = co_await ask::await(outcome_key(), wait);
        if (stands.is_there()) co_return outcome_in(stands.value());
        if (is_late) co_return co_await give_up();
        const Outcome absent = checked();
        if (absent.kind != Outcome::none) co_return co_await settle(absent);
        if (!terms_.members.empty()) co_await look_for_circle();
    }
}

StoreTalk<Meeting::Outcome> Meeting::give_up() {
    std::vector<int> missing = missing_;  // rank 0 has just looked
    for (int rank = 0; terms_.rank != 0 && rank < terms_.size; ++rank) {
        const StoreAnswer card = co_await ask::read(card_key(rank));
        if (!card.is_there()) missing.push_back(rank);
        if ((rank + 1) % cards_between_looks != 0) continue;
        const StoreAnswer stands = co_await ask::read(outcome_key());
        if (stands.is_there()) co_return outcome_in(stands.value());
    }
    const int first = missing.empty() ? 0 : missing.front();
    for (int& rank : missing) rank = number_of(rank);
    const Outcome late =
        outcome(Outcome::late, first,
                sentences_.late({number_of(terms_.rank), terms_.size, number_of(0), missing, process_before_}));
    co_return co_await settle(late);
}

// ---- Ranks that cannot come

bool Meeting::may_leave_busy(const std::exception& error) {
    const auto* const known = dynamic_cast<const DistError*>(&error);
    if (known == nullptr) return false;
    const ErrorCode code = known->code();
    return code == ErrorCode::interrupted || code == ErrorCode::aborted || code == ErrorCode::timeout;
}

StoreTalk<bool> Meeting::say_failed(std::string why, bool may_be_busy) {
    is_ending_ = true;
    try {
        for (int attempts = 0; attempts < most_attempts; ++attempts) {
            co_await find();
            Outcome mine = outcome(Outcome::failed, terms_.rank, sentences_.failed(number_of(terms_.rank), why));
            if (!entered_) mine.size = 0;  // it may be what is wrong
            const std::string text = encode_record(Object(mine));
            if (may_be_busy) {
                const StoreAnswer will = co_await ask::will(outcome_key(), text);
                if (!will.is_there()) co_return true;
            }
            const std::string mark = fmt::format("-{}", surroundings_.random());
            bool is_first = false;
            if (!entered_) {
                const StoreAnswer there = co_await ask::compare_set(card_key(terms_.rank), "", mark);
                is_first = there.value() == mark;
            }
            const Outcome stands = co_await settle(mine);
            const bool is_new = is_news(stands);
            if (entered_ || stands.nonce == mine.nonce) co_return true;
            if (is_first && is_new && stands.kind != Outcome::met) co_return true;  // this rank fails as the others do
            if (terms_.once) break;
            co_await next();
        }
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("{}: rank {} cannot say that it does not come: {}", terms_.operation, number_of(terms_.rank),
                    silent.what());
    }
    co_return false;
}

}  // namespace tutti::rendezvous
