// Budget: bounds what reading and proving a text from outside may cost. A few lines can ask for a proof that needs more
// memory and time than the machine has.
//
// Threads: one at a time.
#pragma once

#include <tutti/error.hpp>

#include <cstdint>
#include <limits>

namespace tutti::schedule {

/// A proof that would exceed its budget.
class ProofTooLarge : public InvalidArgument {
    using InvalidArgument::InvalidArgument;
};

class Budget {
 public:
    /// For a user's text: roughly the bytes of memory that its proof writes.
    static constexpr std::uint64_t of_users_text = std::uint64_t{1} << 29;

    static Budget unlimited() { return Budget(std::numeric_limits<std::uint64_t>::max()); }
    explicit Budget(std::uint64_t bytes) : left_(bytes) {}
    void spend(std::uint64_t bytes) {
        if (bytes > left_)
            throw ProofTooLarge(
                "its proof takes more than 512 MiB of work (each step's elements, and the contributions in each): "
                "expected fewer steps or elements; larger calls run by multiples of a short text");
        left_ -= bytes;
    }

 private:
    std::uint64_t left_;
};

}  // namespace tutti::schedule
