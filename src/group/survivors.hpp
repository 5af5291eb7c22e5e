// Survivors: who is left of a group, agreed in the store by those who are.
//
// Each writes down that it is here, and who is gone as far as it knows. The lowest that is not gone makes the list when
// everybody else is one or the other; the first list that reaches the store is everybody's, so that it does not matter
// when two ranks believe to be the lowest. Who has waited long enough ends the attempt for all in the same way. After a
// death news do not reach everybody, and a rank may die of whom nobody hears: ranks that are missing are asked whether
// they still listen.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "group/group.hpp"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::detail {

class Survivors {
 public:
    /// `attempt`: how many times this group has been asked for, equal on all ranks.
    Survivors(const Group& group, int attempt, std::chrono::milliseconds timeout,
              std::optional<std::chrono::milliseconds> patience);

    /// Ranks of the group, ascending; this rank is one of them. Throws Timeout that names those who live and did not
    /// come, PeerLost when the others count without this rank, DistStoreError.
    std::vector<int> agree();
    /// For the world of the survivors alone.
    Store store() const { return PrefixStore("world", store_); }
    const Deadline& deadline() const noexcept { return deadline_; }

 private:
    void say(const char* what, int rank);
    std::vector<int> hear_of_the_gone();
    void hear();
    void look_after(const std::vector<int>& ranks);
    bool patience_is_over() const;
    bool decides() const;
    int first_left() const;
    std::vector<int> missing() const;
    std::optional<std::string> result(std::chrono::milliseconds limit);
    std::string settle(const std::string& outcome);
    std::string list_of_those_here();
    std::string wait_for_result();
    std::vector<int> understood(const std::string& result) const;

    const Group& group_;
    Store store_;
    Instant start_;
    Deadline deadline_;
    std::optional<std::chrono::milliseconds> patience_;
    std::set<int> here_, gone_;
    Instant next_look_;
};

}  // namespace tutti::detail
