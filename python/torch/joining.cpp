#include "joining.hpp"

#include "signals.hpp"

#include <c10/util/StringUtil.h>

#include <tutti/error.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

namespace tutti::torch {
namespace {

constexpr Milliseconds first_look{300}, between_looks{200};
constexpr Milliseconds request_patience{300};
constexpr Milliseconds shortest_pause{1}, longest_pause{10};
constexpr std::size_t looked_at_once = 64;
constexpr std::size_t longest_list = 48;
constexpr const char* state_key = "state";

// Equal on all hosts, whatever their libraries.
std::string hash_of(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char one : text) hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3;
    std::ostringstream result;
    result << std::hex << hash;
    return result.str();
}

std::string list_of(const std::vector<std::uint64_t>& ranks) {
    std::string text;
    for (const std::uint64_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return "[" + text + "]";
}

bool is_everyone(const std::vector<std::uint64_t>& members) {
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i] != i) return false;
    }
    return true;
}

// "3 ranks" or "ranks [4, 5]".
std::string description(const Joining::Facts& facts) {
    return is_everyone(facts.members) ? std::to_string(facts.size) + " ranks" : "ranks " + list_of(facts.members);
}

Joining::Facts checked(Joining::Facts facts) {
    if (facts.members.size() == static_cast<std::size_t>(facts.size)) return facts;
    facts.members.resize(static_cast<std::size_t>(facts.size));
    std::iota(facts.members.begin(), facts.members.end(), 0);
    return facts;
}

std::string place_of(const std::string& says) {
    return "tutti/" + (says.size() <= longest_list ? says : says.substr(0, longest_list) + "… " + hash_of(says));
}

/// Rank 0 has begun another attempt, which this rank now joins.
class Superseded : public Aborted {
 public:
    using Aborted::Aborted;
};

// The attempts and notes that this process has already taken part in or read.
class Once {
 public:
    bool insert(const std::string& what) {
        const std::lock_guard lock(mutex_);
        return all_.insert(what).second;
    }
    bool contains(const std::string& what) {
        const std::lock_guard lock(mutex_);
        return all_.contains(what);
    }

 private:
    std::mutex mutex_;
    std::set<std::string> all_;
};
Once& once() {
    static Once& instance = *new Once;
    return instance;
}
std::atomic<bool>& has_left_notes() {
    static std::atomic<bool> any{false};
    return any;
}

// A note on the board: "BEAT waits WHAT", which changes with every beat, or "NONCE failed WHY".
struct Note {
    explicit Note(const std::string& text) {
        std::istringstream words(text);
        words >> number >> word;
        std::getline(words >> std::ws, rest, '\0');
    }
    std::string number, word, rest;
};

void put_note(Store& board, std::uint64_t own, int rank, const std::string& why) {
    const std::string nonce = new_nonce();
    once().insert(nonce + "/" + std::to_string(rank));
    has_left_notes() = true;
    board.set(std::to_string(own), nonce + " failed " + why);
}

}  // namespace

std::string new_nonce() {
    std::random_device random;
    std::ostringstream text;
    text << std::hex << random() << random();
    return text.str();
}

Joining::State::State(std::string whole) : text(std::move(whole)) {
    std::istringstream words(text);
    if (!(words >> attempt >> word >> nonce)) attempt = 0;
    std::getline(words >> std::ws, reason, '\0');
}

Joining::Joining(std::shared_ptr<JoiningStore> store, Facts facts)
    : store_(std::move(store)),
      facts_(checked(std::move(facts))),
      own_(facts_.members[static_cast<std::size_t>(facts_.rank)]),
      says_(description(facts_)),
      place_(PrefixStore(place_of(says_), Store(store_, facts_.limit))),
      aside_(PrefixStore(place_of(says_), Store(store_->beside(), request_patience))),
      board_(PrefixStore("tutti/board", Store(store_->beside(), request_patience))),
      began_(Clock::now()),
      next_look_(began_ + first_look) {}

