// PeerBuffers: the buffers of the ranks of one host, as far as each rank lets the others access them: how ranks meet,
// so that each learns where the others' buffers lie, and how a rank reads and writes these. They lie in symmetric
// memory, which all ranks map, or in ordinary memory, which the kernel copies.
// An operation that fails gives its buffers back to the caller while others may still access them. So the failing rank
// revokes the addresses that it published at `meet`. A reader checks, after its read, that the buffer had not been
// revoked. A writer first stores that it writes (writing_to), then checks the same; the revoking rank waits for the
// writers. Both make a full fence between their store and their check, so that one of the two sees the other (Dekker's
// algorithm).
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
    /// Both must outlive the object.
    PeerBuffers(const RankContext& context, Publications& publications)
        : context_(context), publications_(publications) {}

    /// Call this before the ranks meet for a run of `schedule`, which must outlive the run.
    void begin(const schedule::Schedule& schedule, const Operands& operands);
    /// Publishes the addresses of this rank's chunks of `meet`, once, and reads the others'. True: all ranks have named
    /// theirs, and all are reachable. Needs room for a publication.
    bool meet(const schedule::Step& meet);
    /// Whether all have named their buffers but some cannot be reached; every rank then sees that.
    bool are_out_of_reach() const noexcept { return out_of_reach_; }

    /// Copies a peer's chunk to `into`. False: the peer has revoked it, or has died; the group finds out why. Throws
    /// DistBackendError if the kernel refuses.
    bool get(int peer, const schedule::Chunk& chunk, std::span<std::byte> into) const;
    /// Copies `from` to a peer's chunk; result and errors as get().
    bool put(int peer, const schedule::Chunk& chunk, std::span<const std::byte> from) const;
    /// Where a peer's chunk is mapped here, in schedules that map all buffers. Throws InternalError if it is not
    /// mapped.
    std::byte* mapped(int peer, const schedule::Chunk& chunk) const { return find(peer, chunk).at; }

    /// Revokes this rank's buffers, named or not. When it returns, no other rank reads or writes them any more.
    void revoke() const noexcept;

 private:
    /// A peer's chunk: its place in memory that this rank maps, or its address in the peer's process.
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
    bool has_named_ = false;                      // others may access this rank's buffers
    bool out_of_reach_ = false;
};

}  // namespace tutti::engine
