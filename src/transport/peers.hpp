// Peers: a mailbox's state for each rank with which it has exchanged messages.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "transport/credit.hpp"
#include "transport/frame_reader.hpp"
#include "transport/send_queue.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport {

/// How the stream from a peer ended.
struct StreamEnd {
    Instant when;
    std::string broken{};  ///< why the stream broke off; empty: the peer has said that nothing more comes
};

struct Peer {
    int rank = 0;
    bool lost = false;        ///< this rank no longer reads from the peer, nor writes to it
    bool has_end = false;     ///< we have told the peer that nothing more comes
    std::size_t awaited = 0;  ///< receives posted for or granted to the peer, and sends that the peer has to answer
    Credit credit{};
    SendQueue queue{};
    FrameReader reader{};
    std::optional<StreamEnd> end{};  ///< set once it is lost: how its stream ended

    /// Marks the peer as lost. `why`: empty if the peer itself has ended the stream.
    void lose(std::string why);
    /// Marks the peer as lost if its stream has ended or broken off. True: it broke off because bytes were damaged.
    bool look_at_end(const Stream& stream);
    /// Forgets the transfers with the peer, which their owners are about to destroy.
    void drop() noexcept;
};

class Peers {
 public:
    explicit Peers(int size) : peers_(static_cast<std::size_t>(size)) { TUTTI_ASSERT(size > 0); }

    Peer& at(int rank) {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < peers_.size());
        auto& slot = peers_[static_cast<std::size_t>(rank)];
        if (!slot) [[unlikely]]
            meet(rank);
        TUTTI_ASSERT(slot->rank == rank);
        return *slot;
    }
    /// Null: nothing has been exchanged with that rank.
    Peer* find(int rank) const noexcept {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < peers_.size());
        return peers_[static_cast<std::size_t>(rank)].get();
    }
    /// The number of ranks met so far. met(index) gives them in the order of meeting; more may be met during a loop.
    std::size_t met() const noexcept { return order_.size(); }
    Peer& met(std::size_t index) const {
        TUTTI_ASSERT(index < order_.size());
        TUTTI_ASSERT(find(order_[index]) != nullptr);
        return *find(order_[index]);
    }

 private:
    void meet(int rank);

    std::vector<std::unique_ptr<Peer>> peers_;  // by rank
    std::vector<int> order_;
};

}  // namespace tutti::transport
