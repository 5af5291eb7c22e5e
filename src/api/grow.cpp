// Growing: processes that come later join a group that exists.
//
// A newcomer takes a number in the place, writes who it is, and waits for its answer. One rank of the group, the
// leader, answers as many newcomers as are wanted with the number of a plan. It writes the plan for them in the place,
// and for the group's ranks in the group's own part of the group's store. Then all of them join a world in a part of
// the place that has the plan's number. A newcomer that gives up answers itself; for one that ends, the store does so
// (a last will).
#include "api/arguments.hpp"
#include "api/next_name.hpp"
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/this_host.hpp"
#include "group/survivors.hpp"
#include "object/codec.hpp"
#include "record/call_site.hpp"

#include <tutti/error.hpp>
#include <tutti/newcomers.hpp>
#include <tutti/object_types.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>

namespace tutti {
namespace {

using GrowthCheck = std::function<void()>;
constexpr milliseconds look_every{100};
// Answers that are no plan's number.
constexpr const char* newcomer_left = "gave up";
constexpr const char* process_ended = "ended";

/// The new group, as its leader wants it; equal for all of its ranks.
struct NewGroup {
    std::string number;   ///< of the plans in this place; empty: the group stays as it is
    std::string problem;  ///< not empty: there will be no group
    std::string name, description, backend;
    std::vector<std::int64_t> old_ranks;  ///< for each rank: its number in the old group; of a newcomer -1 - its ticket
    std::int64_t timeout_ms = 0, joining_ms = 0, transport = 0, determinism = 0;

