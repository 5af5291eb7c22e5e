#include "simulation/training.hpp"

#include "simulation/chance.hpp"
#include "simulation/store_world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::simulation {

using rendezvous::StepAgreement;
using rendezvous::StepReport;
using rendezvous::Steps;
using rendezvous::StoreRequest;
using rendezvous::StoreTalk;

namespace {

/// More than what happens in a world can make fail.
constexpr int max_failures = 30;
constexpr std::chrono::milliseconds between_questions{200};
constexpr int all = -1;  // ranks are heard

}  // namespace

Training::Training(Surroundings around, int max_size, bool is_newcomer)
    : around_(std::move(around)), max_size_(max_size), steps_(0, !is_newcomer) {
    if (!is_newcomer) state_ = {.origin = around_.seat().group->name().front(), .value = 0};
}

// A chain of the steps' numbers, below 2^31.
Training::State Training::after(State state, std::int64_t step) {
    state.value = (state.value * 48'271 + state.origin + step + 1) % 2'147'483'647;
    return state;
}

void Training::expect(bool holds, const std::string& what) {
    if (holds) return;
    const Seat seat = around_.seat();
    around_.wrong(fmt::format("rank {} of {}: {}", seat.rank, seat.group->name(), what));
}

void Training::expect_state() {
    State right{.origin = state_.origin, .value = 0};
    for (std::int64_t step = 0; step < steps_.completed(); ++step) right = after(right, step);
    expect(state_ == right, fmt::format("its state is not that behind {} steps", steps_.completed()));
}

std::exception_ptr Training::failure() const {
    const Seat seat = around_.seat();
    return seat.group->failure(seat.rank);
}

StoreTalk<bool> Training::run() {
    for (bool works = true;;) {
        std::exception_ptr error;
        try {
            if (!works) co_await recover();
            co_await meet();
            while (co_await pass_boundary()) {
                keep();
                co_await complete_step();
            }
            expect_state();
            end_ = End::over;
            co_return true;
        } catch (const DistError&) {
            error = std::current_exception();
        }
        if (!may_recover(error)) {
            leave();
            std::rethrow_exception(error);
        }
        works = false;
    }
}

bool Training::may_recover(const std::exception_ptr& error) {
    end_ = is_over_ ? End::without_state : End::in_error;
    bool is_of_group = failure() != nullptr;
    if (is_over_) return false;
    try {
        std::rethrow_exception(error);
    } catch (const DistError& e) {
        if (e.code() == ErrorCode::store) return false;
        const ErrorContext& about = e.context();
        if (e.code() == ErrorCode::peer_lost && about.operation == "shrink" && about.peer == about.rank) {
            end_ = End::left_out;
            return false;
        }
        is_of_group |= e.code() == ErrorCode::peer_lost || e.code() == ErrorCode::timeout;
    }
    return is_of_group && ++failures_ <= max_failures;
}

void Training::leave() {
    const Seat seat = around_.seat();
    if (!is_over_) seat.group->end(seat.rank, "a rank ends its steps by an error");
}

StoreTalk<SimulatedGroup::Words> Training::exchange(Kind kind, SimulatedGroup::Word word, int source) {
    const Seat seat = around_.seat();
    if (const auto why = failure()) std::rethrow_exception(why);
    word.insert(word.begin(), kind);
    const Deadline deadline = Deadline::after(around_.terms.timeout);
    SimulatedGroup::Words words = co_await seat.group->exchange(seat.rank, std::move(word), source, deadline);
    for (SimulatedGroup::Word& one : words) {
        if (one.empty()) continue;
        expect(one.front() == kind, "the ranks' exchanges are not the same");
        one.erase(one.begin());
    }
    co_return words;
}

// ---- The group

StoreTalk<bool> Training::recover() {
    const Seat old = around_.seat();
    old.group->end(old.rank, "a rank goes back to a completed step");
    Wish wish{.count = 0, .at_least = 0, .wait = around_.terms.wait};
    for (bool is_new = false; !is_new;) is_new = co_await around_.grow(wish);
    ++recoveries_;
    co_return true;
}

StoreTalk<bool> Training::admit() {
    const Seat old = around_.seat();
    Wish wish{.count = max_size_ - old.group->size(), .at_least = 0, .wait = std::chrono::milliseconds::zero()};
    try {
        const bool is_new = co_await around_.grow(wish);
        if (!is_new) co_return false;
    } catch (const DistBackendError&) {
        if (old.group->failure(old.rank)) throw;
        co_return false;
    }
    ++admissions_;
    co_await meet();
    co_return true;
}

// ---- The state

StoreTalk<bool> Training::meet() {
    const SimulatedGroup::Word own{steps_.report(), failures_, max_size_};
    loop_ = around_.next_growth();
    const SimulatedGroup::Words words = co_await exchange(meeting, own, all);
    std::vector<StepReport> reports;
    for (const SimulatedGroup::Word& word : words)
        reports.push_back({.completed = word[0], .failures = word[1], .max_size = word[2]});
    const StepAgreement agreed = rendezvous::agree_on_steps(reports);
    failures_ = static_cast<int>(agreed.failures);
    if (agreed.source < 0) {
        is_over_ = true;
        throw PeerLost("no rank is left that has the state", {});
    }
    expect(agreed.most - agreed.completed <= 1,
           fmt::format("of the ranks some have completed {} steps, some {}", agreed.completed, agreed.most));
    max_size_ = static_cast<int>(agreed.max_size);
    go_back_to(agreed);
    if (agreed.adopts) co_await adopt(agreed.source);
    steps_.adopt(agreed.completed);
    expect_state();
    co_return true;
}

void Training::go_back_to(const StepAgreement& agreed) {
    if (!steps_.go_back_to(agreed.completed)) return;
    expect(steps_of_copy_ == agreed.completed,
           fmt::format("it goes back to {} steps with a copy of those behind {}", agreed.completed, steps_of_copy_));
    state_ = copy_;
    stops_ = false;
    ++times_back_;
}

StoreTalk<bool> Training::adopt(int source) {
    const bool has_state = steps_.has_state();
    const SimulatedGroup::Word own{state_.origin, state_.value};
    const SimulatedGroup::Words words = co_await exchange(adoption, own, source);
    const SimulatedGroup::Word& its = words[static_cast<std::size_t>(source)];
    if (!has_state) state_ = {.origin = its[0], .value = its[1]};
    expect(state_ == State{.origin = its[0], .value = its[1]}, "it has another state than the one that newcomers get");
    co_return true;
}

void Training::keep() {
    if (!steps_.keep()) return expect(copy_ == state_, "its copy is not of its state");
    copy_ = state_;
    steps_of_copy_ = steps_.completed();
}

// ---- The steps

StoreTalk<bool> Training::complete_step() {
    const std::int64_t step = steps_.completed();
    stops_ = false;
    steps_.begin();
    state_.value = -1;  // half of a step is none
    const StoreRequest moment = pause_of(std::chrono::milliseconds(
        1 + below(around_.chance, static_cast<std::uint64_t>(around_.terms.step_time.count()))));
    co_await moment;
    if (around_.terms.exchanges) {
        const SimulatedGroup::Word own{step, copy_.value};
        const SimulatedGroup::Words words = co_await exchange(gradients, own, all);
        expect(std::ranges::all_of(words, [&](const SimulatedGroup::Word& word) { return word == own; }),
               fmt::format("ranks do other steps than {}, or with other states", step));
    }
    const Seat seat = around_.seat();
    if (around_.terms.stops_in == step && seat.rank == 0) stops_ = true;
    state_ = after(copy_, step);
    steps_.complete();
    failures_ = 0;
    co_return true;
}

StoreTalk<bool> Training::pass_boundary() {
    for (;;) {
        const bool asks = co_await newcomers_to_take();
        SimulatedGroup::Word said{asks ? 1 : 0, stops_ ? 1 : 0, steps_.completed()};
        std::exception_ptr trouble;
        try {
            const SimulatedGroup::Words words = co_await exchange(boundary, said, all);
            for (const SimulatedGroup::Word& word : words) {
                said[0] = std::max(said[0], word[0]);
                said[1] = std::max(said[1], word[1]);
                expect(word[2] == said[2],
                       fmt::format("behind {} steps it passes a boundary with a rank behind {}", said[2], word[2]));
            }
        } catch (const DistBackendError&) {
            trouble = std::current_exception();
        }
        const Seat seat = around_.seat();
        if (trouble || said[1] != 0 || steps_.completed() == around_.terms.steps) {
            std::string key = fmt::format("group/{}/resilient/0/{}/{}", seat.group->name(), loop_, steps_.completed());
            const bool is_over = co_await rendezvous::agree_whether_over(std::move(key), !trouble);
            if (is_over) co_return false;
            if (trouble) std::rethrow_exception(trouble);
            throw PeerLost("a rank failed at the last boundary", {});
        }
        if (said[0] == 0) co_return true;
        const bool is_new = co_await admit();
        if (!is_new) co_return true;
    }
}

StoreTalk<bool> Training::newcomers_to_take() {
    const Seat seat = around_.seat();
    if (seat.rank != 0 || seat.group->size() >= max_size_) co_return false;
    if (around_.terms.asks_in_vain && below(around_.chance, 2) == 0) co_return true;
    if (Clock::now() < next_question_) co_return false;
    next_question_ = Clock::now() + between_questions;
    const std::vector<std::int64_t> waiting = co_await rendezvous::waiting_newcomers();
    co_return !waiting.empty();
}

}  // namespace tutti::simulation
