#include "simulation/growth_world.hpp"

#include "rendezvous/meeting.hpp"
#include "simulation/chance.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <utility>

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;
using rendezvous::Growth;
using rendezvous::GrowthPlan;
using rendezvous::Meeting;
using rendezvous::Newcomer;
using rendezvous::StoreAnswer;
using rendezvous::StoreRequest;
using rendezvous::StoreTalk;
namespace ask_store = rendezvous::ask;

constexpr Milliseconds call_time = 4000ms, patience = 700ms;
constexpr Milliseconds will_time = 50ms, news_time = 40ms;
constexpr int most_calls = 3;
/// A call's own time, that of the leader's answer (late()), of joining, and of the requests.
constexpr Milliseconds most_call_time = 3 * call_time + 9000ms;

}  // namespace

struct GrowthWorld::Process {
    std::size_t number = 0;
    std::string label;
    std::string group;  // empty: a newcomer
    int rank = 0, size = 0, count = 0;
    bool is_patient = false;
    Milliseconds pause{0};  // before its first call
    bool is_alive = true, is_done = false;
    std::optional<Instant> stopped_until{};
    int requests = 0, dies_at = -1;
    bool last_request_counts = false;  // of one that dies
    std::set<std::size_t> heard;       // whose death it knows of
    std::exception_ptr failure;        // of its group, without a death
    std::optional<StoreTalk<bool>> talk;
    rendezvous::TalkLine line;
    std::uint64_t serial = 0;
    bool waits = false;
    Instant call_began{};
    std::map<std::string, std::string> wills;
};

GrowthWorld::GrowthWorld(std::uint64_t seed) : chance_(seed), now_(Instant(1000h)) {
    Clock::simulate(&now_);
    slowest_ = one_in(5) ? 60ms : 2ms;
    is_quiet_ = one_in(6);
    add_group("A", !is_quiet_);
    if (one_in(4)) add_group("B", !is_quiet_ && one_in(2));
    int wanted = 0;
    for (const auto& process : processes_) {
        if (process->rank == 0) wanted += process->count;
    }
    add_newcomers(wanted);
}

GrowthWorld::~GrowthWorld() {
    processes_.clear();
    Clock::simulate(nullptr);
}

std::uint64_t GrowthWorld::below(std::uint64_t n) {
    return simulation::below(chance_, n);
}

void GrowthWorld::add_group(const std::string& name, bool may_have_trouble) {
    const int size = static_cast<int>(1 + below(4)), count = static_cast<int>(1 + below(3));
    const auto odd = static_cast<int>(below(static_cast<std::uint64_t>(size)));
    const auto kind = may_have_trouble ? below(4) : 0;  // 1: dies in a call, 2: before it, 3: is stopped
    const bool is_patient = may_have_trouble && (kind == 3 ? !one_in(4) : one_in(3));
    if (kind == 3 && !one_in(3))
        at(Milliseconds(below(400)), {Step::fail, processes_.size() + static_cast<std::size_t>((odd + 1) % size)});
    for (int rank = 0; rank < size; ++rank) {
        auto process = std::make_unique<Process>();
        process->number = processes_.size();
        process->label = name + std::to_string(rank);
        process->group = name;
        process->rank = rank;
        process->size = size;
        process->count = count;
        process->is_patient = is_patient;
        process->pause = Milliseconds(below(300));
        const bool dies = (rank == odd && kind == 1) || (may_have_trouble && one_in(12));
        if (dies) {
            process->dies_at = static_cast<int>(below(30));
            process->last_request_counts = one_in(2);
        }
        if (rank == odd && kind == 2) process->dies_at = 0;
        if (rank == odd && kind == 3) at(Milliseconds(below(700)), {Step::stop, process->number});
        at(process->pause, {Step::begin, process->number});
        processes_.push_back(std::move(process));
    }
}

void GrowthWorld::add_newcomers(int wanted) {
    int count = wanted;
    if (!is_quiet_) count = static_cast<int>(below(static_cast<std::uint64_t>(wanted) + 3));
    for (int i = 0; i < count; ++i) {
        auto process = std::make_unique<Process>();
        process->number = processes_.size();
        process->label = "N" + std::to_string(i);
        process->pause = Milliseconds(!is_quiet_ && one_in(8) ? 4000 + below(6000) : below(600));
        if (!is_quiet_ && one_in(5)) {
            process->dies_at = static_cast<int>(below(14));
            process->last_request_counts = one_in(2);
        }
        if (!is_quiet_ && one_in(12)) at(Milliseconds(below(1500)), {Step::stop, process->number});
        at(process->pause, {Step::begin, process->number});
        processes_.push_back(std::move(process));
    }
}

