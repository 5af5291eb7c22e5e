// The parts that the peers' programs share: the command line, the sizes, inputs, checks and rows, all as in `tutti
// bench`. A peer brings the calls. `tutti bench … --against NAME` starts these programs; they are not installed.
#pragma once

#include "bench/collectives/sampling.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti::bench {

/// One collective on buffers that the call may use until it is made again for another.
struct PeerCase {
    std::string collective, dtype, op;
    std::size_t count = 0;         ///< elements of a rank's block; of the whole buffer where there are no blocks
    std::size_t element_size = 0;  ///< bytes
    /// gather_v, scatter_v, all_to_all_v, also "_sparse" and "_skewed": elements to and from each rank, one block after
    /// the other.
    std::vector<int> send_counts{}, receive_counts{};
    void* in = nullptr;  ///< null where the call works in place, or this rank has none
    void* out = nullptr;
};

class Peer {
 public:
    virtual ~Peer() = default;
    virtual std::string name() const = 0;  ///< with its version: "openmpi 4.1.4"
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual Ranks ranks() = 0;
    /// Empty when the peer has no such collective, type or operator.
    virtual std::function<void()> call(const PeerCase& work) = 0;
};

/// Runs the cases of the command line, writes the rows (rank 0), and returns the exit status.
int run_peer(int argc, char** argv, const std::function<Peer&()>& connect);

}  // namespace tutti::bench
