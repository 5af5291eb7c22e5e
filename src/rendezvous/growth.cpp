#include "rendezvous/growth.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "object/codec.hpp"
#include "rendezvous/meeting.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::rendezvous {
namespace {

/// Instead of a plan: the group has failed.
constexpr const char* made = "made";
constexpr const char* lost = "lost";
constexpr const char* process_ended = "ended";  // a will
constexpr const char* lost_words = "it failed before the newcomers were taken in";

StoreRequest in_group(StoreRequest request) {
    request.store = Growth::of_group;
    return request;
}

std::string encoded(const GrowthPlan& plan) {
    return object::encode_string(Object(plan));
}

}  // namespace

Growth::Growth(Terms terms) : terms_(std::move(terms)), deadline_(Deadline::after(terms_.survivors.timeout)) {
    TUTTI_ASSERT(terms_.failure && terms_.end && terms_.count >= 0);
    const SurvivorsTerms& group = terms_.survivors;
    TUTTI_ASSERT(group.rank >= 0 && group.rank < group.size());
}

ErrorContext Growth::context() const {
    const SurvivorsTerms& group = terms_.survivors;
    return {.operation = "grow", .group = group.group, .rank = group.numbers_of({group.rank}).front()};
}

std::string Growth::who(int rank) const {
    return fmt::format("rank {} of group \"{}\"", terms_.survivors.numbers_of({rank}).front(), terms_.survivors.group);
}

StoreTalk<std::string> Growth::settle(std::string key, std::string value) {
    const StoreRequest request = in_group(ask::compare_set(std::move(key), "", std::move(value)));
    const StoreAnswer stands = co_await request;
    co_return stands.value();
}

/// What a rank writes that has waited in vain for the leader.
std::string Growth::no_plan_of(int leader) const {
    return encoded({.problem = fmt::format("grow of group \"{}\": rank {} did not call it in time",
                                           terms_.survivors.group, terms_.survivors.numbers_of({leader}).front())});
}

GrowthPlan Growth::accept(const std::string& text) {
    plan_ = object::decode_string(text).get<GrowthPlan>();
    if (!plan_.problem.empty()) throw Timeout(plan_.problem, context());
    return plan_;
}

StoreTalk<GrowthPlan> Growth::agree() {
    const std::string stands = co_await plan_of_all();
    if (stands != lost) co_return accept(stands);
    const GrowthPlan plan = co_await agree_with_survivors();
    co_return plan;
}

/// The plan of the group as it is, or that it has failed.
StoreTalk<std::string> Growth::plan_of_all() {
    const std::string key = terms_.keys + "plan";
    const SurvivorsTerms& group = terms_.survivors;
    const std::function<void()> lost_check = [this] {
        if (terms_.failure()) throw Lost();
    };
    std::string mine = lost;
    try {
        lost_check();
        if (group.rank == 0) {
            std::vector<int> everyone(static_cast<std::size_t>(group.size()));
            std::iota(everyone.begin(), everyone.end(), 0);
            co_await lead(everyone, terms_.count, key, lost_check);
        }
        awaited_ = fmt::format("{} to say how it grows", who(0));
        const StoreRequest plan = in_group(ask::await(key, Milliseconds(0)));
        const Deadline until = late();
        const StoreAnswer text = co_await wait_with(plan, until, lost_check);
        if (text.is_there()) co_return text.value();
        mine = no_plan_of(0);
    } catch (const Lost&) {
        // Written below.
    }
    const std::string stands = co_await settle(key, mine);
    co_return stands;
}

