// SingleCopyReceives: receives that read a message in the memory of its sender, a rank of this host, by a system call
// or in memory that both ranks map. The message is copied once.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/queue.hpp"
#include "transport/frame_reader.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::transport {

class SingleCopyReceives {
 public:
    /// Receivers read messages of at least this length in place, if they can. Shorter ones are copied twice; where
    /// every rank has a core of its own, both sides copy at the same time, so there the limit lies between the two
    /// constants (see pull_from()). A message in memory that the peer maps too needs no system call, and is read in
    /// place from 48 KB on.
    static constexpr std::size_t bytes_on_shared_cores = std::size_t{48} << 10;
    static constexpr std::size_t bytes_on_own_cores = std::size_t{128} << 10;

    /// `neighbours`: null if the ranks share no memory; it must outlive this object.
    explicit SingleCopyReceives(const Neighbours* neighbours) : neighbours_(neighbours) {}

    /// Sets the limit: peers read this rank's messages of `bytes` or more in place.
    void pull_from(std::size_t bytes) noexcept {
        TUTTI_ASSERT(bytes > 0 && bytes <= bytes_on_own_cores);  // a longer eager message would exceed the peer's limit
        from_bytes_ = bytes;
    }
    std::size_t from_bytes() const noexcept { return from_bytes_; }
    /// The place (Place::bits()) of a message in memory that the peer maps too; 0: it does not lie there, or is short.
    std::uint64_t place_of(int to, std::span<const std::byte> message) const {
        return message.size() >= bytes_on_shared_cores && neighbours_ != nullptr ? neighbours_->place(to, message) : 0;
    }
    /// Where the peer can read a message: a place or an address; 0: nowhere, or the message is short.
    std::uint64_t address_for(int to, std::span<const std::byte> message) const;
    /// Whether this rank can read what lies at such an address or place of `source`.
    bool can_read(int source, std::uint64_t address) const;

    /// A receive that reads from its sender's memory; `id`: the sender's number of the transfer.
    struct Pull {
        int source = 0;
        std::uint64_t id = 0, address = 0;
        Transfer* receive = nullptr;
    };
    void begin(const Pull& pull) {
        TUTTI_ASSERT(neighbours_ != nullptr);
        TUTTI_ASSERT(pull.source >= 0 && pull.receive != nullptr);
        TUTTI_ASSERT(pull.receive->peer == pull.source && !pull.receive->done);
        pulls_.push(pull);
    }
    bool empty() const noexcept { return pulls_.empty(); }
    enum class Outcome : std::uint8_t {
        some,     ///< read a piece
        whole,    ///< read the last piece
        closed,   ///< the peer has died (its lifeline reports that), or we may not read its memory: then the peer has
                  ///< to send
        revoked,  ///< the owner has withdrawn the message, and tells all ranks why
    };
    struct Progress {
        Outcome outcome;
        Pull pull;
    };
    /// Reads a bounded piece for the first pull, so that the rank can check deadlines and aborts in between. There must
    /// be a pull.
    Progress progress(Bounce& bounce);
    void drop_all() noexcept { pulls_.clear(); }

 private:
    bool read_piece(const Pull& pull, std::size_t piece, Bounce& bounce) const;

    const Neighbours* neighbours_;
    std::size_t from_bytes_ = bytes_on_shared_cores;
    Queue<Pull> pulls_;
};

}  // namespace tutti::transport
