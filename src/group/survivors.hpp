// Survivors: the ranks that are left of a group, as they agree in the store.
//
// Each writes down that it is here, and which ranks are gone as far as it knows. The lowest that is not gone makes the
// list when every other rank is here or gone; the first list that reaches the store holds for all, so that it does not
// matter if two ranks believe to be the lowest. A rank that has waited long enough ends the attempt for all in the same
// way. After a death news may not reach all ranks, and a rank may die unheard: the others ask missing ranks whether
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
    /// `attempt`: how many times the ranks have asked for this group, equal on all of them.
    Survivors(const Group& group, int attempt, std::chrono::milliseconds timeout,
              std::optional<std::chrono::milliseconds> patience);

    /// Ranks of the group, ascending; this rank is one of them. Throws Timeout that names the ranks that live and did
    /// not come, PeerLost when the others count without this rank, DistStoreError.
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