void Joining::refuse(const std::shared_ptr<JoiningStore>& store, const Facts& facts, const std::string& why) noexcept {
    try {
        const auto index = static_cast<std::size_t>(facts.rank);
        const std::uint64_t own = facts.members.size() > index ? facts.members[index] : index;
        Store board = PrefixStore("tutti/board", Store(store->beside(), request_patience));
        put_note(board, own, facts.rank, "rank " + std::to_string(own) + ": " + why);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they wait until their time is over
    }
}

ProcessGroup Joining::join(const std::function<ProcessGroup(const Store&)>& make) {
    store_->watch(this);
    try {
        if (has_left_notes()) board_.set(std::to_string(own_), "");
        for (;;) {
            try {
                facts_.rank == 0 ? open() : follow();
                ProcessGroup group = make(PrefixStore(std::to_string(state_.attempt), place_));
                if (facts_.rank == 0) conclude(group);
                store_->joined();
                return group;
            } catch (const Superseded&) {
                if (left() == Milliseconds::zero()) throw;
            }
        }
    } catch (const DistError& error) {
        const bool late = error.code() == ErrorCode::timeout;
        tell_others(error.what(), late);
        store_->watch(nullptr);
        if (!late) throw;
        const std::string limit = std::to_string(facts_.limit.count());
        throw DistStoreError(std::string(error.what()) + " (timeout after " + limit + "ms)", error.context(),
                             ErrorCode::timeout);
    } catch (const std::exception& error) {
        tell_others(error.what(), false);
        store_->watch(nullptr);
        throw;
    }
}

std::string Joining::own_name() const {
    return "rank " + std::to_string(own_);
}
std::string Joining::title() const {
    const std::string group = facts_.name.empty() ? "" : " (group \"" + facts_.name + "\")";
    return "init of " + says_ + group;
}
std::string Joining::failure_of(const State& state) const {
    return title() + ": " + state.reason + (state.word == "late" ? " (timed out)" : "");
}
std::string Joining::next_text(std::uint64_t attempt, const char* word, const std::string& why) const {
    const std::string begin = c10::str(attempt, " ", word, " ", new_nonce());
    if (why.empty()) return begin;
    const std::string name = own_name() + ": ";
    return c10::str(begin, " ", why.starts_with(name) ? "" : name, why);
}

// Rank 0 begins an attempt, which ends an earlier one of any state.
void Joining::open() {
    State last;
    for (;;) {
        const State mine(next_text(last.attempt + 1, "open"));
        const std::string found = place_.compare_set(state_key, last.text, mine.text);
        if (found == mine.text) {
            state_ = mine;
            return;
        }
        last = State(found);
    }
}

// The others join the newest attempt, as long as it is open, and each at most once.
void Joining::follow() {
    state_ = State();
    State state;
    try {
        for (Milliseconds pause = shortest_pause;; pause = std::min(2 * pause, longest_pause)) {
            state = State(place_.get(state_key, left()));
            const std::string visit = state.nonce + "/" + std::to_string(facts_.rank);
            if (state.word == "open" && once().insert(visit)) {
                state_ = std::move(state);
                return;
            }
            if (state.word == "failed" && once().insert(visit)) throw DistBackendError(failure_of(state));
            if (check_signals()) throw Aborted(title() + ": interrupted by a signal", {}, ErrorCode::interrupted);
            look();
            if (left() == Milliseconds::zero()) throw DistStoreError("", {}, ErrorCode::timeout);
            std::this_thread::sleep_for(pause);
        }
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        const std::string last = state.reason.empty() ? "" : "; the last attempt ended so: " + state.reason;
        throw DistStoreError(
            title() + ": rank " + std::to_string(facts_.members.front()) + " did not answer; is it missing?" + last,
            {.operation = "init", .rank = facts_.rank, .peer = 0}, ErrorCode::timeout);
    }
}

// All ranks have joined, unless one of them gave up just now: then the attempt fails for all.
void Joining::conclude(ProcessGroup& group) {
    const std::string joined = next_text(state_.attempt, "joined");
    const State found(place_.compare_set(state_key, state_.text, joined));
    if (found.text == joined) return;
    const std::string why =
        found.attempt == state_.attempt ? failure_of(found) : title() + ": another process has joined as rank 0";
    group.abort(why);
    throw DistBackendError(why);
}

