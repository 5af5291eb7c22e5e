// Symmetric memory: segments that all ranks of a host map, one equal part for each rank, so that a rank's buffer can be
// read and written by the others where it lies.
//
// A segment is anonymous shared memory; its descriptor is passed on once and closed. Its first page counts the ranks
// that have let go of their part; the last of them gives the pages back, also while others still map the segment. A
// rank unmaps it when all have let go, or with its group: until then it can find a place that any of the others names.
//
// Threads: a segment, any; SymmetricMemory: one at a time (the group's lock).
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
    /// Maps it. `id`: at least 1, equal on all ranks. Throws DistBackendError, also if the memory has another size.
    SymmetricSegment(const UniqueFd& fd, std::uint64_t id, int ranks, int own_rank, std::size_t part_bytes);
    ~SymmetricSegment();
    SymmetricSegment(const SymmetricSegment&) = delete;
    SymmetricSegment& operator=(const SymmetricSegment&) = delete;

    std::uint64_t id() const noexcept { return id_; }
    std::byte* part(int rank) const noexcept;
    std::byte* own_part() const noexcept { return part(own_rank_); }
    std::size_t part_bytes() const noexcept { return part_bytes_; }
    /// This rank needs its part no more; once. Nothing in a forked child, whose parent needs it.
    void let_go() noexcept;
    /// All ranks have let go.
    bool abandoned() const noexcept;

 private:
    std::uint64_t id_;
    int ranks_;
    int own_rank_;
    std::size_t part_bytes_;
    std::byte* base_ = nullptr;
    pid_t process_;
};

/// Where something lies in symmetric memory: a segment, and an offset in one rank's part. In 63 bits with a mark above
/// them, so that it can stand where an address does.
class Place {
 public:
    Place() = default;  ///< nowhere
    explicit Place(std::uint64_t bits) : bits_(bits) {}
    /// Nowhere if the numbers are too large.
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
    /// Where `bytes` from `at` on lie in this rank's part of a segment; nowhere if they do not.
    Place find(const std::byte* at, std::size_t bytes) const;
    /// The `bytes` bytes that `rank` named; null if there are none.
    std::byte* address(Place place, int rank, std::size_t bytes) const;

 private:
    std::map<const std::byte*, std::shared_ptr<SymmetricSegment>> by_address_;  // of the own part
    std::unordered_map<std::uint64_t, SymmetricSegment*> by_id_;
};

}  // namespace tutti::transport
