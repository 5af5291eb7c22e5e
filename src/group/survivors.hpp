// Survivors: the ranks of a group that are still alive after a failure, as they agree in the store.
//
// Each rank writes that it is present, and which ranks it knows to be dead. The lowest live rank writes the list when
// every other rank is present or dead; the first list that reaches the store is valid for all, so it does not matter if
// two ranks both believe to be the lowest. A rank whose timeout passes ends the attempt for all in the same way. The
// news of a death may not reach all ranks, and a rank may die unnoticed: so the others try to connect to missing ranks.
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

    /// The surviving ranks of the group, ascending, this rank among them. Throws Timeout that names live ranks that
    /// have not called, PeerLost if the survivors continue without this rank, DistStoreError.
    std::vector<int> agree();
    /// The store for the world of the survivors.
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
