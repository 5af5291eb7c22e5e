// Meeting: members of a group that is being made wait for each other in the store, without the other ranks.
//
// Ranks that make overlapping groups in different orders could wait for each other for ever. A rank that has waited for
// a moment says for which group, and follows the words of the others: a rank that finds itself on a circle lets the
// meetings on it fail, with one text on all ranks.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "group/world.hpp"

#include <string>
#include <vector>

namespace tutti::detail {

class Meeting {
 public:
    /// `members`: ranks of the world, ascending. `number`: how many groups of the same members this rank has made
    /// before.
    Meeting(World& world, std::vector<int> members, std::uint64_t number, const Deadline& deadline);

    /// A number and a place that all members learn: its lowest takes them.
    GroupPlace take_place(std::uint64_t part_bytes);
    /// Returns when all members have called it. Throws, on all members that come, InvalidArgument for a circle, Timeout
    /// that names the missing ranks: they may try again together.
    void wait_for_all();

 private:
    std::string settle(const std::string& id, const std::string& outcome);
    void accept(const std::string& outcome);
    std::vector<int> missing(const std::string& id, const std::vector<int>& members);
    struct Waiting {
        std::string said;  ///< as it stands in the store; empty: it does not wait
        std::string id;
        std::vector<int> members;
    };
    Waiting waiting(int rank);
    bool find_circle(int rank, std::vector<std::pair<int, Waiting>>& path);
    void look_for_circle();

    World& world_;
    Store store_;
    std::vector<int> members_;
    std::string id_;
    Deadline deadline_;
};

}  // namespace tutti::detail
