// Agreement: detects that the ranks of a group call different collectives. Each rank keeps the fingerprints of its
// recent collectives, by sequence number, and a digest of all of them; ranks of one host read each other's records in
// the arena.
//
// If two ranks disagree, the one that compares second sees the other's record, provided that both execute a full fence
// between their write and their read (Dekker's algorithm). The caller issues the fence.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "transport/shm/arena.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::detail {

class Agreement {
 public:
    /// `arena`: null if this rank shares no memory; `local`: this rank's arena rank; `ranks_here`: the group rank of
    /// each arena rank. `arena` and `ranks_here` must outlive it.
    Agreement(const transport::Arena* arena, int local, const std::vector<int>& ranks_here);

    /// Records that this rank has begun the collective with that sequence number, the next one.
    void remember(std::uint64_t sequence, std::uint64_t fingerprint);
    /// The fingerprint of a collective; 0: unknown, or forgotten.
    std::uint64_t fingerprint_at(std::uint64_t sequence) const;
    /// A digest of all fingerprints so far; only with an arena.
    std::uint64_t digest() const noexcept { return digest_; }

    struct Disagreement {
        int peer = -1;               ///< the group rank that disagrees with this one
        std::uint64_t sequence = 0;  ///< of the first collective that both remember and whose fingerprints differ
        /// The fingerprints; equal: the ranks differ about an earlier collective, which is forgotten.
        std::uint64_t theirs = 0, mine = 0;
    };
    /// Compares the collectives of the ranks of this host up to `sequence`, which has begun here. nullopt: all ranks
    /// that have begun it agree.
    std::optional<Disagreement> disagreement_at(std::uint64_t sequence) const;
    /// The same with one rank (`local`: its arena rank), whose digest is known to differ.
    Disagreement disagreement_with(int local, std::uint64_t sequence) const;

 private:
    struct Entry {
        std::uint64_t sequence = 0, fingerprint = 0;
    };
    static constexpr std::size_t history_size = 256;

    const transport::Arena* arena_;
    int local_;
    const std::vector<int>& ranks_here_;
    std::uint64_t digest_ = 0;
    std::unique_ptr<std::array<Entry, history_size>> history_;  // without an arena
};

}  // namespace tutti::detail
