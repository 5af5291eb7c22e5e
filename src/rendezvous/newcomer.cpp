#include "rendezvous/newcomer.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "object/codec.hpp"
#include "rendezvous/meeting.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace tutti::rendezvous {
namespace {

// Answers that are no plan's number, and the words of those that have gone.
constexpr const char* newcomer_left = "gave up";
constexpr const char* newcomer_ended = "ended";

}  // namespace

int GrowthPlan::rank_of(std::int64_t old_rank) const {
    const auto found = std::ranges::find(old_ranks, old_rank);
    TUTTI_ASSERT(found != old_ranks.end());
    return static_cast<int>(found - old_ranks.begin());
}

int GrowthPlan::senior() const {
    return static_cast<int>(std::ranges::find_if(old_ranks, [](auto r) { return r >= 0; }) - old_ranks.begin());
}

StoreTalk<StoreAnswer> wait_with(StoreRequest key, Deadline deadline, std::function<void()> check) {
    for (;;) {
        key.patience = std::min(deadline.timeout(), look_every);
        StoreAnswer answer = co_await key;
        const bool is_there = answer.is_there();
        if (!is_there && check) check();
        if (is_there || deadline.expired()) co_return answer;
    }
}

StoreTalk<std::vector<std::int64_t>> waiting_newcomers() {
    const StoreAnswer asked = co_await ask::add(growth_key::asked, 0);
    const StoreAnswer from = co_await ask::read(growth_key::first);
    const std::int64_t last = std::stoll(asked.value()), first = from.is_there() ? std::stoll(from.value()) : 1;
    std::int64_t open = last + 1;  // the first without an answer: its newcomer may be about to say who it is
    std::vector<std::int64_t> tickets;
    for (std::int64_t ticket = first; ticket <= last; ++ticket) {
        const StoreAnswer answer = co_await ask::read(growth_key::answer(ticket));
        if (answer.is_there()) continue;
        open = std::min(open, ticket);
        const StoreAnswer who = co_await ask::read(growth_key::who(ticket));
        if (who.is_there()) tickets.push_back(ticket);
    }
    if (open > first) co_await ask::write(growth_key::first, std::to_string(open));
    co_return tickets;
}

std::string Newcomer::awaited() const {
    return fmt::format("a group to take this process in at {}", terms_.place);
}

StoreTalk<GrowthPlan> Newcomer::come() {
    std::exception_ptr error;
    try {
        co_await be_taken_in();
    } catch (...) {
        error = std::current_exception();
    }
    if (!error) co_return plan_;
    if (ticket_ > 0) co_await give_up();
    std::rethrow_exception(error);
}

StoreTalk<bool> Newcomer::be_taken_in() {
    const StoreAnswer number = co_await ask::add(growth_key::asked, 1);
    ticket_ = std::stoll(number.value());
    TUTTI_ASSERT(ticket_ > 0);
    co_await ask::will(growth_key::answer(ticket_), newcomer_ended);
    co_await ask::will(growth_key::gone(ticket_), newcomer_ended);
    co_await ask::write(growth_key::who(ticket_), terms_.label);
    const std::function<void()> no_check;
    const StoreRequest answer_key = ask::await(growth_key::answer(ticket_), Milliseconds(0));
    StoreAnswer answer = co_await wait_with(answer_key, deadline_, no_check);
    if (!answer.is_there()) answer = co_await ask::compare_set(growth_key::answer(ticket_), "", newcomer_left);
    const ErrorContext context{.operation = "join", .group = terms_.name};
    if (answer.value() == newcomer_left) {
        throw Timeout(
            fmt::format("join: no group took this process in at {}, name \"{}\", within {} ms; expected its ranks "
                        "to call grow with that place",
                        terms_.place, terms_.name, terms_.timeout.count()),
            context);
    }
    // The leader's plan comes when it has all newcomers; its last will comes if it ends.
    const StoreRequest plan_key = ask::await(growth_key::plan(answer.value()), Milliseconds(0));
    const StoreAnswer text = co_await wait_with(plan_key, deadline_, no_check);
    if (!text.is_there()) throw Timeout("join: the group that took this process in waits for more newcomers", context);
    co_await ask::remove(growth_key::who(ticket_));
    plan_ = object::decode_string(text.value()).get<GrowthPlan>();
    if (!plan_.problem.empty()) throw Timeout(plan_.problem, context);
    co_return true;
}

StoreTalk<bool> Newcomer::give_up() {
    try {
        co_await ask::compare_set(growth_key::answer(ticket_), "", newcomer_left);
        co_await ask::write(growth_key::gone(ticket_), newcomer_left);
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("join: this process cannot say that it has given up: {}", silent.what());
    }
    co_return true;
}

void Newcomer::check(const KeyReader& read) const {
    if (!read(0, growth_key::leader_gone(plan_.number))) return;
    const int rank = plan_.rank_of(plan_.leader);
    throw Meeting::Absent{
        rank, fmt::format("rank {} is gone: the rank that took the newcomers in ended before it had joined", rank)};
}

}  // namespace tutti::rendezvous
