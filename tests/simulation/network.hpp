// A network of the test's own: streams between ranks of one process, in a time that the test sets. By a seed it takes
// and gives bytes in pieces, makes them late, lets connections stand still for a while, breaks them, and kills ranks.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "simulation/chance.hpp"

#include <tutti/transport.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace tutti::simulation {

/// The bytes on their way from one rank to another.
struct Line {
    struct Parcel {
        Instant arrives;
        std::vector<std::byte> bytes;
    };
    std::deque<Parcel> parcels;
    std::size_t under_way = 0;
    Instant last{};  ///< when the last parcel arrives
    enum class Last { nothing, end, broken, damaged } comes_last = Last::nothing;
};

class Network {
 public:
    /// `now` is the time, which the test moves.
    Network(int size, std::mt19937_64& chance, const Instant& now);
    ~Network();

    transport::Streams& streams_of(int rank);
    /// The connection breaks off: a part of the bytes under way still arrives.
    void cut(int a, int b);
    /// A process is gone, and with it all of its connections.
    void kill(int rank);
    /// The bytes under way from one rank to another change: their reader sees that, behind a part of them.
    void damage(int from, int to);
    /// From now on bytes get lost now and then, as no network does that these streams stand for.
    void lose_bytes() noexcept { loses_ = true; }
    /// The number of bytes lost so far.
    int lost() const noexcept { return lost_; }
    /// When the next bytes arrive; Instant::max(): nothing is under way.
    Instant next_arrival() const;

 private:
    class End;
    struct Rank;
    Line& line(int from, int to) { return lines_[static_cast<std::size_t>(from * size_ + to)]; }
    void break_off(Line& line, Line::Last how);

    int size_;
    std::mt19937_64& chance_;
    const Instant& now_;
    bool loses_ = false;
    int lost_ = 0;
    std::vector<Line> lines_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tutti::simulation
