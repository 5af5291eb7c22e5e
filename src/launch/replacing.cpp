// The part of an attempt that lets other processes take the places of ranks that die (--replace, --spares).
#include "core/assert.hpp"
#include "launch/attempt.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::launch {
namespace {

// "rank 2 (pid 4711) was killed by signal 9 (SIGKILL)".
std::string end_in_words(const std::string& name, const Child& child) {
    const std::string cause = cause_in_words(child);
    return fmt::format("{} (pid {}) {}{}", name, child.pid, cause.starts_with("killed") ? "was " : "", cause);
}

}  // namespace

// Whether a rank of the job runs here; newcomers are none yet.
bool Attempt::works() const {
    return std::ranges::any_of(members_, [](const Member& m) { return m.child.running() && !m.task.is_newcomer; });
}

std::vector<const Attempt::Member*> Attempt::waiting() const {
    std::vector<const Member*> all;
    for (const Member& member : members_) {
        if (member.child.running() && member.task.is_newcomer) all.push_back(&member);
    }
    return all;
}

void Attempt::take_deaths() {
    if (replacements_ == nullptr || stopping_ || terminate_at_) return note_failures();
    bool must_end = false;
    for (std::size_t m = 0; m < members_.size(); ++m) {  // there will be more of them
        if (members_[m].child.failed() && !members_[m].is_replaced) must_end |= !replace(m);
        if (stopping_) return;  // the program is not there any more
    }
    drop_replaced([](const Member& m) { return m.task.is_newcomer; });
    is_lost_ = nodes_ == nullptr && are_lost();
    if (must_end || is_lost_)
        note_failures();
    else if (nodes_ == nullptr && !works())
        end_newcomers();
}

// They have nobody to join.
void Attempt::end_newcomers() {
    drop_replaced([](const Member&) { return true; });
    stop(0);
}

// Told to end, this node leaves the job, which goes on: a platform takes a machine away so.
bool Attempt::leaves() const {
    return replacements_ != nullptr && nodes_ != nullptr && nodes_->may_leave() && ended_by_ == SIGTERM;
}

NodeState Attempt::state() const {
    using Kind = NodeState::Kind;
    if (works()) return {Kind::works};
    if (are_lost()) {
        const auto blame = find_culprit(suspects(true));
        TUTTI_ASSERT(blame.has_value());
        return {Kind::dead,
                {.good = false,
                 .again = restarts_.may_start_all(),
                 .status = exit_status(members_[blame->decisive()].child),
                 .text = in_words(*blame, suspects(true), limits_.started, false)}};
    }
    const bool is_well = std::ranges::any_of(members_, [](const Member& m) { return !m.task.is_newcomer; });
    return {is_well ? Kind::well : Kind::idle};
}

// False: the attempt cannot go on without that process.
bool Attempt::replace(std::size_t index) {
    const bool was_newcomer = members_[index].task.is_newcomer;
    const std::string what = end_in_words(members_[index].task.name, members_[index].child);
    if (!was_newcomer && !have_met_) return false;
    const bool again = was_newcomer ? restarts_.newcomer_died() : restarts_.rank_died();
    if (!again && (!was_newcomer || static_cast<std::size_t>(restarts_.holes()) > waiting().size())) return false;
    members_[index].is_replaced = true;
    if (!again) {
        say(fmt::format("tutti run: {} before it had joined; no restarts are left, and none comes for it\n", what));
        return true;
    }
    if (!start(replacements_->newcomer(members_[index].task.slot, static_cast<int>(tasks_started_)))) return true;
    const auto ready = waiting();
    TUTTI_ASSERT(!ready.empty());
    const std::size_t turn = was_newcomer ? ready.size() - 1 : static_cast<std::size_t>(restarts_.holes()) - 1;
    const Member& successor = *ready[std::min(turn, ready.size() - 1)];
    say(fmt::format("tutti run: {}{}; {} is to take its place, {} restart{} left\n", what,
                    was_newcomer ? " before it had joined" : "", successor.task.name, restarts_.left(),
                    restarts_.left() == 1 ? "" : "s"));
    return true;
}

// The process says that it is this rank now: a newcomer that has joined, or a rank whose group has changed.
void Attempt::note_rank(Member& member, int rank, int size) {
    TUTTI_ASSERT(replacements_ != nullptr && rank >= 0 && rank < size);
    const std::string name = fmt::format("rank {}", rank);
    if (member.task.is_newcomer)
        say(fmt::format("tutti run: {} (pid {}) is {} of {} now\n", member.task.name, member.child.pid, name, size));
    have_met_ = true;
    member.task.is_newcomer = false;
    member.task.rank = rank;
    member.task.name = name;
    output_.rename(member.output, name, replacements_->prefix(rank));
    restarts_.is_whole();
    drop_replaced([](const Member&) { return true; });
}

// Forgets processes whose end is not this attempt's failure.
template <class Which>
void Attempt::drop_replaced(Which which) {
    TUTTI_ASSERT(!blame_);
    for (Member& member : members_) {
        if (member.is_replaced && which(member) && member.is_kept) collect(member);
    }
    std::erase_if(members_, [&](const Member& m) { return m.is_replaced && which(m); });
}

// Whether no rank runs that could take newcomers in, and the work is not done either. It is done where ranks have ended
// well without those that died, and no rank failed in consequence.
bool Attempt::are_lost() const {
    if (works() || restarts_.holes() == 0) return false;
    Moment first = Moment::max();
    int failed = 0;
    for (const Member& member : members_) {
        if (!member.is_replaced) continue;
        first = std::min(first, member.ended);
        failed += was_killed(member.child) ? 0 : 1;
    }
    const bool went_on = std::ranges::any_of(
        members_, [&](const Member& m) { return !m.task.is_newcomer && m.child.status == 0 && m.ended >= first; });
    return !went_on || failed > 1;
}

}  // namespace tutti::launch
