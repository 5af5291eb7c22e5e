// Symmetric memory: segments that all ranks of a host map, with one equal part for each rank, so that other ranks can
// read and write a rank's buffer in place.
//
// A segment is anonymous shared memory; its creator passes the descriptor on once and closes it. The first page counts
// the ranks that have released their part; the last of them frees the pages, even while others still map the segment. A
// rank unmaps the segment when all have released their parts, or when its group ends: until then it can resolve every
// Place that another rank names.
//
// Threads: a segment: any; SymmetricMemory: one at a time (the group's lock).
#pragma once

#include "core/unique_fd.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

namespace tutti::transport {

class SymmetricSegment {
 public:
    /// New memory for `ranks` parts of `part_bytes` each. Throws DistBackendError.
    static UniqueFd create(int ranks, std::size_t part_bytes);
    /// Maps the segment `fd`. `id`: at least 1, equal on all ranks. Throws DistBackendError, also if the memory has
    /// another size.
    SymmetricSegment(const UniqueFd& fd, std::uint64_t id, int ranks, int own_rank, std::size_t part_bytes);
    ~SymmetricSegment();
    SymmetricSegment(const SymmetricSegment&) = delete;
    SymmetricSegment& operator=(const SymmetricSegment&) = delete;

    std::uint64_t id() const noexcept { return id_; }
    std::byte* part(int rank) const noexcept;
    std::byte* own_part() const noexcept { return part(own_rank_); }
    std::size_t part_bytes() const noexcept { return part_bytes_; }
    /// This rank no longer needs its part; call it once. Does nothing in a forked child, since its parent needs the
    /// part.
    void let_go() noexcept;
    /// Whether all ranks have called let_go().
    bool abandoned() const noexcept;

 private:
    std::uint64_t id_;
    int ranks_;
    int own_rank_;
    std::size_t part_bytes_;
    std::byte* base_ = nullptr;
    pid_t process_;
};

/// A location in symmetric memory: a segment, and an offset in one rank's part. It has 63 bits and a mark in the top
/// bit, so that a field can hold either a place or an address.
class Place {
 public:
    Place() = default;  ///< nowhere
    explicit Place(std::uint64_t bits) : bits_(bits) {}
    /// Yields no place if a number is too large.
    Place(std::uint64_t segment, std::uint64_t offset);

    explicit operator bool() const noexcept { return (bits_ & mark) != 0; }
    std::uint64_t bits() const noexcept { return bits_; }
    std::uint64_t segment() const noexcept { return (bits_ & ~mark) >> offset_bits; }
    std::uint64_t offset() const noexcept { return bits_ & ((std::uint64_t{1} << offset_bits) - 1); }

 private:
    static constexpr std::uint64_t mark = std::uint64_t{1} << 63;
    static constexpr int offset_bits = 40;
    std::uint64_t bits_ = 0;
};

/// The segments of one group, as one rank maps them.
class SymmetricMemory {
 public:
    void add(std::shared_ptr<SymmetricSegment> segment);
    /// The place of `bytes` bytes from `at` on in this rank's part of a segment; no place if they do not lie there.
    Place find(const std::byte* at, std::size_t bytes) const;
    /// The `bytes` bytes at the place that `rank` named; null if there are none.
    std::byte* address(Place place, int rank, std::size_t bytes) const;

 private:
    std::map<const std::byte*, std::shared_ptr<SymmetricSegment>> by_address_;  // by the address of this rank's part
    std::unordered_map<std::uint64_t, SymmetricSegment*> by_id_;
};

}  // namespace tutti::transport
