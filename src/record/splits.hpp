// Splits: how much this rank sent to and received from each rank in a group's latest all_to_all calls, recorded if
// dumps or pages are wanted.
//
// Invariant: the splits are in the order of their tickets, none belongs to an operation that the ring has overwritten,
// and all together have at most 262,144 counts per direction (2 MB).
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
    /// Records the numbers of elements, by rank, of the operation `ticket`. Tickets ascend from call to call.
    void note(Ticket ticket, std::span<const std::uint64_t> sent, std::span<const std::uint64_t> received);
    /// Sets Entry::sent and Entry::received; `entries` must be in the order of their numbers.
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