StoreTalk<GrowthPlan> Growth::agree_with_survivors() {
    has_failed_ = true;
    terms_.end();
    const SurvivorsTerms& group = terms_.survivors;
    const StoreRequest own_will = in_group(ask::will(gone(group.rank), process_ended));
    const std::function<void()> no_check;
    co_await own_will;
    Survivors survivors(group, of_group);
    awaited_ = survivors.awaited();
    const std::vector<int> ranks = co_await survivors.agree();
    const std::string key = group.keys + "grow/plan";
    if (ranks.front() == group.rank) {
        const int lacking = group.size() - static_cast<int>(ranks.size());
        const int count = terms_.count > 0 ? terms_.count : lacking;
        co_await lead(ranks, count, key, no_check);
    }
    awaited_ = fmt::format("{} to say how it grows", who(ranks.front()));
    const Deadline last = late();
    std::string stands;
    while (stands.empty()) {
        const StoreRequest plan = in_group(ask::await(key, look_every));
        const StoreAnswer text = co_await plan;
        if (text.is_there()) {
            stands = text.value();
            continue;
        }
        // The leader may have ended before it left a will for its plan.
        const StoreRequest end = in_group(ask::read(gone(ranks.front())));
        const StoreAnswer ended = co_await end;
        const std::string mine = ended.is_there() ? std::string(lost) : no_plan_of(ranks.front());
        if (ended.is_there() || last.expired()) stands = co_await settle(key, mine);
    }
    if (stands != lost) co_return accept(stands);
    ErrorContext where = context();
    where.peer = group.numbers_of({ranks.front()}).front();
    throw PeerLost(fmt::format("grow of group \"{}\": rank {}, which was to take the newcomers in, was lost",
                               group.group, where.peer),
                   where);
}

Deadline Growth::until() const {
    return terms_.wait ? Deadline::at(std::min(deadline_.when(), Deadline::after(*terms_.wait).when())) : deadline_;
}

// Takes in those that wait, and, until there are `count`, those that come before the deadline.
StoreTalk<bool> Growth::take(int count, Deadline deadline, std::function<void()> check) {
    while (std::cmp_less(tickets_.size(), count)) {
        awaited_ =
            fmt::format("{} more newcomers to come to {}", count - static_cast<int>(tickets_.size()), terms_.place);
        const StoreAnswer before = co_await ask::add(growth_key::asked, 0);
        const std::vector<std::int64_t> waiting = co_await waiting_newcomers();
        for (const std::int64_t ticket : waiting) {
            if (std::cmp_equal(tickets_.size(), count)) break;
            const StoreAnswer label = co_await ask::read(growth_key::who(ticket));
            const StoreAnswer answer = co_await ask::compare_set(growth_key::answer(ticket), "", plan_.number);
            if (answer.value() != plan_.number) continue;
            tickets_.push_back(ticket);
            labels_.push_back(label.is_there() ? label.value() : "");
        }
        if (std::cmp_equal(tickets_.size(), count) || deadline.expired()) break;
        const std::int64_t next = std::stoll(before.value()) + 1;
        const Milliseconds patience = std::min(deadline.timeout(), look_every);
        co_await ask::await(growth_key::who(next), patience);
        if (check) check();
    }
    co_return true;
}

// Takes newcomers in, and writes the plan for them and for the group's ranks.
StoreTalk<bool> Growth::lead(std::vector<int> ranks, int count, std::string key, std::function<void()> lost_check) {
    const SurvivorsTerms& group = terms_.survivors;
    const StoreRequest will_of_plan = in_group(ask::will(key, lost));
    co_await will_of_plan;
    const StoreAnswer number = co_await ask::add(growth_key::plans, 1);
    plan_ = terms_.plan;
    plan_.number = number.value();
    plan_.leader = group.rank;
    tickets_.clear();  // those of a plan that came to nothing have been told
    labels_.clear();
    const std::string key_of_newcomers = growth_key::plan(plan_.number);
    const std::string leader_ended = encoded({.problem = "the rank that takes newcomers in ended"});
    co_await ask::will(key_of_newcomers, leader_ended);
    co_await ask::will(growth_key::leader_gone(plan_.number), process_ended);
    const bool only_waiting = count == 0 && !has_failed_;
    if (only_waiting) {
        const std::vector<std::int64_t> waiting = co_await waiting_newcomers();
        count = static_cast<int>(waiting.size());
    }
    std::exception_ptr error;
    try {
        const Deadline last = only_waiting ? Deadline::after(Milliseconds::zero()) : until();
        co_await take(count, last, lost_check);
    } catch (const Lost&) {
        error = std::current_exception();
        plan_.problem = fmt::format("grow of group \"{}\": {}", group.group, lost_words);
    } catch (const std::exception& other) {
        error = std::current_exception();
        plan_.problem = fmt::format("grow of group \"{}\": {}", group.group, other.what());
    }
    const int taken = static_cast<int>(tickets_.size());
    if (error) {
        try {
            const std::string problem = encoded(plan_);
            co_await ask::write(key_of_newcomers, problem);
        } catch (const std::exception& silent) {
            TUTTI_DEBUG("grow: the newcomers cannot be told that there will be no group: {}", silent.what());
        }
        std::rethrow_exception(error);
    }
    if (taken < std::min(count, terms_.at_least.value_or(count)) && !only_waiting) {
        plan_.problem = fmt::format("grow of group \"{}\" ({} ranks): {} of {} newcomers came to {} in time",
                                    group.group, ranks.size(), taken, count, terms_.place);
    } else if (taken == 0 && !has_failed_) {
        plan_.number.clear();
    }
    plan_.old_ranks = places(ranks);
    plan_.description = fmt::format("ranks {} of \"{}\" and {} newcomer{}", fmt::join(group.numbers_of(ranks), ", "),
                                    group.group, taken, taken == 1 ? "" : "s");
    plan_.joining_ms = std::max<std::int64_t>(deadline_.timeout().count(), 1000);
    const std::string mine = encoded(plan_);
    std::string stands = co_await settle(key, mine);
    if (stands == lost) stands = encoded({.problem = fmt::format("grow of group \"{}\": {}", group.group, lost_words)});
    if (taken > 0) co_await ask::write(key_of_newcomers, stands);
    co_return true;
}

