#include "simulation/growth_world.hpp"

#include "rendezvous/meeting.hpp"
#include "simulation/chance.hpp"
#include "simulation/growth_process.hpp"

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

constexpr Milliseconds call_time = 4000ms;
constexpr Milliseconds will_time = 50ms;
/// How long a client waits for an answer, and a server for a sign of its client.
constexpr Milliseconds client_time = 5000ms, server_time = 15'000ms;
/// Of the second change of a group, as resilient() asks for it.
constexpr Milliseconds wait_of_second = 200ms;
/// The name of a group that came of a change begins with it.
constexpr const char* made_by = "plan ";

bool has_changed(const std::string& group) {
    return group.starts_with(made_by);
}
constexpr int most_calls = 3;
/// Of an exchange in a training. Its ranks ask for another group when they hear that theirs has failed: around a rank
/// that is stopped news takes up to two seconds.
constexpr Milliseconds exchange_time = 2000ms, patience_in_training = 3000ms;
/// A call's own time, that of the leader's answer (late()), of joining, and of the requests.
constexpr Milliseconds most_call_time = 3 * call_time + 9000ms;

}  // namespace

GrowthWorld::GrowthWorld(std::uint64_t seed) : chance_(seed), now_(Instant(1000h)) {
    Clock::simulate(&now_);
    const bool is_slow = one_in(5);
    slowest_ = is_slow ? 60ms : 2ms;
    patience_ = is_slow ? 2500ms : 700ms;  // the time of a leader's requests, and more
    is_quiet_ = one_in(6);
    silence_limit_ = one_in(2) ? 1500ms : 13'500ms;
    changes_again_ = !is_quiet_ && one_in(3);
    trains_ = seed % 3 == 0;
    if (trains_) {
        changes_again_ = false;
        patience_ = patience_in_training;
        training_ = {.steps = static_cast<std::int64_t>(5 + below(16)),
                     .asks_in_vain = !is_quiet_ && one_in(4),
                     .exchanges = one_in(2),
                     .step_time = Milliseconds(one_in(3) ? 50 : 10),
                     .wait = Milliseconds(one_in(2) ? 0 : below(1000)),
                     .timeout = exchange_time};
        if (one_in(4)) training_.stops_in = static_cast<std::int64_t>(below(10));
    }
    for (std::uint64_t hosts = one_in(3) ? 1 : 2 + below(2); hosts > 0; --hosts)
        hosts_.push_back("host" + std::to_string(hosts));
    add_group("A", !is_quiet_);
    if (one_in(4)) add_group("B", !is_quiet_ && one_in(2));
    int wanted = 0;
    for (const auto& process : processes_) {
        if (process->seat->rank == 0) wanted += process->count;
    }
    add_newcomers(wanted);
    for (std::uint64_t more = trains_ && !is_quiet_ ? below(4) : 0; more > 0; --more) {
        const Step trouble = one_in(2) ? Step::fail : one_in(2) ? Step::stop : Step::cut;
        at(Milliseconds(below(1500)), {trouble, below(processes_.size())});
    }
    if (!is_quiet_ && hosts_.size() > 1 && one_in(6)) at(Milliseconds(below(1500)), {Step::part});
}

GrowthWorld::~GrowthWorld() {
    processes_.clear();
    Clock::simulate(nullptr);
}

std::uint64_t GrowthWorld::below(std::uint64_t n) {
    return simulation::below(chance_, n);
}

GrowthWorld::Process& GrowthWorld::add_process(std::string label) {
    auto& process = *processes_.emplace_back(std::make_unique<Process>());
    process.number = processes_.size() - 1;
    process.label = std::move(label);
    process.host = hosts_[below(hosts_.size())];
    return process;
}

