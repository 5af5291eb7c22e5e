// What others say, and failures; and the groups of a world.
#include "core/log.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"
#include "group/world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::detail {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

namespace {

constexpr std::chrono::milliseconds cause_patience{500};

}  // namespace

// ---- Groups

void World::add(std::uint32_t index, const std::shared_ptr<Group>& group) {
    const std::lock_guard lock(groups_mutex_);
    std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
    groups_[index] = group;
}

std::shared_ptr<Group> World::find(std::uint32_t index) const {
    const std::lock_guard lock(groups_mutex_);
    const auto found = groups_.find(index);
    return found == groups_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Group>> World::groups() const {
    std::vector<std::shared_ptr<Group>> all;
    const std::lock_guard lock(groups_mutex_);
    for (const auto& [index, group] : groups_) {
        if (auto held = group.lock()) all.push_back(std::move(held));
    }
    return all;
}

World::Place World::next_place(std::uint32_t count, std::uint64_t part_bytes) {
    const std::lock_guard lock(mutex_);
    if (next_index_ + count > Channel::groups_max / 2)
        throw DistBackendError(fmt::format("{} groups: a world has no numbers for more", next_index_));
    const Place place{next_index_, next_offset_};
    next_index_ += count;
    next_offset_ += count * part_bytes;
    return place;
}

// Numbers and places of the upper half.
World::Place World::next_place_in_store(std::uint32_t count, std::uint64_t part_bytes) {
    Store store = PrefixStore("group/" + name_ + "/places", store_);
    const auto index = store.add("index", count) - count;
    const auto offset = store.add("offset", static_cast<std::int64_t>(count * part_bytes));
    if (index + count > Channel::groups_max / 2)
        throw DistBackendError(fmt::format("{} groups: a world has no numbers for more", index));
    return {static_cast<std::uint32_t>(index) + Channel::groups_max / 2,
            transport::Arena::parts_bytes / 2 + static_cast<std::uint64_t>(offset) - count * part_bytes};
}

std::uint64_t World::fingerprint_of(std::uint64_t channel) const {
    const std::uint32_t index = Channel::group(channel);
    const auto group = find(index);
    return group ? group->fingerprint_at(Channel::sequence(channel)) : 0;
}

void World::mismatch(int peer, std::uint64_t channel, std::uint64_t theirs, std::uint64_t mine, std::size_t their_bytes,
                     std::size_t my_bytes) {
    const auto group = find(Channel::group(channel));
    if (!group) return;
    const int from = group->rank_of(peer);
    const std::uint64_t sequence = Channel::sequence(channel);
    if (theirs == mine) return group->mismatch_of_blocks(from, sequence, mine, their_bytes, my_bytes);
    group->mismatch(from, sequence, theirs, mine);
}

// ---- What others say

void World::on_verdict(const Verdict& verdict) {
    if (rendezvous::is_accusation(verdict.kind)) {
        if (const auto group = find(verdict.group)) group->publish_tail(verdict.text);
    }
    const std::lock_guard lock(verdict_mutex_);
    note(verdict);
    judged_.notify_all();
    if (verdict.kind == VerdictKind::silent || verdict.kind == VerdictKind::judged) return;
    if (verdict.kind == VerdictKind::left && verdict.text.empty()) {
        goodbyes_.insert(verdict.rank);
        return;
    }
    // A cause beats a symptom.
    if (!verdict_ || verdict_->kind == VerdictKind::left) verdict_ = verdict;
    has_verdict_.store(true, std::memory_order_release);
    bad_news_.raise(verdict_->text);  // whoever is connecting need not go on
}

void World::tell(const Verdict& verdict, bool here) {
    if (here) {
        const std::lock_guard lock(verdict_mutex_);
        if (verdict_) return;
        verdict_ = verdict;
        has_verdict_ = true;
    }
    membership_->flood(verdict);
}

std::optional<Verdict> World::gone(int peer) const {
    const auto left = [&] { return Verdict{VerdictKind::left, peer, fmt::format("rank {} has left the group", peer)}; };
    const auto ended = ended_streams_.find(peer);
    {
        const std::lock_guard lock(verdict_mutex_);
        // A goodbye travels apart from the data: bytes that a connection still holds count first.
        const bool is_over = ended != ended_streams_.end() || !has_connection_to(peer) || mailbox_->is_over(peer);
        if (goodbyes_.contains(peer) && is_over) return left();
    }
    // Nothing more comes in any case. Why, a goodbye or a verdict tells, which may still be on its way.
    if (ended != ended_streams_.end())
        return Clock::now() - ended->second < cause_patience ? std::nullopt : std::optional(left());
    const auto broken = broken_.find(peer);
    if (broken == broken_.end() || Clock::now() - broken->second.when < cause_patience) return std::nullopt;
    return Verdict{VerdictKind::peer_lost, peer,
                   fmt::format("rank {} cannot be reached any more: {}", peer, broken->second.why)};
}

std::vector<int> World::departed() const {
    std::vector<int> ranks;
    const std::lock_guard lock(verdict_mutex_);
    for (int rank = 0; rank < size_; ++rank) {
        if (goodbyes_.contains(rank) || mailbox_->has_ended(rank)) ranks.push_back(rank);
    }
    return ranks;
}

void World::apply_verdict() {
    Verdict verdict;
    {
        const std::lock_guard lock(verdict_mutex_);
        verdict = *verdict_;
        has_verdict_.store(false, std::memory_order_relaxed);
    }
    if (failure_) return;
    std::string title = fmt::format("group \"{}\" ({} ranks)", name_, size_);
    ErrorContext context;
    // What this rank has in flight, in the group in which it is.
    std::shared_ptr<Operation> disturbed;
    if (!active_.empty())
        disturbed = active_.front()->front();
    else if (!messages_.empty())
        disturbed = messages_.front();
    if (disturbed) {
        title = disturbed->group->title_of(*disturbed);
        context = disturbed->group->context_of(*disturbed);
    }
    if (context.group.empty()) context.group = name_;
    context.rank = rank_;
    context.peer = verdict.rank;
    switch (verdict.kind) {
        case VerdictKind::mismatch:
        case VerdictKind::timed_out: return fail_as_told(context);
        case VerdictKind::aborted:
            return fail(std::make_exception_ptr(
                Aborted(fmt::format("{}: aborted by rank {}: {}", title, verdict.rank, verdict.text), context)));
        case VerdictKind::damaged:
            return fail(std::make_exception_ptr(
                DistBackendError(fmt::format("{}: {}", title, verdict.text), context, ErrorCode::network)));
        case VerdictKind::peer_lost:
        case VerdictKind::host_lost:
        case VerdictKind::left:
            return fail(std::make_exception_ptr(PeerLost(fmt::format("{}: {}", title, verdict.text), context)));
        case VerdictKind::silent:
        case VerdictKind::judged: return;  // they are not a verdict by themselves
    }
}

// ---- Failing

void World::fail(const std::exception_ptr& error) {
    if (failure_) return;
    if (executing_) {
        if (!deferred_) deferred_ = error;
        return;
    }
    progress_messages();  // what has been sent, or has come, succeeded
    failure_ = error;
    take_back_offers();
    if (mailbox_) mailbox_->drop_all();
    for (Group* group : std::exchange(active_, {})) group->drop(error);
    for (auto& operation : std::exchange(messages_, {})) complete(operation, error);
    for (const auto& group : groups()) group->record_failure(error);
}

// Whoever sent gets its memory back.
void World::take_back_offers() noexcept {
    if (!offers_) return;
    offers_->withdraw([this](int local) { return memory_of(rank_of_local_[static_cast<std::size_t>(local)]); });
}

void World::abort(const std::string& reason) {
    if (inherited_) std::rethrow_exception(failure_);
    membership_->flood({VerdictKind::aborted, rank_, reason});
    {
        const Held held(*this);
        fail(std::make_exception_ptr(Aborted(fmt::format("group \"{}\" was aborted: {}", name_, reason))));
    }
    for (const auto& group : groups()) group->end_backends(failure_);
}

bool World::end(const std::string& reason) {
    if (inherited_) std::rethrow_exception(failure_);
    {
        const Held held(*this);
        if (left_) return false;
        progress();  // a verdict that nobody has looked at is the cause
        if (failure_) return true;
    }
    abort(reason);
    return true;
}

}  // namespace tutti::detail