Milliseconds GrowthWorld::latency() {
    return Milliseconds(below(static_cast<std::uint64_t>(slowest_.count()) + 1));
}

void GrowthWorld::at(Milliseconds later, Event event) {
    events_.add(now_ + later, event);
}

std::string GrowthWorld::run() {
    std::uint64_t steps = 0;
    while (!events_.empty() && wrong_.empty()) {
        if (++steps > 200'000) return "the world does not come to an end";
        handle(events_.take(now_));
    }
    if (!wrong_.empty()) return wrong_;
    for (const auto& process : processes_) {
        if (process->is_alive && !process->is_done) return process->label + " waits for ever";
    }
    return check_results();
}

void GrowthWorld::handle(const Event& event) {
    Process& process = *processes_[event.process];
    if (event.step == Step::will) {
        for (const auto& [key, value] : std::exchange(process.wills, {})) {
            if (!keys_.contains(key)) write(key, value);
        }
        return;
    }
    if (!process.is_alive) return;
    if (event.step == Step::stop) {
        ++stopped_;
        process.stopped_until = now_ + Milliseconds(one_in(2) ? below(3000) : 3000 + below(12'000));
        return;
    }
    // What happens to a process that is stopped shows when it goes on; its request may reach the store meanwhile.
    if (event.step != Step::arrive && process.stopped_until && now_ < *process.stopped_until) {
        events_.add(*process.stopped_until, event);
        return;
    }
    switch (event.step) {
        case Step::begin:
            process.call_began = now_;
            process.talk.emplace(live(process));
            process.talk->start(process.line);
            return ask(process);
        case Step::arrive: return event.serial == process.serial ? arrive(process) : void();
        case Step::answer:
            if (event.serial != process.serial) return;
            StoreTalk<bool>::go_on(process.line);
            return ask(process);
        case Step::out_of_time:
            if (event.serial == process.serial && process.waits) answer(process, {});
            return;
        case Step::fail: return end_group_of(process);
        case Step::hear: process.heard.insert(event.serial); return;
        default: return;
    }
}

// Its request is on the way to the store, or its life is over.
void GrowthWorld::ask(Process& process) {
    if (process.talk->is_over()) {
        (void)process.talk->result();  // throws what no promise allows
        process.is_done = true;
        return;
    }
    ++process.serial;
    at(latency(), {Step::arrive, process.number, process.serial});
}

void GrowthWorld::die(Process& process) {
    ++deaths_;
    process.is_alive = process.waits = false;
    at(Milliseconds(below(will_time.count())), {Step::will, process.number});
    for (const auto& other : processes_) {
        if (other->group == process.group && !process.group.empty())
            at(Milliseconds(below(news_time.count())), {Step::hear, other->number, process.number});
    }
}

std::string GrowthWorld::key_of(const Process& process, int store, const std::string& key) const {
    return (store == Growth::place ? "place/" : process.group + "/") + key;
}

std::optional<std::string> GrowthWorld::read(const Process& process, int store, const std::string& key) const {
    const auto found = keys_.find(key_of(process, store, key));
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

void GrowthWorld::arrive(Process& process) {
    const bool dies = process.requests++ == process.dies_at;
    if (dies && !process.last_request_counts) return die(process);
    const StoreRequest& request = process.line.request;
    const std::string key = key_of(process, request.store, request.keys.front());
    std::vector<std::string> values;
    switch (request.kind) {
        case StoreRequest::will:
            process.wills[key] = request.value;
            values.emplace_back();
            break;
        case StoreRequest::await:
        case StoreRequest::await_one:
            if (dies) return die(process);
            process.waits = true;
            if (!try_to_answer_wait(process)) at(request.patience, {Step::out_of_time, process.number, process.serial});
            return;
        default:
            values = answer_of(keys_, request, key, [this](const auto& at, const auto& value) { write(at, value); });
    }
    if (dies) return die(process);
    answer(process, std::move(values));
}

bool GrowthWorld::try_to_answer_wait(Process& process) {
    std::vector<std::string> keys = process.line.request.keys;
    for (std::string& key : keys) key = key_of(process, process.line.request.store, key);
    auto values = values_of(keys_, keys);
    if (!values) return false;
    answer(process, std::move(*values));
    return true;
}

void GrowthWorld::write(const std::string& key, const std::string& value) {
    keys_[key] = value;
    for (const auto& other : processes_) {
        if (other->is_alive && other->waits) try_to_answer_wait(*other);
    }
}

void GrowthWorld::answer(Process& process, std::vector<std::string> values) {
    process.waits = false;
    process.line.answer.values = std::move(values);
    at(latency(), {Step::answer, process.number, process.serial});
}

// ---- The processes

std::exception_ptr GrowthWorld::failure_of(const Process& process) const {
    if (process.heard.empty()) return process.failure;
    const Process& dead = *processes_[*process.heard.begin()];
    return std::make_exception_ptr(PeerLost(
        "rank " + std::to_string(dead.rank) + " of " + dead.group + " is gone: it ended", {.peer = dead.rank}));
}

// The others hear that this rank has ended the group.
void GrowthWorld::end_group_of(Process& process) {
    for (const auto& other : processes_) {
        if (other->group == process.group && !other->failure)
            other->failure = std::make_exception_ptr(Aborted("a rank asked for another group"));
    }
}

rendezvous::SurvivorsTerms GrowthWorld::survivors_terms(Process& process, int call) {
    std::vector<int> numbers;
    for (int rank = 0; rank < process.size; ++rank) numbers.push_back(rank);
    const auto of_group = [this, &process](int rank) -> const Process& {
        return **std::ranges::find_if(
            processes_, [&](const auto& other) { return other->group == process.group && other->rank == rank; });
    };
    return {.group = process.group,
            .numbers = std::move(numbers),
            .rank = process.rank,
            .keys = "grow/" + std::to_string(call) + "/survivors/",
            .store = "the store",
            .timeout = call_time,
            .patience = process.is_patient ? std::optional(patience) : std::nullopt,
            .gone =
                [this, &process] {
                    std::vector<int> ranks;
                    for (const std::size_t dead : process.heard) ranks.push_back(processes_[dead]->rank);
                    return ranks;
                },
            .is_deaf = [of_group](int rank) { return !of_group(rank).is_alive; },
            .check = [] {}};
}

StoreTalk<bool> GrowthWorld::live(Process& process) {
    const int calls = process.group.empty() ? 2 : most_calls;
    bool is_member = !process.group.empty();
    for (int call = 1; call <= calls; ++call) {
        process.call_began = now_;
        Result result;
        if (is_member) {
            result = co_await grow(process, call);
        } else {
            result = co_await join(process);
        }
        const auto took = std::chrono::ceil<Milliseconds>(now_ - process.call_began);
        if (took > most_call_time + 100 * slowest_ && !process.stopped_until)
            wrong_ = process.label + " has waited for " + std::to_string(took.count()) + " ms";
        const bool is_over = result.is_made || (is_member && result.error.empty());
        const bool is_excluded = result.is_excluded;
        results_.push_back(std::move(result));
        if (is_over) break;
        if (is_excluded) is_member = false;  // it comes back as a newcomer
        const Milliseconds moment(below(50));
        co_await ask_store::await("never", moment);
    }
    co_return true;
}

StoreTalk<GrowthWorld::Result> GrowthWorld::grow(Process& process, int call) {
    Result result{.process = process.number, .call = call};
    GrowthPlan outline;
    outline.name = process.group;
    Growth growth({.place = "the place",
                   .keys = "grow/" + std::to_string(call) + "/",
                   .count = process.count,
                   .plan = outline,
                   .survivors = survivors_terms(process, call),
                   .failure = [this, &process] { return failure_of(process); },
                   .end = [this, &process] { end_group_of(process); }});
    try {
        const GrowthPlan plan = co_await growth.agree();
        result.plan = plan.number;
        if (!plan.number.empty()) {
            const std::function<void()> check = [&] {
                growth.check([&](int store, const std::string& key) { return read(process, store, key); });
            };
            const int rank = plan.rank_of(process.rank);
            co_await meet(plan, rank, process, check, result);
        }
    } catch (const DistError& error) {
        result.error = error.what();
        result.is_late = error.code() == ErrorCode::timeout && !result.plan.empty();
        result.is_excluded = result.error.find("go on without this rank") != std::string::npos;
    }
    co_return result;
}

StoreTalk<GrowthWorld::Result> GrowthWorld::join(Process& process) {
    Result result{.process = process.number};
    Newcomer newcomer({.place = "the place", .name = "newcomers", .label = process.label, .timeout = call_time});
    try {
        const GrowthPlan plan = co_await newcomer.come();
        result.plan = plan.number;
        const std::function<void()> check = [&] {
            newcomer.check([&](int store, const std::string& key) { return read(process, store, key); });
        };
        const int rank = newcomer.rank();
        co_await meet(plan, rank, process, check, result);
    } catch (const DistError& error) {
        result.error = error.what();
        result.is_late = error.code() == ErrorCode::timeout && !result.plan.empty();
    }
    co_return result;
}

// As the joining of the new world does.
StoreTalk<bool> GrowthWorld::meet(const GrowthPlan& plan, int rank, const Process& process, std::function<void()> check,
                                  Result& result) {
    Meeting meeting({.name = "world/" + plan.number,
                     .rank = rank,
                     .size = plan.size(),
                     .timeout = Milliseconds(plan.joining_ms),
                     .operation = "init",
                     .once = true,
                     .check = std::move(check)},
                    {.card = [&process] { return process.label; }},
                    {.own = {"", static_cast<int>(process.number) + 1, 0, process.label},
                     .has_ended = [](const rendezvous::MeetingProcess&) { return false; },
                     .random = [this] { return chance_(); }});
    const Met met = co_await meeting.run();
    result.cards = met.cards;
    result.is_made = true;
    co_return true;
}

// ---- The promises

std::string GrowthWorld::check_results() {
    std::set<std::string> plans;
    std::set<std::pair<std::string, int>> calls;
    for (const Result& one : results_) {
        made_ += one.is_made ? 1 : 0;
        excluded_ += one.is_excluded ? 1 : 0;
        told_ += one.error.empty() ? 0 : 1;
        if (std::string wrong = check_sentence(one); !wrong.empty()) return wrong;
        if (!one.plan.empty()) plans.insert(one.plan);
        if (one.call > 0) calls.emplace(processes_[one.process]->group, one.call);
    }
    for (const std::string& plan : plans) {
        if (std::string wrong = check_plan(plan); !wrong.empty()) return wrong;
    }
    for (const auto& [group, call] : calls) {
        if (std::string wrong = check_call(group, call); !wrong.empty()) return wrong;
    }
    return {};
}

// All that were to be in the new group are, or none is; and all are told the same.
std::string GrowthWorld::check_plan(const std::string& number) const {
    const Result* first = nullptr;
    for (const Result& one : results_) {
        if (one.plan != number) continue;
        if (first == nullptr) first = &one;
        if (one.is_made != first->is_made || one.cards != first->cards || one.error != first->error)
            return "plan " + number + ": " + processes_[first->process]->label + " has \"" + first->error + "\", " +
                   processes_[one.process]->label + " has \"" + one.error + "\"";
    }
    if (!first->is_made) return {};
    for (const std::string& card : first->cards) {
        const auto process = std::ranges::find_if(processes_, [&](const auto& one) { return one->label == card; });
        const bool is_in = std::ranges::any_of(results_, [&](const Result& one) {
            return one.plan == number && one.is_made && one.process == (*process)->number;
        });
        if ((*process)->is_alive && !is_in) return "plan " + number + " has " + card + ", which is not in it";
    }
    return {};
}

// No split: of one call of a group's ranks comes one new group at most, and every rank that lives is in it, or was told
// that the others go on without it. If none comes of it, all are told the same.
std::string GrowthWorld::check_call(const std::string& group, int call) const {
    std::set<std::string> made;
    const Result* failed = nullptr;
    for (const Result& one : results_) {
        if (one.call != call || processes_[one.process]->group != group) continue;
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

// Nobody is accused falsely, and nothing fails without a cause.
std::string GrowthWorld::check_sentence(const Result& result) const {
    if (result.error.empty()) return {};
    const std::string who = processes_[result.process]->label + " is told: " + result.error;
    if (is_quiet_) return who;
    if (result.is_late && stopped_ == 0) return "nobody says why a rank does not come to the new group: " + who;
    // A newcomer's time may be over while its leader waits for more.
    if (result.error.find(" gave up before it had joined") != std::string::npos) return {};
    if (deaths_ == 0 &&
        (result.error.find("is gone") != std::string::npos || result.error.find("lost") != std::string::npos))
        return who;
    if (deaths_ == 0 && stopped_ == 0 && result.is_excluded) return who;
    for (const auto& process : processes_) {
        const std::string rank = "rank " + std::to_string(process->rank) + " of ";
        const auto names = [&](const std::string& words) { return result.error.find(words) != std::string::npos; };
        const bool is_named = names(process->label + " ended") || names(rank + process->group + " is gone") ||
                              names(rank + "group \"" + process->group + "\" ended");
        if (is_named && process->is_alive) return who;
    }
    return {};
}

}  // namespace tutti::simulation
