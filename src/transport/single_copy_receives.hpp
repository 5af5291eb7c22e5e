// SingleCopyReceives: messages of ranks of this host that are read where they lie, by a call of the kernel or in memory
// that this rank maps too: copied once.
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
    /// From here on messages go that way, if that is possible. Shorter ones are copied twice, by both sides at the same
    /// time where every rank has a core: there the limit lies between the two, as pull_from() says. A message in memory
    /// that the other maps too needs no call, and is copied once from 48 KB on in any case.
    static constexpr std::size_t bytes_on_shared_cores = std::size_t{48} << 10;
    static constexpr std::size_t bytes_on_own_cores = std::size_t{128} << 10;

    /// Null where no memory is shared; it must outlive this.
    explicit SingleCopyReceives(const Neighbours* neighbours) : neighbours_(neighbours) {}

    /// This rank's own messages of so many bytes or more.
    void pull_from(std::size_t bytes) noexcept {
        TUTTI_ASSERT(bytes > 0 && bytes <= bytes_on_own_cores);  // a longer short message would break the peer's bound
        from_bytes_ = bytes;
    }
    std::size_t from_bytes() const noexcept { return from_bytes_; }
    /// The place of a message that the peer can read where it lies (Place::bits()), or 0.
    std::uint64_t place_of(int to, std::span<const std::byte> message) const {
        return message.size() >= bytes_on_shared_cores && neighbours_ != nullptr ? neighbours_->place(to, message) : 0;
    }
    /// Where the peer reads it: its place or its address; 0: it cannot, or it is short.
    std::uint64_t address_for(int to, std::span<const std::byte> message) const;
    /// Whether this rank can read what lies at such an address of that rank.
    bool can_read(int source, std::uint64_t address) const;

    /// A receive that is read from its sender's memory, and the sender's id for it.
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
        some,     ///< a piece of it
        whole,    ///< all
        closed,   ///< the peer is gone, which its lifeline tells, or its memory is closed to us: then it has to send
        revoked,  ///< its owner has taken it back, and tells all why
    };
    struct Progress {
        Outcome outcome;
        Pull pull;
    };
    /// Reads a bounded piece of the first, so that the rank looks at deadlines and aborts meanwhile. There must be one.
    Progress progress(Bounce& bounce);
    void drop_all() noexcept { pulls_.clear(); }

 private:
    bool read_piece(const Pull& pull, std::size_t piece, Bounce& bounce) const;

    const Neighbours* neighbours_;
    std::size_t from_bytes_ = bytes_on_shared_cores;
    Queue<Pull> pulls_;
};

}  // namespace tutti::transport
