#include "simulation/meetings_world.hpp"

#include "simulation/chance.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;
using rendezvous::Meeting;
using rendezvous::StoreRequest;

/// What a rank may take beyond its time: it waits for rank 0's answer or another's words, and its requests take time.
constexpr Milliseconds most_beyond = 1500ms;
constexpr int most_requests_beyond = 80;
constexpr Milliseconds own_time = 4000ms, time_for_a_will = 50ms;

// Several cards in one, for worlds whose rank 0 makes one of all.
std::string joined(const std::vector<std::string>& cards) {
    std::string all;
    for (const std::string& card : cards) all += card + '\n';
    return all;
}
std::vector<std::string> parts_of(const std::string& all) {
    std::vector<std::string> cards;
    for (std::size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1)
        cards.push_back(all.substr(begin, end - begin));
    return cards;
}

}  // namespace

struct MeetingsWorld::Process {
    std::size_t number = 0;
    std::string job;
    std::vector<Call> calls;
    std::size_t call = 0;
    bool is_alive = true, is_torn = false;
    Instant died{};
    std::string card;
    std::set<std::uint64_t> known;  // failures
    std::unique_ptr<Meeting> meeting;
    std::optional<rendezvous::StoreTalk<Met>> talk;
    std::optional<rendezvous::StoreTalk<bool>> refusal;
    rendezvous::TalkLine line;
    std::uint64_t serial = 0;  // of its request that is under way
    bool waits = false;        // in the store
    int requests = 0, broken_request = -1;
    Instant call_began{};
    std::map<std::string, std::string> wills;
};

MeetingsWorld::MeetingsWorld(std::uint64_t seed) : chance_(seed), now_(Instant(1000h)), begin_(now_) {
    Clock::simulate(&now_);
    trouble_ = static_cast<Trouble>(below(troubles));
    slowest_ = below(4) == 0 ? 150ms : 2ms;
    once_ = below(3) == 0;
    size_ = static_cast<int>(2 + below(4));
    has_wills_ = below(4) != 0;
    concludes_ = trouble_ == Trouble::renumbered || trouble_ == Trouble::unfit || below(2) == 0;
    if (trouble_ == Trouble::successor || trouble_ == Trouble::renumbered || trouble_ == Trouble::smaller_job)
        once_ = false;
    if (trouble_ == Trouble::renumbered || trouble_ == Trouble::smaller_job) size_ = std::max(size_, 3);
    rounds_ = once_ ? 1 : static_cast<int>(1 + below(3));
    if (trouble_ == Trouble::successor || trouble_ == Trouble::renumbered) rounds_ = std::max(rounds_, 2);
    if (trouble_ == Trouble::smaller_job) rounds_ = 1;
    trouble_ == Trouble::circle ? make_circle() : make_one_meeting();
}

MeetingsWorld::~MeetingsWorld() {
    Clock::simulate(nullptr);
}

std::uint64_t MeetingsWorld::below(std::uint64_t n) {
    return simulation::below(chance_, n);
}

Milliseconds MeetingsWorld::latency() {
    return Milliseconds(below(static_cast<std::uint64_t>(slowest_.count()) + 1));
}

void MeetingsWorld::at(Milliseconds later, Event event) {
    events_.add(now_ + later, event);
}

MeetingsWorld::Process& MeetingsWorld::add(const std::string& job, const MeetingTerms& terms, int rounds,
                                           Milliseconds pause) {
    auto process = std::make_unique<Process>();
    process->number = processes_.size();
    process->job = job;
    for (int round = 0; round < rounds; ++round)
        process->calls.push_back({terms, round == 0 ? pause : Milliseconds(below(20))});
    at(pause, {Step::call, process->number});
    processes_.push_back(std::move(process));
    return *processes_.back();
}

