// Credit: how many bytes two ranks may send each other before receives are posted. Each rank spends the credit that its
// peer has granted. The peer gives credit back as its receives consume messages, mostly in the headers of messages that
// it sends anyway.
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
    /// Most bytes that one peer may have sent and no receive has consumed, counting message_cost for each message.
    static constexpr std::size_t limit = (std::size_t{2} << 20) + 512;
    /// What an eager message costs in addition to its bytes: the bookkeeping while no receive is posted.
    static constexpr std::size_t message_cost = 256;
    static constexpr std::size_t cost_of(std::size_t length) { return length + message_cost; }

    bool allows(std::size_t cost) const noexcept { return cost <= available_; }
    void spend(std::size_t cost) noexcept {
        TUTTI_ASSERT(allows(cost));
        available_ -= cost;
    }
    /// Counts a message of cost `cost` that the peer has sent (0: none), and the credit that the peer gives back. Both
    /// numbers come from the peer: returns false if either exceeds its limit.
    bool take_in(std::uint64_t cost, std::uint64_t given_back, std::size_t longest) noexcept {
        TUTTI_ASSERT(available_ <= limit && unconsumed_ <= limit);
        if (cost > cost_of(longest) || unconsumed_ + cost > limit || given_back > limit - available_) return false;
        unconsumed_ += cost;
        available_ += given_back;
        TUTTI_ASSERT(available_ <= limit && unconsumed_ <= limit);
        return true;
    }
    /// Counts a message that a receive has consumed. True: this rank owes the peer so much credit that it should send
    /// it now instead of waiting for its next message to the peer.
    bool consume(std::size_t length) noexcept {
        TUTTI_ASSERT(owed_ + cost_of(length) <= unconsumed_);
        owed_ += cost_of(length);
        return owed_ >= limit / 2;
    }
    std::size_t owed() const noexcept { return owed_; }
    /// Returns the credit owed, which the caller must send to the peer, and sets it to 0.
    std::uint64_t give_back() noexcept {
        TUTTI_ASSERT(owed_ <= unconsumed_);
        unconsumed_ -= owed_;
        return std::exchange(owed_, 0);
    }

 private:
    std::size_t available_ = limit;  // what we may still send
    std::size_t unconsumed_ = 0;     // what the peer has sent and we have not given back
    std::size_t owed_ = 0;           // what we have consumed and not given back
};

}  // namespace tutti::transport
