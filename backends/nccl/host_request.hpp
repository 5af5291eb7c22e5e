// Collectives in host memory: a native group runs a request whose buffers are there; a collective on a device is cut
// into pieces that are copied to host memory, run there, and copied back.
//
// Threads: any; nothing here blocks.
#pragma once

#include <tutti/backend.hpp>
#include <tutti/process_group.hpp>
#include <tutti/work.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::nccl {

/// Begins the request's collective, with buffers in host memory: input, output, or the blocks of inputs and outputs.
Work start_on_host_group(const ProcessGroup& host_group, const BackendRequest& request);

/// A part of a collective on a device, and the host memory that it needs.
struct Piece {
    /// A copy of adjoining bytes: on the device, and in the piece's memory.
    struct Copy {
        std::byte* device;
        std::size_t at;
        std::size_t bytes;
    };

    BackendRequest request{};  ///< for start_on_host_group(), after place()
    std::size_t bytes = 0;     ///< of memory that it needs
    std::vector<Copy> in, out;

    /// Gives the piece its memory.
    void place(std::byte* memory) noexcept;

 private:
    friend class Cutter;
    static constexpr std::size_t nowhere = SIZE_MAX;
    std::size_t input_at = nowhere, output_at = nowhere;
};

/// Pieces that need about `piece_bytes` each, in the order in which all ranks begin them: their number and their counts
/// follow from values that are equal on all ranks. At least one, also of a collective without elements. all_to_all is
/// one piece: a rank does not know the others' counts.
std::vector<Piece> cut(const BackendRequest& request, int rank, int size, std::size_t piece_bytes);

}  // namespace tutti::nccl