/// Old ranks keep their numbers where there are such; then the free numbers are given out, newcomers' last.
std::vector<std::int64_t> Growth::places(const std::vector<int>& ranks) const {
    constexpr std::int64_t nobody = -1;
    std::vector<std::int64_t> all(ranks.size() + tickets_.size(), nobody);
    std::vector<std::int64_t> others;
    for (const int rank : ranks) {
        if (static_cast<std::size_t>(rank) < all.size())
            all[static_cast<std::size_t>(rank)] = rank;
        else
            others.push_back(rank);
    }
    for (const std::int64_t ticket : tickets_) others.push_back(GrowthPlan::ticket_as_rank(ticket));
    auto next = others.begin();
    for (std::int64_t& at : all) {
        if (at == nobody) at = *next++;
    }
    TUTTI_ASSERT(next == others.end());
    return all;
}

void Growth::check(const KeyReader& read) const {
    const SurvivorsTerms& group = terms_.survivors;
    const std::exception_ptr failure = has_failed_ ? nullptr : terms_.failure();
    if (failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const DistError& error) {  // one sentence for all, whoever notices it first
            const auto of = std::ranges::find(group.numbers, error.context().peer);
            const bool is_known = of != group.numbers.end();
            const auto rank = is_known ? static_cast<int>(of - group.numbers.begin()) : group.rank;
            throw Meeting::Absent{plan_.rank_of(rank), error.what()};
        }
    }
    const auto see = [&](int store, const std::string& key, std::int64_t old_rank, const std::string& who_it_is) {
        const auto how = read(store, key);
        if (!how) return;
        const int rank = plan_.rank_of(old_rank);
        throw Meeting::Absent{rank, fmt::format("rank {} is gone: {} {} before it had joined", rank, who_it_is, *how)};
    };
    if (plan_.leader != group.rank) {
        see(place, growth_key::leader_gone(plan_.number), plan_.leader, who(static_cast<int>(plan_.leader)));
        return;
    }
    for (std::size_t i = 0; i < tickets_.size(); ++i)
        see(place, growth_key::gone(tickets_[i]), GrowthPlan::ticket_as_rank(tickets_[i]), labels_[i]);
    for (const std::int64_t old : plan_.old_ranks) {
        if (has_failed_ && old >= 0 && old != group.rank)
            see(of_group, gone(static_cast<int>(old)), old, who(static_cast<int>(old)));
    }
}

StoreTalk<std::string> agree_whether_made(std::string number, std::string trouble) {
    const std::string own = trouble.empty() ? made : trouble;
    const StoreAnswer stands = co_await ask::compare_set(growth_key::outcome(number), "", own);
    co_return stands.value() == made ? "" : stands.value();
}

std::string trouble_of_others(const std::string& number, const KeyReader& read) {
    const std::string stands = read(Growth::place, growth_key::outcome(number)).value_or(made);
    return stands == made ? "" : stands;
}

}  // namespace tutti::rendezvous
