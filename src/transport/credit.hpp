// Credit: how many bytes two ranks may send each other ahead of the receives. A rank spends what the other has given
// it, and gets it back as receives take its messages, mostly with messages that go the other way anyhow.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::transport {

class Credit {
 public:
    /// Bytes that one peer may have sent and no receive has consumed yet, with message_cost for each message.
    static constexpr std::size_t limit = std::size_t{2} << 20;
    /// The cost of an eager message beside its bytes: the bookkeeping while no receive is posted.
    static constexpr std::size_t message_cost = 256;
    static constexpr std::size_t cost_of(std::size_t length) { return length + message_cost; }

    bool allows(std::size_t cost) const noexcept { return cost <= available_; }
    void spend(std::size_t cost) noexcept {
        TUTTI_ASSERT(allows(cost));
        available_ -= cost;
    }
    /// Counts a message of that cost which the peer has sent (0: none), and the credit that the peer gives back. Both
    /// numbers come from the peer: false where they exceed the limits.
    bool take_in(std::uint64_t cost, std::uint64_t given_back, std::size_t longest) noexcept {
        TUTTI_ASSERT(available_ <= limit && unconsumed_ <= limit);
        if (cost > cost_of(longest) || unconsumed_ + cost > limit || given_back > limit - available_) return false;
        unconsumed_ += cost;
        available_ += given_back;
        TUTTI_ASSERT(available_ <= limit && unconsumed_ <= limit);
        return true;
    }
    /// A receive has taken a message. True: so much is owed that the peer should not have to wait for our next message.
    bool consume(std::size_t length) noexcept {
        TUTTI_ASSERT(owed_ + cost_of(length) <= unconsumed_);
        owed_ += cost_of(length);
        return owed_ >= limit / 2;
    }
    std::size_t owed() const noexcept { return owed_; }
    /// Pays what is owed, with a message that says so.
    std::uint64_t give_back() noexcept {
        TUTTI_ASSERT(owed_ <= unconsumed_);
        unconsumed_ -= owed_;
        return std::exchange(owed_, 0);
    }

 private:
    std::size_t available_ = limit;  // that we may still send
    std::size_t unconsumed_ = 0;     // that the peer has sent and we have not given back
    std::size_t owed_ = 0;           // that we have consumed and not given back
};

}  // namespace tutti::transport