void Joining::tell_others(const std::string& error, bool late) noexcept {
    try {
        const std::string beginning = title() + ": ";
        const std::string why = error.starts_with(beginning) ? error.substr(beginning.size()) : error;
        if (state_.word == "open") {
            const State over(next_text(state_.attempt, late ? "late" : "failed", why));
            once().insert(over.nonce + "/" + std::to_string(facts_.rank));
            aside_.compare_set(state_key, state_.text, over.text);
        }
        if (disagrees_) put_note(board_, own_, facts_.rank, why);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they wait until their time is over
    }
}

Milliseconds Joining::left() const {
    return std::max(Milliseconds::zero(), std::chrono::ceil<Milliseconds>(began_ + facts_.limit - Clock::now()));
}

void Joining::look() {
    if (Clock::now() < next_look_) return;
    next_look_ = Clock::now() + between_looks;
    std::optional<std::string> why;
    try {
        why = look_at_state();
        if (!why) why = look_at_board();
    } catch (const DistStoreError&) {  // NOLINT(bugprone-empty-catch): it looks again
    }
    if (why) throw DistBackendError(*why, {.operation = "init", .rank = facts_.rank});
}

std::optional<std::string> Joining::look_at_state() {
    if (state_.word != "open" || !aside_.check({state_key})) return std::nullopt;
    const State now(aside_.get(state_key));
    if (now.text == state_.text || now.word == "joined") return std::nullopt;
    if (now.attempt == state_.attempt) {
        once().insert(now.nonce + "/" + std::to_string(facts_.rank));
        return failure_of(now);
    }
    if (facts_.rank == 0) return title() + ": another process has joined as rank 0";
    throw Superseded(title() + ": rank 0 has begun again");
}

// Rank 0 looks at all other ranks, in turn; they look at rank 0.
std::vector<std::uint64_t> Joining::next_to_look_at() {
    if (facts_.rank != 0) return {facts_.members.front()};
    std::vector<std::uint64_t> others(facts_.members.begin() + 1, facts_.members.end());
    if (others.size() <= looked_at_once) return others;
    std::ranges::rotate(others, others.begin() + static_cast<std::ptrdiff_t>(window_));
    window_ = (window_ + looked_at_once) % others.size();
    others.resize(looked_at_once);
    return others;
}

std::optional<std::string> Joining::look_at_board() {
    board_.set(std::to_string(own_), std::to_string(++beat_) + " waits " + says_);
    for (const std::uint64_t other : next_to_look_at()) {
        if (auto why = read_note(other)) return why;
    }
    return std::nullopt;
}

std::optional<std::string> Joining::read_note(std::uint64_t other) {
    const std::string key = std::to_string(other);
    if (!board_.check({key})) return std::nullopt;
    const std::string text = board_.get(key);
    const Note note(text);
    if (note.word == "failed" && once().insert(note.number + "/" + std::to_string(facts_.rank)))
        return title() + ": " + note.rest;
    if (note.word != "waits" || note.rest == says_) return std::nullopt;
    // Only a living rank changes its note.
    const std::string before = std::exchange(seen_[other], text);
    if (before.empty() || before == text) return std::nullopt;
    disagrees_ = true;
    const bool first = own_ < other;
    return c10::str(title(), ": the ranks disagree: rank ", first ? other : own_, " says ", first ? note.rest : says_,
                    ", rank ", first ? own_ : other, " says ", first ? says_ : note.rest,
                    "; expected the same on all of them");
}

bool Joining::give_up() {
    if (facts_.rank == 0 || state_.word != "open") return false;
    const std::string why = "the others did not come in " + std::to_string(facts_.limit.count()) + " ms";
    const State over(next_text(state_.attempt, "late", why));
    const State found(aside_.compare_set(state_key, state_.text, over.text));
    return found.attempt > state_.attempt || found.word == "joined";
}

}  // namespace tutti::torch
