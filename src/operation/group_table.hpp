// GroupTable: the groups of a world by number, and which ranks have left which groups.
//
// Every rank takes part in the calls that make groups, so all assign the same numbers and the same offsets in shared
// memory without communication; groups that only some ranks make (use_local_synchronization) get theirs from the store.
//
// Threads: any.
#pragma once

#include "core/thread_safety.hpp"
#include "transport/mailbox.hpp"

#include <tutti/store.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::detail {

class Member;

/// A group's share of its world's numbers and shared memory.
struct GroupPlace {
    std::uint32_t index = 0;
    std::uint64_t offset = 0;
};

class GroupTable final : public transport::Calls {
 public:
    explicit GroupTable(std::string world, Store store = {}) : world_(std::move(world)), store_(std::move(store)) {}
    /// Sets the world's store, known once the ranks have joined.
    void use(Store store) { store_ = std::move(store); }

    void add(std::uint32_t index, const std::shared_ptr<Member>& group);
    /// The group with that number (0: of all ranks); null: this rank is not a member, or the group has been destroyed.
    std::shared_ptr<Member> find(std::uint32_t index) const;
    std::vector<std::shared_ptr<Member>> all() const;
    void add_all(std::vector<std::shared_ptr<Member>>& groups) const;

    /// A lock to hold from the agreement on new groups until they have their numbers: if two threads make groups
    /// concurrently, they get the same numbers on all ranks, or an error.
    [[nodiscard]] std::unique_lock<std::mutex> making() { return std::unique_lock(making_); }
    /// Takes `count` numbers, each with `part_bytes` of shared memory; returns the first.
    GroupPlace next_place(std::uint32_t count, std::uint64_t part_bytes);
    /// As next_place(), for groups that only some ranks make: the store counts these.
    GroupPlace next_place_in_store(std::uint32_t count, std::uint64_t part_bytes);

    /// This rank leaves a group, or all groups: messages announced for it are refused from now on.
    void leave(std::uint32_t index);
    void leave_all();
    void forget(std::uint32_t index);
    /// Another rank (of the world) has left a group, and this rank has read all that it sent there.
    void note_left(std::uint32_t index, int peer);
    bool has_left(std::uint32_t index, int peer) const;

    // What the mailbox asks (Calls).
    bool has_left(std::uint64_t channel) const override;
    std::uint64_t fingerprint_of(std::uint64_t channel) const override;
    bool has_finished(std::uint64_t channel) const override;
    bool has_sent_all(int peer, std::uint64_t channel) const override;

    /// In a forked child: makes new locks, since the threads that held the old ones exist only in the parent.
    void renew_locks() noexcept;

 private:
    std::string world_;
    Store store_;
    std::mutex making_;
    mutable Mutex mutex_;
    std::map<std::uint32_t, std::weak_ptr<Member>> groups_ TUTTI_GUARDED_BY(mutex_);
    std::uint32_t next_index_ TUTTI_GUARDED_BY(mutex_) = 1;  // 0: the group of all ranks
    std::uint64_t next_offset_ TUTTI_GUARDED_BY(mutex_) = 0;
    bool leaves_all_ TUTTI_GUARDED_BY(mutex_) = false;
    std::set<std::uint32_t> left_ TUTTI_GUARDED_BY(mutex_);                          // by this rank
    std::set<std::pair<std::uint32_t, int>> left_by_peer_ TUTTI_GUARDED_BY(mutex_);  // (group, rank)
};

}  // namespace tutti::detail
