// What the ranks of a world say of each other, and together: who is lost or silent, who accuses, who judges.
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::detail {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

namespace {

// Until all that can be reached have heard of an accusation, and until the rank that judges has done so.
constexpr std::chrono::milliseconds hearing_patience{2000}, judgement_patience{3000};

}  // namespace

// What it says about ranks, and who judges; verdict_mutex_ is held.
void World::note(const Verdict& verdict) {
    switch (verdict.kind) {
        case VerdictKind::silent: silent_.insert(verdict.rank); break;
        case VerdictKind::judged:
            if (!judgement_) judgement_ = verdict;
            break;
        case VerdictKind::mismatch:
        case VerdictKind::timed_out:
            if (!accusation_ || outranks(verdict, *accusation_)) accusation_ = verdict;
            break;
        case VerdictKind::left:
        case VerdictKind::peer_lost: gone_for_good_.insert(verdict.rank); break;
        case VerdictKind::host_lost: on_lost_hosts_.insert(verdict.rank); break;
        case VerdictKind::aborted:
        case VerdictKind::damaged: break;
    }
}

bool World::accuse(const Verdict& accusation) {
    if (!membership_->flood(accusation)) return false;
    {
        const std::lock_guard lock(verdict_mutex_);
        note(accusation);
    }
    for (const Deadline end = Deadline::after(hearing_patience);;) {
        const bool all_know = membership_->settled() || end.expired();
        std::unique_lock lock(verdict_mutex_);
        if (judgement_ || accusation_->from != rank_) return false;
        if (all_know) return true;
        judged_.wait_for(lock, std::chrono::milliseconds(1));
    }
}

// What the rank says that judges; the accusation itself when that does not come.
Verdict World::await_judgement() {
    std::unique_lock lock(verdict_mutex_);
    judged_.wait_for(lock, judgement_patience,
                     [this] { return judgement_ || (accusation_ && gone_for_good_.contains(accusation_->from)); });
    return judgement_ ? *judgement_ : accusation_ ? *accusation_ : *verdict_;
}

void World::fail_as_told(ErrorContext context) {
    const Verdict told = await_judgement();
    context.rank = rank_;
    context.peer = told.rank;
    if (const auto group = find(told.group)) return group->fail_as_told(told, context);
    const auto judgement = record::read_judgement(told.text);
    const std::string text = fmt::format(
        "group \"{}\" ({} ranks): a group of other ranks has failed, and with it the "
        "world: {}",
        name_, size_, judgement ? judgement->text : told.text);
    const bool disagreement = judgement ? judgement->disagreement : told.kind == VerdictKind::mismatch;
    if (disagreement) return fail(std::make_exception_ptr(CollectiveMismatch(text, context)));
    fail(std::make_exception_ptr(Timeout(text, context)));
}

std::vector<int> World::silent() const {
    const std::lock_guard lock(verdict_mutex_);
    return {silent_.begin(), silent_.end()};
}

std::vector<int> World::gone_for_good() const {
    const std::lock_guard lock(verdict_mutex_);
    std::set<int> gone = gone_for_good_;
    const auto& cards = membership_->cards();
    const auto host_of = [&](int rank) { return cards[static_cast<std::size_t>(rank)].host_key; };
    for (const int lost : on_lost_hosts_) {
        for (int rank = 0; rank < size_; ++rank) {
            if (host_of(rank) == host_of(lost)) gone.insert(rank);
        }
    }
    return {gone.begin(), gone.end()};
}

}  // namespace tutti::detail