SimulatedGroup& GrowthWorld::make_group(const std::string& name, std::vector<std::size_t> processes) {
    std::vector<rendezvous::Card> cards;
    for (const std::size_t number : processes) {
        rendezvous::Card& card = cards.emplace_back();
        card.host_key = card.host_name = processes_[number]->host;
        card.process = static_cast<int>(1000 + number);
    }
    SimulatedGroup& group = *(groups_[name] = std::make_unique<SimulatedGroup>(
                                  SimulatedGroup::Surroundings{
                                      chance_, now_, silence_limit_,
                                      [this](Instant when, std::function<void()> act) {
                                          events_.add(std::max(when, now_), {Step::of_lifelines, 0, 0, std::move(act)});
                                      },
                                      [this](const std::string& what) { wrong_ = what; }},
                                  name, std::move(cards), processes));
    if (parted_from_ && now_ < parted_until_) group.part(parted_, parted_until_);
    for (int rank = 0; rank < group.size(); ++rank) {
        Process& process = *processes_[group.process(rank)];
        process.seats.push_back({&group, rank});
        if (!process.is_alive) group.die(rank);
        if (process.stopped_until && now_ < *process.stopped_until) group.stop(rank);
    }
    return group;
}

void GrowthWorld::add_group(const std::string& name, bool may_have_trouble) {
    const int size = static_cast<int>(1 + below(4)), count = static_cast<int>(1 + below(3));
    const auto odd = static_cast<int>(below(static_cast<std::uint64_t>(size)));
    enum Kind { none, dies_in_a_call, dies_before, is_stopped, hears_late, is_cut, kinds };
    const auto kind = may_have_trouble ? static_cast<Kind>(below(kinds)) : none;
    const bool is_patient = may_have_trouble && (kind == is_stopped ? !one_in(4) : one_in(3));
    const Milliseconds lag(kind == hears_late ? below(600) : 0);
    const std::size_t first = processes_.size();
    std::vector<std::size_t> numbers;
    for (int rank = 0; rank < size; ++rank) numbers.push_back(add_process(name + std::to_string(rank)).number);
    SimulatedGroup& group = make_group(name, std::move(numbers));
    if (kind == is_stopped && !one_in(3))
        at(Milliseconds(below(400)), {Step::fail, first + static_cast<std::size_t>((odd + 1) % size)});
    for (int rank = 0; rank < size; ++rank) {
        Process& process = *processes_[first + static_cast<std::size_t>(rank)];
        process.seat = Seat{&group, rank};
        process.count = count;
        process.is_patient = is_patient;
        process.lag = lag;
        process.pause = Milliseconds(below(first_calls_within.count()));
        const bool dies = (rank == odd && kind == dies_in_a_call) || (may_have_trouble && one_in(12));
        if (dies) {
            process.dies_at = static_cast<int>(below(trains_ ? 200 : 40));
            process.last_request_counts = one_in(2);
        }
        if (rank == odd && kind == dies_before) process.dies_at = 0;
        if (rank == odd && kind == is_stopped) at(Milliseconds(below(700)), {Step::stop, process.number});
        if (rank == odd && kind == is_cut) at(Milliseconds(below(700)), {Step::cut, process.number});
        if (rank == odd && kind == hears_late) group.delay(rank, lag);
        at(0ms, {Step::of_lifelines, 0, 0, [&group, rank] { group.come(rank); }});
        at(process.pause, {Step::begin, process.number});
    }
}

void GrowthWorld::add_newcomers(int wanted) {
    int count = wanted;
    if (!is_quiet_) count = static_cast<int>(below(static_cast<std::uint64_t>(wanted) + 3));
    for (int i = 0; i < count; ++i) {
        Process& process = add_process("N" + std::to_string(i));
        process.pause = Milliseconds(!is_quiet_ && one_in(8) ? 4000 + below(6000) : below(600));
        if (!is_quiet_ && one_in(5)) {
            process.dies_at = static_cast<int>(below(24));
            process.last_request_counts = one_in(2);
        }
        if (!is_quiet_ && one_in(12)) at(Milliseconds(below(1500)), {Step::stop, process.number});
        at(process.pause, {Step::begin, process.number});
    }
}

Milliseconds GrowthWorld::latency() {
    return Milliseconds(below(static_cast<std::uint64_t>(slowest_.count()) + 1));
}

void GrowthWorld::at(Milliseconds later, Event event) {
    events_.add(now_ + later, std::move(event));
}

