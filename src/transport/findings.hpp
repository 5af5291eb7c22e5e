// Findings: problems and events that a mailbox has found and its owner has to handle. They wait here for the owner.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "transport/frame.hpp"
#include "transport/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport {

struct Finding {
    enum class Kind : std::uint8_t {
        mismatch,    ///< a message does not fit the receive that it matched, or a probe (CallChecks) found another call
        damaged,     ///< bytes from a peer were corrupted on the way; its stream is closed
        left_group,  ///< a peer has left the channel's group, and this rank has received all that the peer sent there
    };
    Kind kind = Kind::mismatch;
    int peer = -1;
    std::uint64_t channel = 0;
    std::uint64_t theirs = 0, mine = 0;         ///< mismatch: fingerprints
    std::size_t their_bytes = 0, my_bytes = 0;  ///< mismatch
    std::string what{};                         ///< damaged
};

class Findings {
 public:
    bool empty() const noexcept { return found_.empty(); }
    std::vector<Finding> take() { return std::exchange(found_, {}); }
    void add(Finding finding) {
        TUTTI_ASSERT(finding.peer >= 0);
        found_.push_back(std::move(finding));
    }
    void add_mismatch(int peer, const Frame& frame, std::uint64_t mine, std::size_t their_bytes, std::size_t my_bytes) {
        TUTTI_ASSERT(peer >= 0);
        found_.push_back({.kind = Finding::Kind::mismatch,
                          .peer = peer,
                          .channel = frame.channel,
                          .theirs = frame.fingerprint,
                          .mine = mine,
                          .their_bytes = their_bytes,
                          .my_bytes = my_bytes});
    }
    /// Whether a message has the length and fingerprint of the receive that it matched; if not, adds a mismatch.
    bool fits(int source, const Frame& frame, const Transfer& receive) {
        TUTTI_ASSERT(!receive.done);
        TUTTI_ASSERT(receive.peer == any_source || receive.peer == source);
        if (frame.length == receive.bytes && frame.fingerprint == receive.fingerprint) [[likely]]
            return true;
        add_mismatch(source, frame, receive.fingerprint, frame.length, receive.bytes);
        return false;
    }

 private:
    std::vector<Finding> found_;
};

}  // namespace tutti::transport