void MeetingsWorld::make_one_meeting() {
    MeetingTerms terms{.name = "meeting", .size = size_, .timeout = own_time, .digest = "one", .once = once_};
    if (below(2) == 0) {
        terms.members.resize(static_cast<std::size_t>(size_));
        std::iota(terms.members.begin(), terms.members.end(), 0);
    }
    const auto odd = static_cast<int>(below(static_cast<std::uint64_t>(size_)));  // the one with the trouble
    for (int rank = 0; rank < size_; ++rank) {
        const bool is_odd = rank == odd;
        if (is_odd && (trouble_ == Trouble::absent || trouble_ == Trouble::smaller_job)) continue;
        terms.rank = rank;
        MeetingTerms own = terms;
        if (is_odd && trouble_ == Trouble::disagreement) own.digest = own.words = "another";
        if (is_odd && trouble_ == Trouble::other_size) own.size = size_ + 1, own.members.clear();
        Milliseconds pause(below(300));
        if (is_odd && trouble_ == Trouble::late) pause += own_time * 2;
        Process& process = add("one", own, rounds_, pause);
        if (!is_odd) continue;
        if (trouble_ == Trouble::refusal) process.calls.front().cannot_come = true;
        if (trouble_ == Trouble::renumbered) process.calls.front().terms.rank = (rank + 1) % size_;
        if (trouble_ == Trouble::broken_store || trouble_ == Trouble::torn)
            process.broken_request = static_cast<int>(below(5));
        const Milliseconds end(below(600));
        if (trouble_ == Trouble::death || trouble_ == Trouble::successor) at(end, {Step::die, process.number});
        if (trouble_ == Trouble::successor) add("one", own, rounds_, end + Milliseconds(1 + below(600)));
    }
    if (trouble_ == Trouble::smaller_job) {  // once the others have given up
        terms.size = size_ - 1;
        if (!terms.members.empty()) terms.members.pop_back();
        for (int rank = 0; rank < terms.size; ++rank) {
            terms.rank = rank;
            add("two", terms, 1, own_time * 2 + Milliseconds(below(300)));
        }
    }
    if (trouble_ == Trouble::twice) {
        terms.rank = odd;
        add("one", terms, 1, Milliseconds(below(300)));
    }
    if (trouble_ == Trouble::two_jobs) {
        terms.digest = terms.words = "two";
        for (int rank = 0; rank < size_; ++rank) {
            terms.rank = rank;
            add("two", terms, rounds_, Milliseconds(below(300)));
        }
    }
}

// Rank r makes the pair of r and r + 1 before that of r - 1 and r.
void MeetingsWorld::make_circle() {
    size_ = static_cast<int>(3 + below(3));
    const auto pair_of = [this](int first) {
        std::vector<int> pair{first, (first + 1) % size_};
        std::ranges::sort(pair);
        return pair;
    };
    for (int rank = 0; rank < size_; ++rank) {
        MeetingTerms terms{.place = {}, .size = 2, .timeout = own_time, .once = true};
        // A look takes up to 31 requests, one after the other, and may come to nothing while notes are still written.
        if (slowest_ > 2ms) terms.timeout = 8 * own_time;
        terms.members = pair_of(rank);
        terms.name = std::to_string(terms.members[0]) + "," + std::to_string(terms.members[1]);
        terms.digest = terms.words = "makes " + terms.name;
        terms.rank = terms.members[0] == rank ? 0 : 1;
        add(terms.name, terms, 1, Milliseconds(below(300)));
    }
}