    int size() const { return static_cast<int>(old_ranks.size()); }
    int rank_of(std::int64_t old_rank) const {
        const auto found = std::ranges::find(old_ranks, old_rank);
        TUTTI_ASSERT(found != old_ranks.end());
        return static_cast<int>(found - old_ranks.begin());
    }
    int senior() const {
        return static_cast<int>(std::ranges::find_if(old_ranks, [](auto r) { return r >= 0; }) - old_ranks.begin());
    }
};
TUTTI_OBJECT(NewGroup, number, problem, name, description, backend, old_ranks, timeout_ms, joining_ms, transport,
             determinism);

std::int64_t ticket_as_rank(std::int64_t ticket) {
    TUTTI_ASSERT(ticket > 0);
    return -1 - ticket;
}

/// Waits for a key in slices, with `check` in between; empty: the deadline has passed.
std::optional<std::string> wait_for(Store& store, const std::string& key, const Deadline& deadline,
                                    const GrowthCheck& check) {
    for (;;) {
        const milliseconds left = std::min(deadline.timeout(), look_every);
        try {
            return store.get(key, left);
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        if (check) check();
        if (deadline.expired()) return std::nullopt;
    }
}

/// The room in which newcomers wait.
class WaitingRoom {
 public:
    WaitingRoom(const Store& place, const std::string& name, const char* operation) {
        if (!place) api::refuse("{}: place is no store: expected the one in which newcomers and ranks meet", operation);
        if (name.empty()) api::refuse("{}: name is empty: expected the name of the newcomers' place", operation);
        store_ = PrefixStore("newcomers/" + name, place);
    }

    Store& store() { return store_; }
    std::string describe() const { return store_.describe(); }
    static std::string answer(std::int64_t ticket) { return fmt::format("answer/{}", ticket); }
    static std::string who(std::int64_t ticket) { return fmt::format("who/{}", ticket); }
    static std::string plan(const std::string& number) { return "plan/" + number; }

    /// The tickets of those that wait.
    std::vector<std::int64_t> waiting() {
        std::vector<std::int64_t> tickets;
        const std::int64_t last = store_.add("asked", 0);
        const std::int64_t first = store_.check({"first"}) ? std::stoll(store_.get("first")) : 1;
        std::int64_t open = last + 1;  // the first without an answer: its newcomer may be about to say who it is
        for (std::int64_t ticket = first; ticket <= last; ++ticket) {
            if (store_.check({answer(ticket)})) continue;
            open = std::min(open, ticket);
            if (store_.check({who(ticket)})) tickets.push_back(ticket);
        }
        if (open > first) store_.set("first", std::to_string(open));
        return tickets;
    }

 private:
    Store store_;
};

/// The leader's side: takes newcomers in for one plan.
class Choosing {
 public:
    Choosing(WaitingRoom& room, std::string number) : room_(room), number_(std::move(number)) {}

    /// Takes in those that wait, and, until there are `count`, those that come before the deadline.
    void take(int count, const Deadline& deadline, const GrowthCheck& check) {
        const Patience patience([&] {
            return fmt::format("{} more newcomers to come to {}", count - static_cast<int>(taken_.size()),
                               room_.describe());
        });
        while (static_cast<int>(taken_.size()) < count) {
            const std::int64_t before = room_.store().add("asked", 0);
            for (const std::int64_t ticket : room_.waiting()) {
                if (static_cast<int>(taken_.size()) == count) break;
                if (room_.store().compare_set(WaitingRoom::answer(ticket), "", number_) == number_)
                    taken_.push_back(ticket);
            }
            if (static_cast<int>(taken_.size()) == count || deadline.expired()) return;
            (void)wait_for(room_.store(), WaitingRoom::who(before + 1), Deadline::after(look_every), check);
            if (check) check();
        }
    }
    const std::vector<std::int64_t>& taken() const { return taken_; }

 private:
    WaitingRoom& room_;
    std::string number_;
    std::vector<std::int64_t> taken_;
};

/// One call of grow() on one rank.
class Growing {
 public:
    Growing(const std::shared_ptr<detail::Group>& old, const GrowOptions& o)
        : old_(old),
          options_(o),
          room_(o.place, o.name, "grow"),
          deadline_(Deadline::after(o.timeout.count() > 0 ? o.timeout : old->timeout())),
          store_(PrefixStore(fmt::format("group/{}/grow/{}/{}", old->world().name(), old->index(), old->next_growth()),
                             old->world().setup().store)) {}

    /// The new group; null: the group stays as it is.
    std::shared_ptr<detail::Group> run() {
        NewGroup plan = agree();
        if (!plan.problem.empty()) throw Timeout(plan.problem, context());
        if (plan.number.empty()) return nullptr;
        GrowthCheck check;
        if (!has_failed_) check = [this] { rethrow_failure(); };
        return join(plan, check);
    }

 private:
    ErrorContext context() const { return {.operation = "grow", .group = old_->name(), .rank = old_->world().rank()}; }
    void rethrow_failure() {
        if (const std::exception_ptr failure = old_->world().failure()) std::rethrow_exception(failure);
    }

    /// The plan of the group as it is. If the group fails before there is one, that of its survivors.
    NewGroup agree() {
        if (!old_->world().failure()) {
            const auto all_fail = [this] {
                if (old_->world().failure()) throw Lost();
            };
            try {
                if (old_->rank() == 0) {
                    store_.backend()->set_will("plan", lost, deadline_.timeout());
                    std::vector<int> everyone(static_cast<std::size_t>(old_->size()));
                    std::iota(everyone.begin(), everyone.end(), 0);
                    lead(everyone, options_.count, store_, all_fail);
                }
                const Patience patience(
                    [this] { return fmt::format("rank 0 to say how group \"{}\" grows", old_->name()); });
                const auto text = wait_for(store_, "plan", late(), all_fail);
                if (!text)
                    throw Timeout(fmt::format("grow of group \"{}\": rank 0 did not call it in time", old_->name()),
                                  context());
                if (*text != lost) return object::decode_string(*text).get<NewGroup>();
            } catch (const Lost&) {
                // The rank that writes first decides for all.
                const std::string text = store_.compare_set("plan", "", lost);
                if (text != lost) return object::decode_string(text).get<NewGroup>();
            }
        }
        return agree_with_survivors();
    }

    NewGroup agree_with_survivors() {
        has_failed_ = true;
        if (!old_->world().end(fmt::format("rank {} asked for another group (grow)", old_->world().rank())))
            api::refuse("grow: group \"{}\" was destroyed here: expected one that is still held", old_->name());
        (void)store_.compare_set("plan", "", lost);
        detail::Survivors survivors(*old_, old_->next_shrink(), deadline_.timeout(), options_.patience);
        const std::vector<int> ranks = survivors.agree();
        Store store = PrefixStore("grow", survivors.store());
        if (ranks.front() == old_->rank()) {
            store.backend()->set_will("plan", lost, deadline_.timeout());
            lead(ranks, options_.count > 0 ? options_.count : old_->size() - static_cast<int>(ranks.size()), store, {});
        }
        const Patience patience(
            [&] { return fmt::format("rank {} to say how group \"{}\" grows", ranks.front(), old_->name()); });
        const auto text = wait_for(store, "plan", late(), {});
        if (!text || *text == lost) {
            ErrorContext where = context();
            where.peer = old_->ranks().global(ranks.front());
            throw PeerLost(fmt::format("grow of group \"{}\": rank {}, which was to take the newcomers in, was lost",
                                       old_->name(), where.peer),
                           where);
        }
        return object::decode_string(*text).get<NewGroup>();
    }

    /// For an answer of the leader, which waits for newcomers as long as it may.
    Deadline late() const { return Deadline::at(deadline_.when() + std::chrono::seconds(5)); }

    /// Takes newcomers in, and writes the plan for them and for the group's ranks.
    void lead(const std::vector<int>& ranks, int count, Store& for_ranks, const GrowthCheck& check) {
        NewGroup plan{.number = std::to_string(room_.store().add("plans", 1)),
                      .name = api::next_name(old_->name()),
                      .backend = backend::to_string(old_->backends().names()),
                      .timeout_ms = old_->timeout().count(),
                      .transport = static_cast<std::int64_t>(old_->world().transport()),
                      .determinism = static_cast<std::int64_t>(old_->determinism())};
        room_.store().backend()->set_will(
            WaitingRoom::plan(plan.number),
            object::encode_string(NewGroup{.problem = "the rank that takes newcomers in ended"}), deadline_.timeout());
        const bool only_waiting = count == 0 && !has_failed_;
        if (only_waiting) count = static_cast<int>(room_.waiting().size());
        Choosing choosing(room_, plan.number);
        try {
            choosing.take(count, only_waiting ? Deadline::after(milliseconds::zero()) : deadline_, check);
        } catch (const std::exception& error) {
            plan.problem = fmt::format("grow of group \"{}\": {}", old_->name(), error.what());
            room_.store().set(WaitingRoom::plan(plan.number), object::encode_string(plan));
            throw;
        }
        const int taken = static_cast<int>(choosing.taken().size());
        if (taken < count && !only_waiting) {
            plan.problem = fmt::format("grow of group \"{}\" ({} ranks): {} of {} newcomers came to {} in time",
                                       old_->name(), ranks.size(), taken, count, room_.describe());
        } else if (taken == 0 && !has_failed_) {
            plan.number.clear();
        }
        plan.old_ranks = places(ranks, choosing.taken());
        plan.description =
            fmt::format("ranks {} of \"{}\" and {} newcomer{}", fmt::join(old_->ranks().global(ranks), ", "),
                        old_->name(), taken, taken == 1 ? "" : "s");
        plan.joining_ms = std::max<std::int64_t>(deadline_.timeout().count(), 1000);
        // Another rank may have written that the group is lost.
        const std::string text = object::encode_string(plan);
        if (for_ranks.compare_set("plan", "", text) != text)
            plan.problem = fmt::format("grow of group \"{}\": {}", old_->name(), Lost().what());
        if (taken == 0) return;
        std::vector<std::string> labels;
        for (const std::int64_t ticket : choosing.taken()) labels.push_back(WaitingRoom::who(ticket));
        TUTTI_INFO("group \"{}\" takes in {}", old_->name(), fmt::join(room_.store().multi_get(labels), ", "));
        room_.store().set(WaitingRoom::plan(plan.number), object::encode_string(plan));
    }

    /// Old ranks keep their numbers where there are such; then the free numbers are given out, newcomers' last.
    std::vector<std::int64_t> places(const std::vector<int>& ranks, const std::vector<std::int64_t>& tickets) const {
        constexpr std::int64_t nobody = -1;
        std::vector<std::int64_t> all(ranks.size() + tickets.size(), nobody);
        std::vector<std::int64_t> others;
        for (const int rank : ranks) {
            if (static_cast<std::size_t>(rank) < all.size())
                all[static_cast<std::size_t>(rank)] = rank;
            else
                others.push_back(rank);
        }
        for (const std::int64_t ticket : tickets) others.push_back(ticket_as_rank(ticket));
        auto next = others.begin();
        for (std::int64_t& place : all) {
            if (place == nobody) place = *next++;
        }
        TUTTI_ASSERT(next == others.end());
        return all;
    }

    std::shared_ptr<detail::Group> join(const NewGroup& plan, const GrowthCheck& check);

    struct Lost final : std::exception {
        const char* what() const noexcept override { return "a rank was lost before the newcomers were taken in"; }
    };
    static constexpr const char* lost = "lost";

    const std::shared_ptr<detail::Group> old_;
    const GrowOptions& options_;
    WaitingRoom room_;
    Deadline deadline_;
    Store store_;
    bool has_failed_ = false;
};

/// What the group's ranks and a newcomer do alike: all join the new world, and leave it again if one could not.
std::shared_ptr<detail::Group> join_new_world(const NewGroup& plan, int rank, const Store& room,
                                              ProcessGroupOptions options, const GrowthCheck& check) {
    const Deadline deadline = Deadline::after(milliseconds(plan.joining_ms));
    options.store = PrefixStore("world/" + plan.number, room);
    options.rank = rank;
    options.world_size = plan.size();
    options.timeout = milliseconds(plan.timeout_ms);
    options.name = plan.name;
    options.transport = static_cast<TransportKind>(plan.transport);
    options.determinism = static_cast<Determinism>(plan.determinism);
    options.backend = plan.backend;
    const auto late = [&](const std::string& why) {
        return Timeout(fmt::format("grow: the group of {} was not made: {}", plan.description, why),
                       {.operation = "grow", .group = plan.name, .rank = rank});
    };
    std::shared_ptr<detail::Group> group;
    try {
        group = detail::Group::of_all(options, {.worlds_in_store = rendezvous::Attempt::Worlds::one,
                                                .joining = {.deadline = deadline, .check = check},
                                                .description = plan.description,
                                                .senior = plan.senior()});
        barrier({.group = ProcessGroup(group), .timeout = deadline.timeout()});  // nobody goes on alone
        return group;
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        throw late(error.what());
    }
}

std::shared_ptr<detail::Group> Growing::join(const NewGroup& plan, const GrowthCheck& check) {
    return join_new_world(plan, plan.rank_of(old_->rank()), room_.store(),
                          {.pg_options = old_->backends().options(),
                           .device_id = old_->backends().device(),
                           .listen_host = old_->world().setup().listen_host},
                          check);
}

}  // namespace

ProcessGroup ProcessGroup::grow(const GrowOptions& o) const {
    const record::CallSite site;
    api::check_timeout("grow", o.timeout);
    if (o.count < 0) api::refuse("grow: count is {}: expected zero or more newcomers", o.count);
    if (o.patience && *o.patience < milliseconds::zero())
        api::refuse("grow: patience {} ms: expected zero or more", o.patience->count());
    if (!*this) api::refuse("grow: this rank has no such group: expected a group that it is in");
    std::shared_ptr<detail::Group> grown = Growing(group_, o).run();
    return grown ? ProcessGroup(std::move(grown)) : *this;
}

void ProcessGroup::adopt(const std::vector<TensorView>& tensors) const {
    const record::CallSite site;
    if (!*this) api::refuse("adopt: this rank has no such group: expected a group that it is in");
    std::vector<Work> works;
    for (const TensorView& tensor : tensors)
        works.push_back(async::broadcast(tensor, {.group = *this, .group_src = group_->senior()}));
    for (Work& work : works) work.wait();
}

ProcessGroup join(const JoinOptions& o) {
    const record::CallSite site;
    if (o.timeout <= milliseconds::zero())
        api::refuse("join: timeout {} ms: expected more than zero", o.timeout.count());
    WaitingRoom room(o.place, o.name, "join");
    Store& store = room.store();
    const Deadline deadline = Deadline::after(o.timeout);
    const std::int64_t ticket = store.add("asked", 1);
    const std::string answer = WaitingRoom::answer(ticket);
    store.backend()->set_will(answer, process_ended, deadline.timeout());
    store.set(WaitingRoom::who(ticket),
              o.label.empty() ? fmt::format("process {} of {}", ::getpid(), this_host::name()) : o.label);
    const auto leave = [&] { return store.compare_set(answer, "", newcomer_left); };
    std::string number;
    try {
        const Patience patience([&] { return fmt::format("a group to take this process in at {}", room.describe()); });
        const auto text = wait_for(store, answer, deadline, {});
        number = text ? *text : leave();
    } catch (...) {
        (void)leave();
        throw;
    }
    const ErrorContext context{.operation = "join", .group = o.name};
    if (number == newcomer_left) {
        throw Timeout(
            fmt::format("join: no group took this process in at {}, name \"{}\", within {} ms; expected its ranks "
                        "to call grow with that place",
                        room.describe(), o.name, o.timeout.count()),
            context);
    }
    // The leader's plan comes when it has all newcomers; its last will comes if it ends.
    const auto text = wait_for(store, WaitingRoom::plan(number), deadline, {});
    (void)store.delete_key(WaitingRoom::who(ticket));
    if (!text) throw Timeout("join: the group that took this process in waits for more newcomers", context);
    const NewGroup plan = object::decode_string(*text).get<NewGroup>();
    if (!plan.problem.empty()) throw Timeout(plan.problem, context);
    return ProcessGroup(join_new_world(plan, plan.rank_of(ticket_as_rank(ticket)), store,
                                       {.pg_options = o.pg_options, .listen_host = o.listen_host}, {}));
}

int newcomers_waiting(const NewcomersPlace& place) {
    return static_cast<int>(WaitingRoom(place.place, place.name, "newcomers_waiting").waiting().size());
}

}  // namespace tutti
