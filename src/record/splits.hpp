// Splits: how much each rank sent and received in a group's latest calls of all_to_all, where dumps or pages are
// wanted.
//
// Invariant: the splits are in the order of their tickets, none is of an operation that the ring has lost, and all of
// them together have 262,144 counts of one direction at most (2 MB).
//
// Threads: any.
#pragma once

#include "record/ring.hpp"

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::record {

class Splits {
 public:
    /// In elements, by rank. Tickets rise from call to call.
    void note(Ticket ticket, std::span<const std::uint64_t> sent, std::span<const std::uint64_t> received);
    /// Fills in Entry::sent and Entry::received; `entries` are in the order of their numbers.
    void add_to(std::vector<Entry>& entries) const;

 private:
    struct Split {
        Ticket ticket = 0;
        std::vector<std::uint64_t> sent, received;
    };
    mutable std::mutex mutex_;
    std::deque<Split> latest_;
};

}  // namespace tutti::record
