// Dump: the content of a rank's recorder at one moment, in plain values, and its text (FORMAT.md).
//
// Threads: values and free functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::record {

enum class State : std::uint8_t {
    enqueued = 1,  ///< waits for its turn
    started = 2,   ///< is under way
    completed = 3,
    failed = 4,
};
std::string_view to_string(State state);

enum class Kind : std::uint8_t {
    collective = 1,  ///< every rank waits for every rank
    from_root = 2,   ///< the others wait for the root
    to_root = 3,     ///< the root waits for the others
    send = 4,
    receive = 5,
};
std::string_view to_string(Kind kind);
constexpr bool is_message(Kind kind) {
    return kind == Kind::send || kind == Kind::receive;
}

/// A group's members: their ranks in the world, by rank in the group. Texts name ranks by their numbers in the world.
class Members {
 public:
    Members() = default;  ///< all ranks of the world, with the same numbers
    explicit Members(std::vector<int> ranks) : ranks_(std::move(ranks)) {}
    int operator[](int rank) const {
        const auto index = static_cast<std::size_t>(rank);
        return rank >= 0 && index < ranks_.size() ? ranks_[index] : rank;
    }
    /// "rank 3", "ranks 0, 2-5".
    std::string list_of(const std::vector<int>& ranks) const;
    const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
    std::vector<int> ranks_;
};

/// One operation. Times are nanoseconds since 1970 by the rank's own clock; 0: not yet.
struct Entry {
    std::uint64_t number = 0;    ///< counts the operations of this rank in this group from 1
    std::uint64_t sequence = 0;  ///< of collectives, equal on all ranks; 0 for messages
    /// A message's number among all from its sender to its receiver in this group; 0: not known yet.
    std::uint64_t message = 0;
    std::uint64_t fingerprint = 0;
    std::string what;  ///< "all_reduce of float32 × 10, sum"
    Kind kind = Kind::collective;
    State state = State::enqueued;
    int peer = -1;  ///< a message's peer, or the root, as a rank of the group; -1: none, or any rank
    std::int64_t enqueued_ns = 0, started_ns = 0;
    std::int64_t ended_ns = 0;  ///< also 0 for a brief operation (record/ring.hpp), whose end is not timed
    std::string site;           ///< its call site
    int tag = -1;               ///< a message's tag; -1: none, as for the library's own messages
    /// The elements of an all_to_all by rank, if recorded (wants_splits()).
    std::vector<std::uint64_t> sent, received;

    /// "#41 all_reduce of float32 × 10, sum" or "receive of int32 × 10 from rank 1 with tag 0".
    std::string title(const Members& members) const;
    bool open() const noexcept { return state == State::enqueued || state == State::started; }
};

/// A message that has arrived and that no receive of the rank has matched.
struct UnmatchedMessage {
    int from = 0;  ///< as a rank of the group
    int tag = 0;
    std::uint64_t fingerprint = 0;
    std::string what{};  ///< the fingerprint in words
    friend bool operator==(const UnmatchedMessage&, const UnmatchedMessage&) = default;
};

/// One replay of a graph.
struct Replay {
    std::uint64_t number = 0;            ///< counts the replays of its graph from 1
    std::int64_t ended_ns = 0;           ///< 0: it is under way
    std::vector<std::int64_t> began_ns;  ///< of the nodes reached so far, at most the first replayed_nodes_max
    friend bool operator==(const Replay&, const Replay&) = default;
};
/// The last replays of a graph that a process has instantiated.
struct ReplayedGraph {
    std::uint64_t id = 0;            ///< unique in its process
    std::vector<std::string> nodes;  ///< the first replayed_nodes_max of them, in words
    std::vector<Replay> replays;     ///< from the oldest to the latest
    friend bool operator==(const ReplayedGraph&, const ReplayedGraph&) = default;
};

struct Dump {
    std::string group;
    std::uint64_t world = 0;  ///< identifies the group: equal on all its ranks, and nowhere else
    std::uint64_t home = 0;   ///< equal for all groups of one world
    int rank = 0, size = 1;
    Members members;
    std::string made_at;  ///< the call site that made the group
    std::string host;
    std::string machine;  ///< equal for ranks that share a clock
    int process = 0;
    std::string reason;
    std::int64_t taken_ns = 0;
    /// The replays under way with calls of the group: "graph replay #12 at node 7 of 40: all_reduce of …".
    std::vector<std::string> replays;
    std::vector<int> waits_for;  ///< ranks of the group that the oldest open operation was lately seen to wait for
    std::vector<UnmatchedMessage> unmatched;  ///< the first unmatched_max of them
    std::vector<Entry> entries;               ///< in order of issue; older ones have been overwritten
    std::vector<ReplayedGraph> graphs;        ///< graphs with calls of the group; none in tails
};

inline constexpr int dump_version = 1;
inline constexpr std::size_t dump_bytes_max = std::size_t{64} << 20;
inline constexpr std::size_t dump_entries_max = 1 << 16;
inline constexpr std::size_t dump_replays_max = 8;
inline constexpr std::size_t unmatched_max = 16;
inline constexpr std::size_t dump_graphs_max = 16;
inline constexpr std::size_t replayed_nodes_max = 1024;
inline constexpr std::size_t replays_of_graph_max = 32;
inline constexpr int dump_ranks_max = 1 << 16;

std::string encode(const Dump& dump);
/// "; it is in graph replay #12 at node …" for each replay that its rank was in.
std::string in_replays(const Dump& dump);
/// "a message with tag 1 from rank 0 is here"; empty: there is none.
std::string unmatched_in_words(const Dump& dump);
/// Throws InvalidArgument, naming `origin` and the line, for a text that is not a dump.
Dump decode(std::string_view text, const std::string& origin);

/// Replaces the file at `path` atomically; throws InvalidArgument if the file cannot be written.
void write_file(const std::filesystem::path& path, std::string_view text);
/// Throws InvalidArgument as decode() does, and if the file cannot be read.
Dump read_dump(const std::filesystem::path& path);
/// "world.1f3a….rank-0.dump"
std::string file_name(const Dump& dump);

}  // namespace tutti::record
