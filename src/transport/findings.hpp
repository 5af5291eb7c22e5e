// Findings: what a mailbox has found and cannot settle itself, until its owner takes it.
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
        mismatch,    ///< a peer's message does not fit the receive that it meets, or a probe found another operation
        damaged,     ///< bytes of a peer changed on the way; its stream is closed
        left_group,  ///< a peer has left the group with that channel: all that it sent there has been seen
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
    /// Whether a message is the one that a receive is for; else that is a mismatch.
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
