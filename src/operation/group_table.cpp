#include "operation/group_table.hpp"

#include "core/assert.hpp"
#include "operation/channel.hpp"
#include "operation/member.hpp"
#include "operation/ranks.hpp"
#include "transport/shm/arena.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <new>

namespace tutti::detail {
namespace {

void check_numbers(std::uint64_t taken, std::uint32_t count) {
    if (taken + count > Channel::groups_max / 2)
        throw DistBackendError(fmt::format("{} groups: a world has no numbers for more", taken));
}

}  // namespace

void GroupTable::add(std::uint32_t index, const std::shared_ptr<Member>& group) {
    TUTTI_ASSERT(group != nullptr && index < Channel::groups_max);
    const MutexLock lock(mutex_);
    std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
    groups_[index] = group;
}

std::shared_ptr<Member> GroupTable::find(std::uint32_t index) const {
    const MutexLock lock(mutex_);
    const auto found = groups_.find(index);
    return found == groups_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Member>> GroupTable::all() const {
    std::vector<std::shared_ptr<Member>> alive;
    add_all(alive);
    return alive;
}

void GroupTable::add_all(std::vector<std::shared_ptr<Member>>& groups) const {
    const MutexLock lock(mutex_);
    for (const auto& [index, group] : groups_) {
        if (auto held = group.lock()) groups.push_back(std::move(held));
    }
}

GroupPlace GroupTable::next_place(std::uint32_t count, std::uint64_t part_bytes) {
    const MutexLock lock(mutex_);
    check_numbers(next_index_, count);
    TUTTI_ASSERT(count > 0 && next_index_ > 0);
    const GroupPlace place{next_index_, next_offset_};
    next_index_ += count;
    next_offset_ += count * part_bytes;
    TUTTI_ASSERT(next_index_ > place.index && next_offset_ >= place.offset);
    return place;
}

// Numbers and places of the upper half.
GroupPlace GroupTable::next_place_in_store(std::uint32_t count, std::uint64_t part_bytes) {
    TUTTI_ASSERT(count > 0);
    Store store = PrefixStore("group/" + world_ + "/places", store_);
    const auto index = store.add("index", count) - count;
    const auto offset = store.add("offset", static_cast<std::int64_t>(count * part_bytes));
    check_numbers(static_cast<std::uint64_t>(index), count);
    TUTTI_ASSERT(index >= 0 && offset >= 0);
    return {static_cast<std::uint32_t>(index) + Channel::groups_max / 2,
            transport::Arena::parts_bytes / 2 + static_cast<std::uint64_t>(offset) - count * part_bytes};
}

void GroupTable::leave(std::uint32_t index) {
    TUTTI_ASSERT(index < Channel::groups_max);
    const MutexLock lock(mutex_);
    left_.insert(index);
}

void GroupTable::leave_all() {
    const MutexLock lock(mutex_);
    leaves_all_ = true;
}

void GroupTable::forget(std::uint32_t index) {
    TUTTI_ASSERT(index < Channel::groups_max);
    const MutexLock lock(mutex_);
    groups_.erase(index);
}

void GroupTable::note_left(std::uint32_t index, int peer) {
    const MutexLock lock(mutex_);
    left_by_peer_.emplace(index, peer);
}

bool GroupTable::has_left(std::uint32_t index, int peer) const {
    const MutexLock lock(mutex_);
    return left_by_peer_.contains({index, peer});
}

bool GroupTable::has_left(std::uint64_t channel) const {
    const MutexLock lock(mutex_);
    return leaves_all_ || left_.contains(Channel::group(channel));
}

std::uint64_t GroupTable::fingerprint_of(std::uint64_t channel) const {
    const auto group = find(Channel::group(channel));
    return group ? group->collectives().fingerprint_at(Channel::sequence(channel)) : 0;
}

bool GroupTable::has_finished(std::uint64_t channel) const {
    TUTTI_ASSERT(!Channel::is_message(channel));
    const auto group = find(Channel::group(channel));
    return group && group->collectives().has_finished(Channel::number(channel));
}

bool GroupTable::has_sent_all(int peer, std::uint64_t channel) const {
    const auto group = find(Channel::group(channel));
    return group && group->collectives().has_sent_all(group->ranks().rank_of(peer), Channel::number(channel));
}

void GroupTable::renew_locks() noexcept {
    new (&making_) std::mutex;
    new (&mutex_) Mutex;
}

}  // namespace tutti::detail