std::string MeetingsWorld::run() {
    std::uint64_t steps = 0;
    while (!events_.empty() && wrong_.empty()) {
        if (++steps > 100'000) return "the world does not come to an end";
        handle(events_.take(now_));
    }
    if (!wrong_.empty()) return wrong_;
    for (const auto& process : processes_) {
        if (process->is_alive && process->call != process->calls.size()) return "a rank waits for ever";
        const MeetingTerms& terms = process->calls.front().terms;
        if (!process->is_alive || terms.members.empty() || process->broken_request >= 0) continue;
        const int number = terms.members[static_cast<std::size_t>(terms.rank)];
        const auto note = keys_.find("board/" + std::to_string(number));
        // One with which a process before it died stays; nobody heeds it, as the attempt that it is about is over.
        if (note != keys_.end() && !note->second.empty() && writer_.at(note->first) == process->number)
            return "a rank that has left still says that it waits";
    }
    return check_results();
}

void MeetingsWorld::handle(const Event& event) {
    Process& process = *processes_[event.process];
    if (event.step == Step::will) {
        for (const auto& [key, value] : std::exchange(process.wills, {})) {
            if (!keys_.contains(key)) write(key, value);
        }
    }
    if (!process.is_alive) return;
    switch (event.step) {
        case Step::call: return begin_call(process);
        case Step::arrive: return event.serial == process.serial ? arrive(process) : void();
        case Step::answer: return event.serial == process.serial ? go_on(process) : void();
        case Step::out_of_time:
            if (event.serial == process.serial && process.waits) answer(process, {});
            return;
        case Step::die:
            process.is_alive = false;
            process.died = now_;
            if (process.meeting &&
                keys_.contains(process.meeting->id() + "/card/" + std::to_string(process.calls.front().terms.rank)))
                left_by_dead_ = process.meeting->id();
            process.waits = false;
            return at(time_for_a_will, {Step::will, process.number});
        case Step::will: return;
    }
}

void MeetingsWorld::begin_call(Process& process) {
    if (process.call == process.calls.size()) return;
    Call& call = process.calls[process.call];
    process.card = process.job + "/" + std::to_string(call.terms.rank) + "/" + std::to_string(process.number) + "/" +
                   std::to_string(process.call);
    process.call_began = now_;
    process.is_torn = false;
    Meeting::Caller caller{.card = [&process] { return process.card; }};
    if (concludes_) {
        caller.conclude = [this](const std::vector<std::string>& cards) {
            const auto unfit =
                std::ranges::find_if(cards, [](const std::string& card) { return card.ends_with("/0"); });
            if (trouble_ == Trouble::unfit && unfit != cards.end())
                throw Meeting::Disagreement{static_cast<int>(unfit - cards.begin()), "it is unfit"};
            return joined(cards);
        };
    }
    process.meeting = std::make_unique<Meeting>(
        call.terms, std::move(caller),
        Meeting::Surroundings{
            .own = {"here", static_cast<int>(process.number) + 1, 0, "process " + std::to_string(process.number)},
            .has_ended =
                [this](const rendezvous::MeetingProcess& other) {
                    return !processes_[static_cast<std::size_t>(other.number) - 1]->is_alive;
                },
            .random = [this] { return chance_(); },
            .is_news = [&process](std::uint64_t nonce) { return process.known.insert(nonce).second; }});
    if (call.cannot_come) {
        process.refusal.emplace(process.meeting->say_failed("it has no memory", false));
        process.refusal->start(process.line);
    } else {
        process.talk.emplace(process.meeting->run());
        process.talk->start(process.line);
    }
    ask(process);
}

// Its request is on the way to the store, or its call is over.
void MeetingsWorld::ask(Process& process) {
    if (process.talk ? process.talk->is_over() : process.refusal->is_over()) return end_call(process);
    ++process.serial;
    at(latency(), {Step::arrive, process.number, process.serial});
}

void MeetingsWorld::arrive(Process& process) {
    const StoreRequest& request = process.line.request;
    const std::string& key = request.keys.front();
    if (process.requests++ == process.broken_request) {
        process.is_torn = trouble_ == Trouble::torn;
        process.line.error = process.is_torn ? std::make_exception_ptr(Aborted("torn", {}, ErrorCode::interrupted))
                                             : std::make_exception_ptr(DistStoreError("the store has no room"));
        return at(latency(), {Step::answer, process.number, process.serial});
    }
    const bool may_be_asked =
        has_wills_ || request.kind == StoreRequest::will || key.starts_with("board/") || key.ends_with("/newest");
    if (process.is_torn && !may_be_asked) wrong_ = "a store is asked that may be busy";
    switch (request.kind) {
        case StoreRequest::read:
        case StoreRequest::check:
        case StoreRequest::write:
        case StoreRequest::compare_set:
            if (request.kind == StoreRequest::write) writer_[key] = process.number;
            return answer(process, answer_of(keys_, request, key,
                                             [this](const auto& at, const auto& value) { write(at, value); }));
        case StoreRequest::will:
            if (!has_wills_) return answer(process, {});
            process.wills[key] = request.value;
            return answer(process, {""});
        case StoreRequest::add:
        case StoreRequest::append:
        case StoreRequest::remove: wrong_ = "a meeting counts, appends and removes nothing"; return;
        case StoreRequest::await:
        case StoreRequest::await_one: break;
    }
    process.waits = true;
    if (!try_to_answer_wait(process)) at(request.patience, {Step::out_of_time, process.number, process.serial});
}

bool MeetingsWorld::try_to_answer_wait(Process& process) {
    auto values = values_of(keys_, process.line.request.keys);
    if (!values) return false;
    answer(process, std::move(*values));
    return true;
}

void MeetingsWorld::write(const std::string& key, const std::string& value) {
    keys_[key] = value;
    written_.try_emplace(key, now_);
    for (const auto& other : processes_) {
        if (other->is_alive && other->waits) try_to_answer_wait(*other);
    }
}

void MeetingsWorld::answer(Process& process, std::vector<std::string> values) {
    process.waits = false;
    process.line.answer.values = std::move(values);
    at(latency(), {Step::answer, process.number, process.serial});
}

void MeetingsWorld::go_on(Process& process) {
    rendezvous::StoreTalk<Met>::go_on(process.line);
    ask(process);
}

void MeetingsWorld::end_call(Process& process) {
    const MeetingTerms& terms = process.calls[process.call].terms;
    Result result{.id = process.meeting->id(),
                  .error = {},
                  .card = process.card,
                  .job = process.job,
                  .rank = terms.rank,
                  .size = terms.size,
                  .round = static_cast<int>(process.call)};
    result.process = process.number;
    result.is_refusal = process.refusal.has_value();
    if (process.talk) {
        try {
            result.met = process.talk->result();
            if (concludes_) result.met.cards = parts_of(result.met.cards.at(0));
            ++met_;
        } catch (const DistError& error) {
            result.kind = static_cast<int>(error.code());
            result.error = error.what();
        }
    }
    const auto took = std::chrono::ceil<Milliseconds>(now_ - process.call_began);
    if (took > terms.timeout + most_beyond + most_requests_beyond * slowest_)
        wrong_ = "rank " + std::to_string(terms.rank) + " has waited for " + std::to_string(took.count()) + " ms";
    results_.push_back(std::move(result));
    process.talk.reset();
    process.refusal.reset();
    ++process.call;
    if (process.call < process.calls.size()) at(process.calls[process.call].pause, {Step::call, process.number});
}

std::string MeetingsWorld::check_results() const {
    for (const Result& one : results_) {
        if (one.kind != 0 || one.is_refusal) continue;
        const std::string who = "rank " + std::to_string(one.rank) + " of job " + one.job;
        if (std::cmp_not_equal(one.met.cards.size(), one.size)) return who + " has got another number of cards";
        if (one.met.cards[static_cast<std::size_t>(one.rank)] != one.card) return who + " has met without being there";
        for (int rank = 0; rank < one.size; ++rank) {
            const std::string& card = one.met.cards[static_cast<std::size_t>(rank)];
            if (!card.starts_with(one.job + "/" + std::to_string(rank) + "/")) return who + " has got the card " + card;
        }
    }
    for (const auto check : {&MeetingsWorld::check_alike, &MeetingsWorld::check_news, &MeetingsWorld::check_dead}) {
        if (std::string wrong = (this->*check)(); !wrong.empty()) return wrong;
    }
    return check_trouble();
}

// All ranks of an attempt have the same cards, or the same sentence; but those to whom only their own store, or their
// own call, has happened.
std::string MeetingsWorld::check_alike() const {
    std::map<std::string, const Result*> firsts;
    for (const Result& one : results_) {
        const bool is_own = one.is_refusal || one.kind == static_cast<int>(ErrorCode::store) ||
                            one.kind == static_cast<int>(ErrorCode::interrupted) ||
                            one.error.find("has been at the meeting") != std::string::npos;
        if (is_own) continue;
        const auto [first, is_new] = firsts.try_emplace(one.id, &one);
        if (is_new) continue;
        const Result& other = *first->second;
        if (one.kind != other.kind || one.error != other.error || one.met.cards != other.met.cards ||
            one.met.attempt != other.met.attempt)
            return "attempt " + one.id + ": \"" + one.error + "\" and \"" + other.error + "\"";
    }
    return {};
}

// Nobody hears of a failure twice, of one of a world of another size, or of the end of the process in whose place it
// is.
std::string MeetingsWorld::check_news() const {
    std::set<std::pair<std::size_t, std::string>> told;
    for (const Result& one : results_) {
        const bool is_own =
            one.kind == static_cast<int>(ErrorCode::store) || one.kind == static_cast<int>(ErrorCode::interrupted);
        if (one.kind == 0 || one.is_refusal || is_own) continue;
        if (!told.emplace(one.process, one.id).second) return "a process hears twice of " + one.id + ": " + one.error;
        const std::string own_end = "rank " + std::to_string(one.rank) + " is gone";
        if (!once_ && one.error.find(own_end) != std::string::npos) return "a rank hears of its own end: " + one.error;
        if (trouble_ == Trouble::smaller_job && one.job == "two") return "a failure of others is told: " + one.error;
    }
    return {};
}

// Nobody meets one who has died before rank 0 took a last look.
std::string MeetingsWorld::check_dead() const {
    for (const Result& one : results_) {
        for (const std::string& card : one.met.cards) {
            const std::string rest = card.substr(card.find('/', card.find('/') + 1) + 1);
            const Process& process = *processes_.at(std::stoul(rest));
            if (!process.is_alive && process.died + slowest_ < written_.at(one.id + "/outcome"))
                return "ranks have met a dead one, which had the card " + card;
        }
    }
    return {};
}

// What the ranks may be told, after what has happened.
std::string MeetingsWorld::check_trouble() const {
    using enum ErrorCode;
    const std::map<Trouble, std::set<ErrorCode>> allowed{
        {Trouble::none, {}},
        {Trouble::late, {timeout}},
        {Trouble::absent, {timeout}},
        {Trouble::death, {peer_lost}},
        {Trouble::refusal, {peer_lost}},
        {Trouble::disagreement, {invalid_argument}},
        {Trouble::other_size, {invalid_argument, timeout}},
        {Trouble::twice, {invalid_argument, timeout}},
        {Trouble::two_jobs, {invalid_argument, timeout}},
        {Trouble::broken_store, {peer_lost, store}},
        {Trouble::circle, {invalid_argument}},
        {Trouble::successor, {peer_lost}},
        {Trouble::renumbered, {invalid_argument}},
        {Trouble::smaller_job, {timeout}},
        {Trouble::unfit, {invalid_argument}},
        // Without wills, its own card keeps it out when it comes again.
        {Trouble::torn, {peer_lost, interrupted, timeout, invalid_argument}}};
    std::set<ErrorCode> seen;
    for (const Result& one : results_) {
        if (one.kind == 0 || one.is_refusal) continue;
        const auto code = static_cast<ErrorCode>(one.kind);
        seen.insert(code);
        // A rank that has tried in vain comes once less than the others need, and one that has died not at all.
        const bool may_lack_one = (rounds_ > 1 && trouble_ != Trouble::none) || trouble_ == Trouble::death;
        if (!allowed.at(trouble_).contains(code) && !(may_lack_one && code == timeout))
            return "nobody expected this: " + one.error;
    }
    if (trouble_ == Trouble::circle && std::ranges::any_of(results_, [](const Result& one) { return one.kind == 0; }))
        return "a circle has met";
    // Whoever comes later may come to the others' next attempt.
    const auto first = std::ranges::find_if(results_, [](const Result& one) { return !one.is_refusal; });
    if (first == results_.end()) return {};
    if (trouble_ == Trouble::absent && first->kind == 0) return "ranks have met without one";
    if (trouble_ == Trouble::unfit && first->error.find("unfit") == std::string::npos)
        return "nobody says why a card is refused: " + first->error;
    if (trouble_ == Trouble::disagreement && first->error.find("another") == std::string::npos)
        return "nobody names the disagreement: " + first->error;
    // Without wills it is rank 0 that sees it.
    const bool sees_death = has_wills_ || std::ranges::any_of(results_, [this](const Result& one) {
                                return one.id == left_by_dead_ && one.rank == 0;
                            });
    const auto refusal = std::ranges::find_if(results_, [](const Result& one) { return one.is_refusal; });
    for (const Result& one : results_) {
        if (refusal != results_.end() && one.id == refusal->id && !one.is_refusal &&
            one.error.find("it has no memory") == std::string::npos)
            return "nobody says why: " + one.error;
        if (sees_death && one.id == left_by_dead_ && one.kind == static_cast<int>(timeout))
            return "a death was not told: " + one.error;
    }
    return {};
}

}  // namespace tutti::simulation
