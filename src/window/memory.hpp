// Memory: a window's memory on this host: the signals and elements of this rank, and of the ranks that share memory
// with it.
//
// Each rank's part of symmetric memory begins with its signals, one cache line for each: the value, and whether an
// addition would have passed 2^64 - 1. The next line says whether the rank has let go of the window; the elements begin
// on a page of their own. All parts of a host have room for the most elements of its ranks; pages that nobody touches
// take no memory. A rank without neighbours has ordinary memory with the same layout.
//
// Threads: any. A signal is atomic: a rank adds to it with release, after writing elements; a thread that loads it with
// acquire sees these elements (pattern A of transport/shm/MEMORY-ORDER.md). Accesses to elements are not synchronised.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "group/group.hpp"

#include <tutti/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::window {

using detail::Group;

class Memory {
 public:
    /// All ranks of the group make it, with equal arguments; `shapes`: by rank. Throws as empty_symmetric.
    Memory(Group& group, DType dtype, std::vector<Extents> shapes, int signals, const Deadline& deadline);

    DType dtype() const noexcept { return dtype_; }
    const Extents& shape(int rank) const noexcept { return shapes_[static_cast<std::size_t>(rank)]; }
    std::int64_t element_count(int rank) const noexcept { return counts_[static_cast<std::size_t>(rank)]; }
    std::size_t byte_count(int rank) const noexcept {
        return static_cast<std::size_t>(element_count(rank)) * size_of(dtype_);
    }
    int signal_count() const noexcept { return signals_; }

    bool is_mapped(int rank) const noexcept { return part(rank) != nullptr; }
    bool is_mapped_by_all() const noexcept;
    /// For ranks whose memory is mapped; so are the functions below.
    std::byte* elements(int rank) const noexcept {
        TUTTI_ASSERT(is_mapped(rank));
        return part(rank) + head_bytes_;
    }
    /// The elements as a tensor that keeps them mapped.
    Tensor tensor(int rank) const;
    /// Adds to a signal of `rank`, after all writes of this thread, and wakes the rank. False: the sum would exceed 64
    /// bits. The signal then stays as it is, and check_overflow() on its rank throws from now on.
    bool raise(int rank, int signal, std::uint64_t value) const noexcept;
    /// Throws InvalidArgument if a rank has tried to raise this rank's signal beyond 2^64 - 1.
    void check_overflow(const char* name, int signal) const;
    /// This rank has ended the window without the others.
    void let_go() const noexcept { let_go_word(group_.rank()).store(1, std::memory_order_release); }
    bool was_let_go_by(int rank) const noexcept { return let_go_word(rank).load(std::memory_order_acquire) != 0; }
    /// "window of float32 [1000] with 4 signals in group "default" (3 ranks)"
    std::string title() const;
    std::uint64_t value_of(int rank, int signal) const noexcept {
        return word(rank, signal).load(std::memory_order_acquire);
    }

 private:
    static constexpr std::size_t signal_bytes = 64, page = 4096;

    std::byte* part(int rank) const noexcept {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < parts_.size());
        return parts_[static_cast<std::size_t>(rank)];
    }
    std::atomic<std::uint64_t>& word(int rank, int signal) const noexcept {
        TUTTI_ASSERT(is_mapped(rank));
        TUTTI_ASSERT(signal >= 0 && signal <= signals_);  // the last word says whether the rank has let go
        return *reinterpret_cast<std::atomic<std::uint64_t>*>(part(rank) +
                                                              static_cast<std::size_t>(signal) * signal_bytes);
    }
    std::atomic<std::uint64_t>& overflow_word(int rank, int signal) const noexcept {
        return *(&word(rank, signal) + 1);
    }
    std::atomic<std::uint64_t>& let_go_word(int rank) const noexcept { return word(rank, signals_); }

    const Group& group_;
    DType dtype_;
    std::vector<Extents> shapes_;       // by rank
    std::vector<std::int64_t> counts_;  // the same
    int signals_;
    std::size_t head_bytes_;
    Tensor own_;                     // this rank's whole part; while it lives, the others' parts stay mapped
    std::vector<std::byte*> parts_;  // by rank; null: on another host
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace tutti::window