std::string GrowthWorld::run() {
    std::uint64_t steps = 0;
    const auto is_over = [](const auto& process) { return process->is_done || !process->is_alive; };
    while (!events_.empty() && wrong_.empty() && !std::ranges::all_of(processes_, is_over)) {
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
    if (event.step == Step::of_lifelines) return event.act();
    const bool is_trouble = event.step == Step::fail || event.step == Step::cut || event.step == Step::part;
    if (is_trouble && !have_met()) return at(50ms, event);
    if (event.step == Step::part) return part();
    if (event.step == Step::will) {
        process.has_store = false;
        for (const auto& [key, value] : std::exchange(process.wills, {})) {
            if (!keys_.contains(key)) write(key, value);
        }
        return;
    }
    if (!process.is_alive) return;
    if (event.step == Step::stop) {
        ++stopped_;
        const Milliseconds time(one_in(2) ? below(3000) : 3000 + below(12'000));
        process.stopped += time;
        process.stopped_until = now_ + time;
        for (const Seat& seat : process.seats) seat.group->stop(seat.rank);
        return at(time, {Step::resume, process.number});
    }
    if (event.step == Step::resume) {
        if (now_ < *process.stopped_until) return;
        for (const Seat& seat : process.seats) seat.group->resume(seat.rank);
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
        case Step::fail:
            return process.seat ? process.seat->group->end(process.seat->rank, "an operation fails") : void();
        case Step::cut: return process.seat ? process.seat->group->cut(process.seat->rank) : void();
        default: return;
    }
}

// Its request is on the way to the store, or its life is over.
void GrowthWorld::ask(Process& process) {
    if (process.talk->is_over()) {
        (void)process.talk->result();  // throws what no promise allows
        process.is_done = true;
        return leave_all(process);
    }
    ++process.serial;
    const bool is_asked = process.line.request.store != no_store;
    at(is_asked ? latency() : 0ms, {Step::arrive, process.number, process.serial});
}

void GrowthWorld::die(Process& process) {
    ++deaths_;
    last_death_ = now_;
    process.is_alive = process.waits = false;
    const Milliseconds seen(below(will_time.count()));
    events_.add(is_cut_off(process) ? std::min(*parted_from_ + server_time, parted_until_) + seen : now_ + seen,
                {Step::will, process.number});
    for (const Seat& seat : process.seats) seat.group->die(seat.rank);
}

// The groups that are there at first.
bool GrowthWorld::have_met() const {
    return std::ranges::all_of(groups_,
                               [](const auto& entry) { return has_changed(entry.first) || entry.second->has_met(); });
}

// The network falls into two halves, one of which has the store.
void GrowthWorld::part() {
    parted_from_ = now_;
    parted_until_ = now_ + Milliseconds(one_in(2) ? below(3000) : 3000 + below(30'000));
    parted_.insert(hosts_.front());
    for (const auto& [name, group] : groups_) group->part(parted_, parted_until_);
    for (const auto& process : processes_) {
        if (!is_cut_off(*process) || parted_until_ - now_ < server_time) continue;
        at(server_time, {Step::will, process->number});
    }
}

bool GrowthWorld::is_cut_off(const Process& process) const {
    return parted_from_ && now_ < parted_until_ && parted_.contains(process.host);
}

std::string GrowthWorld::key_of(const Process& process, int store, const std::string& key) const {
    return (store == Growth::place ? "place/" : process.seat->group->name() + "/") + key;
}

std::optional<std::string> GrowthWorld::read(const Process& process, int store, const std::string& key) const {
    const auto found = keys_.find(key_of(process, store, key));
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

void GrowthWorld::arrive(Process& process) {
    const bool dies = process.has_begun && process.requests++ == process.dies_at;
    if (dies && !process.last_request_counts) return die(process);
    const StoreRequest& request = process.line.request;
    if (request.store == no_store)
        return dies ? die(process) : at(request.patience, {Step::answer, process.number, process.serial});
    if (!process.has_store || is_cut_off(process)) return dies ? die(process) : answer(process, {});
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

// A client whose store does not answer gives it up, and the server what such a client has left.
void GrowthWorld::answer(Process& process, std::vector<std::string> values) {
    process.waits = false;
    process.line.answer.values = std::move(values);
    Milliseconds later = latency();
    if (is_cut_off(process) && process.has_store && parted_until_ - now_ < client_time) {
        // The request comes again when the network is whole.
        return events_.add(parted_until_ + later, {Step::arrive, process.number, process.serial});
    }
    if (is_cut_off(process) && process.has_store) {
        process.has_store = false;
        later = client_time;
        const Instant seen = std::max(now_ + client_time, std::min(*parted_from_ + server_time, parted_until_));
        events_.add(seen, {Step::will, process.number});
    }
    if (!process.has_store)
        process.line.error =
            std::make_exception_ptr(DistStoreError("the store does not answer", {}, ErrorCode::network));
    at(later, {Step::answer, process.number, process.serial});
}

// ---- The processes

rendezvous::SurvivorsTerms GrowthWorld::survivors_terms(Process& process, int call) {
    const Seat seat = *process.seat;
    std::vector<int> numbers;
    for (int rank = 0; rank < seat.group->size(); ++rank) numbers.push_back(rank);
    return {.group = seat.group->name(),
            .numbers = std::move(numbers),
            .rank = seat.rank,
            .keys = "grow/" + std::to_string(call) + "/survivors/",
            .store = "the store",
            .timeout = call_time,
            .patience = process.is_patient ? std::optional(patience_) : std::nullopt,
            .gone = [seat] { return seat.group->gone(seat.rank); },
            .is_deaf = [seat](int rank) { return seat.group->is_deaf(seat.rank, rank); },
            .check = [] {}};
}

StoreTalk<bool> GrowthWorld::live(Process& process) {
    bool is_member = process.seat.has_value();
    while (is_member && !process.seat->group->has_met()) {
        if (process.seat->group->failure(process.seat->rank)) co_return false;
        const StoreRequest moment = pause_of(10ms);
        co_await moment;
    }
    process.has_begun = true;
    if (trains_ && is_member) is_member = co_await train(process);
    if (trains_ && is_member) co_return true;
    for (int joins = 0; is_member ? process.calls < most_calls : joins < 2;) {
        process.call_began = now_;
        Result result;
        if (is_member) {
            const Training::Wish wish = has_changed(process.seat->group->name())
                                            ? Training::Wish{.at_least = 0, .wait = wait_of_second}
                                            : Training::Wish{.count = process.count};
            result = co_await grow(process, ++process.calls, wish);
        } else {
            ++joins;
            result = co_await join(process);
        }
        note_time(process);
        result.when = now_;
        const bool is_over = result.is_made || (is_member && result.error.empty());
        const bool is_excluded = result.is_excluded, is_made = result.is_made;
        const bool changes = result.is_made && changes_again_ && !result.is_again;
        is_member = (is_member && !is_excluded) || changes;
        results_.push_back(std::move(result));
        if (is_excluded) {  // it comes back as a newcomer
            leave_all(process);
            process.seat.reset();
        }
        bool ends = is_over && !changes;
        if (trains_ && is_made) ends = co_await train(process);
        if (ends) break;
        const StoreRequest moment = pause_of(Milliseconds(below(50)));
        co_await moment;
    }
    co_return true;
}

void GrowthWorld::note_time(const Process& process) {
    const auto took = std::chrono::ceil<Milliseconds>(now_ - process.call_began);
    if (took > most_call_time + 100 * slowest_ && !process.stopped_until && !parted_from_)
        wrong_ = process.label + " has waited for " + std::to_string(took.count()) + " ms";
}

// False: the others go on without it, so it comes back as a newcomer.
StoreTalk<bool> GrowthWorld::train(Process& process) {
    const bool is_newcomer = has_changed(process.seat->group->name());
    process.training = std::make_unique<Training>(
        Training::Surroundings{chance_, training_, [&process] { return *process.seat; },
                               [&process] { return ++process.calls; },
                               [this, &process](Training::Wish wish) { return grow_in_training(process, wish); },
                               [this, &process](const std::string& what) {
                                   if (wrong_.empty()) wrong_ = process.label + ", " + what;
                               }},
        process.seat->group->size() + process.count, is_newcomer);
    try {
        co_await process.training->run();
    } catch (const DistError&) {  // its end says what it is
    }
    admissions_ += process.training->admissions();
    recoveries_ += process.training->recoveries();
    times_back_ += process.training->times_back();
    if (process.training->end() != Training::End::left_out) co_return true;
    leave_all(process);
    process.seat.reset();
    co_return false;
}

StoreTalk<bool> GrowthWorld::grow_in_training(Process& process, Training::Wish wish) {
    process.call_began = now_;
    Result result = co_await grow(process, ++process.calls, wish);
    note_time(process);
    result.when = now_;
    const bool is_made = result.is_made;
    const std::exception_ptr thrown = result.thrown;
    results_.push_back(std::move(result));
    if (thrown) std::rethrow_exception(thrown);
    co_return is_made;
}

void GrowthWorld::leave_all(Process& process) {
    for (const Seat& seat : process.seats) seat.group->leave(seat.rank);
}

StoreTalk<GrowthWorld::Result> GrowthWorld::grow(Process& process, int call, Training::Wish wish) {
    const Seat seat = *process.seat;
    Result result{.process = process.number, .group = seat.group->name(), .call = call};
    GrowthPlan outline;
    outline.name = seat.group->name();
    Growth growth({.place = "the place",
                   .keys = "grow/" + std::to_string(call) + "/",
                   .count = wish.count,
                   .at_least = wish.at_least,
                   .wait = wish.wait,
                   .plan = outline,
                   .survivors = survivors_terms(process, call),
                   .failure = [seat] { return seat.group->failure(seat.rank); },
                   .end = [seat] { seat.group->end(seat.rank, "a rank asked for another group"); }});
    try {
        const GrowthPlan plan = co_await growth.agree();
        result.plan = plan.number;
        if (!plan.number.empty()) {
            const std::function<void()> check = [&] {
                growth.check([&](int store, const std::string& key) { return read(process, store, key); });
            };
            const int rank = plan.rank_of(seat.rank);
            co_await meet(plan, rank, process, check, result);
            seat.group->leave(seat.rank);
        }
    } catch (const DistError& error) {
        result.error = error.what();
        result.thrown = std::current_exception();
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

// As join_new_world() in api/grow.cpp.
StoreTalk<bool> GrowthWorld::meet(const GrowthPlan& plan, int rank, Process& process, std::function<void()> check,
                                  Result& result) {
    const Deadline deadline = Deadline::after(Milliseconds(plan.joining_ms));
    Meeting meeting({.name = rendezvous::growth_key::world(plan.number) + "/meeting",
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
    const Seat seat{&group_of(plan, met.cards), rank};
    seat.group->come(rank);
    std::string trouble;
    ErrorContext context{.operation = "grow", .rank = rank};
    try {
        const SimulatedGroup::Word word(1);
        const std::function<void()> look = [&] {
            const std::string others = rendezvous::trouble_of_others(
                plan.number, [&](int store, const std::string& key) { return read(process, store, key); });
            if (!others.empty()) throw PeerLost(others, context);
        };
        co_await seat.group->exchange(rank, word, -1, deadline, look);
    } catch (const DistError& error) {
        trouble = error.what();
        context.peer = error.context().peer;
    }
    std::exception_ptr no_store_left;
    try {
        trouble = co_await rendezvous::agree_whether_made(plan.number, trouble);
    } catch (const DistError&) {
        no_store_left = std::current_exception();
    }
    if (!trouble.empty() || no_store_left) {
        seat.group->leave(rank);
        if (no_store_left) std::rethrow_exception(no_store_left);
        throw PeerLost("grow: the group of " + plan.description + " was not made: " + trouble, context);
    }
    result.cards = met.cards;
    result.is_made = true;
    result.is_again = has_changed(plan.name);
    changed_again_ += result.is_again && !trains_ ? 1 : 0;
    process.seat = seat;
    process.calls = 0;
    co_return true;
}

SimulatedGroup& GrowthWorld::group_of(const GrowthPlan& plan, const std::vector<std::string>& cards) {
    const std::string name = made_by + plan.number;
    if (const auto found = groups_.find(name); found != groups_.end()) return *found->second;
    std::vector<std::size_t> members;
    for (const std::string& card : cards) {
        const auto process = std::ranges::find_if(processes_, [&](const auto& one) { return one->label == card; });
        members.push_back((*process)->number);
    }
    return make_group(name, std::move(members));
}

}  // namespace tutti::simulation
