// PeerBuffers: the buffers of the ranks of one host, as far as each rank lets the others touch them: how ranks meet, so
// that each knows where the others' buffers lie, and how a rank reaches these. They lie in symmetric memory, which all
// map, or in ordinary memory, from and to which the kernel copies.
// An operation that fails gives its buffers back to the caller while others may still touch them. So it revokes the
// addresses that it named when the ranks met. A reader looks, after it has read, whether the buffer still stood. A
// writer stores first that it writes (writing_to), then looks whether the buffer stands; the rank that revokes waits
// for the writers. Each makes a full fence between its store and its look, so that one of the two sees the other
// (Dekker's algorithm).
//
// Threads: one at a time (the group's lock).
#pragma once

#include "engine/publications.hpp"
#include "engine/rank_context.hpp"
#include "engine/run_buffers.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::engine {

class PeerBuffers {
 public:
    /// Both must outlive it.
    PeerBuffers(const RankContext& context, Publications& publications)
        : context_(context), publications_(publications) {}

    /// Before the ranks meet for a run of that schedule, which must outlive the run.
    void begin(const schedule::Schedule& schedule, const Operands& operands);
    /// Names this rank's chunks of `meet`, once, and looks at those of the others. True: all have named theirs, and can
    /// be reached. Publishes, so it needs room for that.
    bool meet(const schedule::Step& meet);
    /// All have named their buffers, and some cannot be reached: every rank sees that.
    bool are_out_of_reach() const noexcept { return out_of_reach_; }

    /// Copies a chunk of a peer's to `into`. False: the peer has revoked it, or has died; its group learns why. Throws
    /// DistBackendError where the kernel refuses.
    bool get(int peer, const schedule::Chunk& chunk, std::span<std::byte> into) const;
    /// Copies `from` to a chunk of a peer's; the same.
    bool put(int peer, const schedule::Chunk& chunk, std::span<const std::byte> from) const;
    /// Where a chunk of a peer's is mapped here; in schedules that map all buffers. Throws InternalError where it is
    /// not.
    std::byte* mapped(int peer, const schedule::Chunk& chunk) const { return find(peer, chunk).at; }

    /// From now on no rank may touch this rank's buffers, which it has named or not. When this returns, none reads or
    /// writes them any more.
    void revoke() const noexcept;

 private:
    /// A chunk of a peer's: in memory that this rank maps, or where the peer's process has it.
    struct Far {
        std::byte* at = nullptr;
        std::uint64_t address = 0;
    };
    Far find(int peer, const schedule::Chunk& chunk) const;
    transport::NamedBuffers name(const schedule::Step& meet) const;
    bool read(int peer, std::uint64_t address, std::span<std::byte> into) const;
    bool write(int peer, std::uint64_t address, std::span<const std::byte> from) const;
    bool stands(int peer) const { return publications_.is_there(peer, publications_.first()); }
    const transport::PeerMemory* memory_of(int peer) const { return context_.memory(context_.in_mailbox(peer)); }

    const RankContext& context_;
    Publications& publications_;
    const schedule::Schedule* schedule_ = nullptr;
    const Operands* operands_ = nullptr;
    std::vector<transport::NamedBuffers> named_;  // by rank
    bool has_named_ = false;                      // others may touch this rank's
    bool out_of_reach_ = false;
};

}  // namespace tutti::engine
