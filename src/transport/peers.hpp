// Peers: a mailbox's state for each rank with which it has exchanged something.
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
    std::string broken{};  ///< why it broke off; empty: its peer has said that nothing more comes
};

struct Peer {
    int rank = 0;
    bool lost = false;        ///< nothing is read or written any more
    bool has_end = false;     ///< we have told the peer that nothing more comes
    std::size_t awaited = 0;  ///< receives of it that are posted or granted, and sends that it has to answer
    Credit credit{};
    SendQueue queue{};
    FrameReader reader{};
    std::optional<StreamEnd> end{};  ///< why it is lost

    /// `why`: empty if the peer has said so.
    void lose(std::string why);
    /// A stream that has ended, or broken off, gives nothing more: then the peer is lost. True: its bytes were damaged.
    bool look_at_end(const Stream& stream);
    /// Its transfers are about to go.
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
    /// Null: nothing has been exchanged with it.
    Peer* find(int rank) const noexcept {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < peers_.size());
        return peers_[static_cast<std::size_t>(rank)].get();
    }
    /// All that have been met, by their order; more may be met while somebody goes through them.
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
