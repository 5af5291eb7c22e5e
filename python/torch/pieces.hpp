// Connected pieces of a compiled graph's communication: each is captured as a tutti::graph, goes through its passes,
// and is replayed with one call.
//
// tutti.graph writes a piece as a program, a text that compiled code can keep, steps parted by ';':
//
//     piece 0; bucket 40960; all_reduce w0 sum; mul t0 w0 #2.0; all_reduce t0 sum; all_gather w1 t0
//
// `piece` tells equal pieces of a graph apart, `bucket` and `algebra` are options of the passes.
// w0, w1: tensors that the compiled code gives to be written, r0, r1: to be read, t0, t1: the piece's own, whose sizes
// follow from the steps. Each step names what it writes, then what it reads.
#pragma once

#include "tensors.hpp"

#include <tutti/graph.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::torch {

/// The pieces that one group has replayed, in their order. Threads: any; replays are one at a time.
class Pieces {
 public:
    Pieces();
    ~Pieces();
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;

    /// Carries out `program`. The first time, and for other sizes of the tensors, it captures the piece, optimises it
    /// as alike on all ranks (which asks nobody), and makes it ready; for other addresses it moves there. Throws what
    /// the piece's calls throw; InvalidArgument for a program that nobody wrote like this.
    void replay(const ProcessGroup& group, const std::string& program, const Tensors& written, const Tensors& read);

    /// A replayed piece, for people.
    struct Told {
        std::string program;
        std::string captured;   ///< Graph::to_text()
        std::string changes;    ///< Optimised::to_text()
        std::string optimised;  ///< Graph::to_text()
        std::uint64_t replays = 0;
    };
    std::vector<Told> tell() const;

 private:
    class Piece;
    Piece& piece_of(const ProcessGroup& group, const std::string& program, const Tensors& written, const Tensors& read);

    using Numbered = std::pair<std::size_t, std::unique_ptr<Piece>>;
    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::deque<Numbered>> pieces_;  ///< by program; of one, by sizes of its tensors
    std::size_t next_number_ = 0;
};

}  // namespace tutti::torch
