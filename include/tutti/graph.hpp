// Graphs: capture a step of a program once, prove it, optimise it, replay it.
//
//     tutti::graph::Graph captured = tutti::graph::capture([&] {
//         tutti::graph::compute({x}, {y}, [&] { forward(x, y); }, {.name = "forward", .cost_us = 40});
//         tutti::all_reduce(y);
//         tutti::all_reduce(z);
//     });
//     tutti::graph::Executable step(tutti::graph::optimise(captured).graph);
//     for (;;) step.replay();
//
// While capture() calls its function, this thread's collectives, sends and receives (blocking, asynchronous, planned)
// on all groups, and graph::compute, run nothing: each becomes a node. A graph tracks dependencies by byte ranges, so
// they are exact for calls in place and for buffers that overlap in part. Not captured: Coalescing and the _coalesced
// collectives, objects, quantised collectives, monitored_barrier, a receive from any rank, tensors on devices; these
// throw InvalidArgument inside a capture. Functions that make groups run at once.
//
// Reading on the host. During a capture no buffer holds its result yet. Where tutti itself reads such a buffer for the
// program (item(), check_host_read(), tutti::copy, Tensor::clone) it throws HostRead, which names both call sites. A
// plain C++ load through a pointer cannot be seen.
//
// Follows CUDA's stream capture and graphs, and TorchAir, which captures collectives of torch.distributed.
#pragma once

#include <tutti/collectives.hpp>
#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::graph {

/// A captured tensor was read on the host while its graph was being captured: its value does not exist yet.
class TUTTI_API HostRead : public InvalidArgument {
 public:
    HostRead(const std::string& message, std::string read_at, std::string written_at);
    ~HostRead() override;
    const std::string& read_at() const noexcept { return read_at_; }  ///< the call site of the read
    const std::string& written_at() const noexcept {
        return written_at_;
    }  ///< the call site of the captured call that writes the tensor

 private:
    std::string read_at_, written_at_;
};

// ---- The value ----------------------------------------------------------------------------------------------------

enum class Kind : std::uint8_t {
// The collectives, with their numbers in the table.
#define TUTTI_COLLECTIVE_KIND(name, number, ...) name = number,
#include <tutti/collectives.def>
    send,
    receive,
    compute,
    copy,  ///< made by a pass
    wait,  ///< for an asynchronous node
};
TUTTI_API std::string_view to_string(Kind kind) noexcept;
constexpr bool is_collective(Kind kind) noexcept {
    return static_cast<int>(kind) <= collective_count;
}
constexpr bool is_message(Kind kind) noexcept {
    return kind == Kind::send || kind == Kind::receive;
}

/// A range of bytes in a buffer.
struct Range {
    std::uint32_t buffer = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t end() const noexcept { return offset + bytes; }
    friend bool operator==(const Range&, const Range&) = default;
};

/// A group, from the point of view of the rank whose graph it is.
struct GroupInfo {
    std::string name;
    std::vector<int> ranks;  ///< ranks of the world, by rank in the group
    int rank = 0;            ///< this rank, in the group
    Determinism determinism = Determinism::fast;
    double latency_us = 0;   ///< predicted for an all_reduce of few bytes
    double us_per_byte = 0;  ///< predicted microseconds for each further byte
    bool changed = false;    ///< passes have changed the group's collectives, alike on all its ranks
    friend bool operator==(const GroupInfo&, const GroupInfo&) = default;
};

/// One captured call; a node has several if a pass has fused calls. `reads` are the ranges that the call reads: those
/// of a compute step; one range of an all_reduce, a reduce, a broadcast's root and a send; otherwise this rank's block,
/// or the blocks of all ranks in rank order, as CollectiveTraits describes the collective's input. `writes` likewise.
struct Piece {
    std::vector<Range> reads, writes;
    std::uint64_t fingerprint = 0;  ///< hash with which ranks compare their calls
    int call = -1;                  ///< the number of the captured call, in the program's order
    friend bool operator==(const Piece&, const Piece&) = default;
};

struct Node {
    Kind kind = Kind::compute;
    int id = 0;      ///< unique in its graph
    int of = -1;     ///< wait: the id of the node that it waits for
    int group = -1;  ///< communication: index into the graph's groups
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    int root = -1;  ///< in the group
    int peer = -1;  ///< messages: rank of the world
    int tag = 0;
    bool asynchronous = false;         ///< a wait follows
    bool opaque = false;               ///< its ranges are bounds of tensors with gaps; passes leave it as it is
    bool fixed = false;                ///< its buffers cannot be replaced: its function takes no views
    double cost_us = 0;                ///< predicted microseconds of a compute step, from its caller
    std::uint64_t rows = 0;            ///< rows of a compute step that may run in chunks; 0: it may not
    std::vector<std::uint32_t> whole;  ///< of such a step: the reads that every chunk gets whole
    std::string name;                  ///< name of a compute step
    std::string site;                  ///< the call site
    std::vector<Piece> pieces;
};

/// Why a node must run after another.
enum class Hazard : std::uint8_t { read_after_write, write_after_read, write_after_write, wait };
struct Edge {
    int from = 0, to = 0;  ///< positions in Graph::nodes
    Hazard hazard = Hazard::read_after_write;
    friend bool operator==(const Edge&, const Edge&) = default;
};

namespace detail {
class CapturedCalls;
}

/// One rank's program step: its calls in the order in which they will run. A value: compare it, copy it, write it as
/// text. Threads: as any value.
struct TUTTI_API Graph {
    std::vector<GroupInfo> groups;
    std::vector<std::uint64_t> buffers;  ///< their sizes in bytes
    std::vector<Range> temporaries;      ///< nothing reads these after the graph
    std::vector<Node> nodes;
    int arena = -1;  ///< the buffer that each Executable makes for itself, for temporaries; -1: none
    /// The functions and the addresses of the buffers; null after from_text().
    std::shared_ptr<const detail::CapturedCalls> calls;

    /// The dependencies between nodes; for each byte, on its last writer and on readers since.
    std::vector<Edge> edges() const;
    /// Whether passes have changed the collectives of any group.
    bool changed() const noexcept;
    /// Equal in every run and process for equal graphs; addresses and call sites do not count.
    std::uint64_t hash() const;
    /// Hash of a group's collectives, in their order, as the passes left them: equal on ranks whose graphs agree. If
    /// passes changed them, the group's first collective sends the hash to the other ranks.
    std::uint64_t collectives_hash(std::size_t group) const;
    /// Text with a line for each group, buffer and node, for people and for from_text().
    std::string to_text() const;
    /// Reads the text of to_text(). Throws InvalidArgument that names the line and what was expected. The graph can be
    /// proved and optimised, but not run.
    static Graph from_text(std::string_view text);
    /// Predicted microseconds of one replay, from the groups' figures and the compute steps' costs.
    double predicted_us() const;
    /// Bytes of memory that a replay needs: of all buffers that nodes use, including the arena.
    std::uint64_t peak_bytes() const;
};
/// Whether both graphs make the same calls in the same order; call sites and functions do not count.
TUTTI_API bool operator==(const Graph& a, const Graph& b);

// ---- Capture ------------------------------------------------------------------------------------------------------

/// Properties of a compute step, as its caller states them.
struct ComputeOptions {
    std::string name = "compute";
    double cost_us = 0;  ///< its estimated time, by which passes choose what overlaps with it
    /// The step may run in chunks of rows (the first dimension). All its tensors, except the reads in `whole`, have the
    /// same number of rows, and running the function on consecutive blocks of rows gives the same result as running it
    /// once, wherever the blocks are cut. A matrix product of x and w is splittable by the rows of x: compute({x, w},
    /// {y}, product, {.splittable = true, .whole = {1}}).
    bool splittable = false;
    std::vector<std::uint32_t> whole{};  ///< of a splittable step: indices of the reads that each chunk gets whole
    /// Each element of the writes depends only on the reads in `whole` and on the elements at the same place of the
    /// other reads; all tensors except those in `whole` have equally many elements. The step may run in chunks that
    /// begin at any element; the function then gets one-dimensional tensors.
    bool elementwise = false;
};

namespace detail {
using Views = std::function<void(std::span<const ConstTensorView>, std::span<const TensorView>)>;
TUTTI_API void capture_compute(const ConstTensorList& reads, const TensorList& writes, Views run, bool takes_views,
                               const ComputeOptions& options, const std::source_location& site);
class Scope;
class TUTTI_API Capture {
 public:
    Capture();
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Graph end();

 private:
    std::unique_ptr<Scope> scope_;
};
}  // namespace detail

/// Calls `function` and returns its calls as a graph; no data moves. An asynchronous call returns a Work whose wait()
/// marks the place in the order where its result has to be there (without a wait(): the graph's end); the Work's other
/// methods throw InvalidArgument. All ranks capture graphs that match, as their plain calls would. Buffers, functions
/// and groups must live as long as an Executable of the graph. Throws what the function throws; InvalidArgument inside
/// of another capture of this thread.
template <std::invocable F>
Graph capture(F&& function) {
    detail::Capture capture;
    std::forward<F>(function)();
    return capture.end();
}
/// Whether this thread is capturing.
TUTTI_API bool is_capturing() noexcept;

/// A compute step. Inside a capture it becomes a node, which replay() runs; outside it runs at once. The function reads
/// `reads` and nothing else that the graph writes, and writes every byte of `writes`; a tensor that it writes only in
/// part, or both reads and overwrites, is in both lists. Passes keep a step without `writes`, for its side effects. The
/// function takes nothing, or (std::span<const ConstTensorView> reads, std::span<const TensorView> writes): only then
/// can the step run on other buffers (Executable::bind, OptimiseOptions::memory) and in chunks.
/// errors   InvalidArgument: a tensor that is not contiguous in host memory; a step that may run in chunks, but whose
///          function takes no views, whose tensors differ in their number of rows, or which has no read to cut.
template <class F>
void compute(const ConstTensorList& reads, const TensorList& writes, F&& function, const ComputeOptions& options = {},
             const std::source_location& site = std::source_location::current()) {
    constexpr bool takes_views = std::invocable<F&, std::span<const ConstTensorView>, std::span<const TensorView>>;
    if constexpr (takes_views) {
        detail::capture_compute(reads, writes, std::forward<F>(function), true, options, site);
    } else {
        detail::capture_compute(
            reads, writes,
            [f = std::forward<F>(function)](std::span<const ConstTensorView>, std::span<const TensorView>) mutable {
                f();
            },
            false, options, site);
    }
}
/// Inside a capture: declares that nothing reads `tensor` after the graph, so passes may drop nodes that only compute
/// its final value, and may place its bytes elsewhere. Throws InvalidArgument outside of a capture.
TUTTI_API void temporary(ConstTensorView tensor);

/// Throws HostRead if this thread captures a graph in which some node writes to `tensor`. `reader`: for the message.
TUTTI_API void check_host_read(ConstTensorView tensor, std::string_view reader,
                               const std::source_location& site = std::source_location::current());
/// The value of a tensor with one element. Throws HostRead as check_host_read, InvalidArgument for other tensors.
template <Element T>
T item(ConstTensorView tensor, const std::source_location& site = std::source_location::current()) {
    if (tensor.element_count() != 1 || tensor.dtype() != dtype_of<T> || tensor.device().type != Device::Type::cpu)
        throw InvalidArgument("item: " + tensor.to_string() + ": expected one element of " +
                              std::string(to_string(dtype_of<T>)) + " in host memory");
    check_host_read(tensor, "item", site);
    return *static_cast<const T*>(tensor.data());
}

// ---- Proof --------------------------------------------------------------------------------------------------------

struct Proof {
    std::vector<std::string> faults;  ///< empty: the proof holds
    explicit operator bool() const noexcept { return faults.empty(); }
};
/// Runs `graphs`, one of each rank that their groups name, together on symbols: no data moves. Proves that each group's
/// collectives come in the same order with matching arguments on all ranks, that every message is received, that nobody
/// waits forever, and that no node touches what an asynchronous one still uses.
/// cost     about a microsecond for each node and rank
TUTTI_API Proof prove(const std::vector<Graph>& graphs);
/// Proves the same for both lists, and also that every byte that a program may read afterwards, on every rank, holds
/// the same symbol after the optimised graphs as after the captured ones. Sums count as equal whatever the order of
/// ranks, unless the group is Determinism::run_to_run.
TUTTI_API Proof prove(const std::vector<Graph>& captured, const std::vector<Graph>& optimised);

// ---- Passes -------------------------------------------------------------------------------------------------------

enum class Order {
    free,     ///< passes may move nodes as far as dependencies allow; communication moves alike on all ranks
    program,  ///< everything stays in the program's order: no buckets, and nothing starts early
};

struct OptimiseOptions {
    ProcessGroup group{};  ///< all its ranks call optimise(); it has all ranks of the graph's groups
    /// Assumes that all ranks have captured what this rank has: optimise() of one graph then sends nothing. The graph
    /// has one group, only collectives whose blocks are equal, and no messages: for other calls this rank cannot
    /// know what the other ranks captured (InvalidArgument). A rank whose graph differs after all gets
    /// CollectiveMismatch at the first collective of a replay.
    bool alike = false;
    Order order = Order::free;
    bool dead_values = true, algebra = true, buckets = true, split = true, overlap = true, memory = true;
    /// The size of a bucket. Default: 9 · latency · bandwidth of the group, the smallest size that reaches 90 % of the
    /// bandwidth.
    std::optional<std::uint64_t> bucket_bytes{};
    double overlap_us = 200;  ///< collectives whose predicted time is shorter do not start early
    /// Number of chunks of a long all_reduce, reduce_scatter or all_gather, and of steps next to it that may be cut.
    /// Default: √(time that can overlap / latency), rounded to a power of two, up to 16, with `overlap_us` of
    /// communication in each.
    std::optional<int> chunks{};
    std::uint64_t in_flight_bytes = std::uint64_t{1} << 30;  ///< limit for the buffers of early-started calls
    bool stages = false;  ///< keep the graph after each pass (Change::after), for inspection
};

/// What one pass did.
struct Change {
    std::string pass;                    ///< "algebra", "dead values", "buckets", "split", "overlap", "memory"
    std::vector<std::string> text;       ///< a sentence each; empty: it found nothing
    double before_us = 0, after_us = 0;  ///< Graph::predicted_us()
    std::uint64_t before_bytes = 0, after_bytes = 0;  ///< Graph::peak_bytes()
    Graph after{};  ///< with OptimiseOptions::stages: the graph after the pass; else empty
};
struct TUTTI_API Optimised {
    Graph graph;
    std::vector<Change> changes;
    std::string to_text() const;  ///< the changes in words
};

/// Runs the passes over `graphs`, one of each rank that their groups name. A pure function: it sends nothing. Passes
/// change a collective only if all its ranks change it alike. The results are proved: if the proof of a pass's result
/// fails, the pass moves no call past those of other groups, or is left out, for these ranks and those that share
/// groups with them; Change::text says so and why. Throws InvalidArgument if prove(graphs) finds faults.
TUTTI_API std::vector<Optimised> optimise(const std::vector<Graph>& graphs, const OptimiseOptions& options = {});
/// Optimises this rank's graph; all ranks of options.group call it. They first exchange the texts of their graphs,
/// unless the options say that the graphs are alike; replays exchange nothing more than their collectives.
TUTTI_API Optimised optimise(const Graph& graph, const OptimiseOptions& options = {});

// ---- Replay -------------------------------------------------------------------------------------------------------

/// A tensor of a capture, and the tensor that replays use in its place.
struct Binding {
    ConstTensorView captured;
    TensorView replacement;
};

/// A graph, ready to run. May be moved, not copied. Threads: one at a time. All ranks issue what their graphs say,
/// among their other calls: in an unchanged graph, and for collectives that passes have left as they were, other ranks
/// may make the plain calls instead. Where passes changed a group's collectives, the first of them carries the graph's
/// hash, so that ranks with other graphs, or plain calls, get CollectiveMismatch there.
class TUTTI_API Executable {
 public:
    /// Makes a plan of each call (instantiation), and allocates the graph's arena: moves no data and waits for no other
    /// rank. Temporaries that lie in the arena do not use the program's own memory. Throws InvalidArgument for a graph
    /// of from_text().
    explicit Executable(const Graph& graph);
    Executable(Executable&& other) noexcept;
    Executable& operator=(Executable&& other) noexcept;
    Executable(const Executable&) = delete;
    Executable& operator=(const Executable&) = delete;
    ~Executable();

    /// Runs the graph once, to its end. Throws what its calls and functions throw; asynchronous calls that have begun
    /// then continue, on the same buffers. After the first replays it allocates nothing (docs/graphs.md, Replays, lists
    /// exceptions).
    void replay();
    /// From the next replay on, uses `replacement` in place of `captured`, a tensor of the capture (or an earlier
    /// replacement): equal dtype and size, both contiguous. Throws InvalidArgument if the graph has no such tensor; if
    /// it contains only a part of a node's tensor; if a node cannot move (a compute step whose function takes no views,
    /// a tensor that is not contiguous); or if memory that the graph writes would overlap another of its tensors.
    void bind(ConstTensorView captured, TensorView replacement);
    /// Binds several tensors at once, for the cost of one: all of them, or none if one is refused. `captured` names
    /// each tensor by its place before this call, so {{x, y}, {y, x}} swaps two.
    void bind(std::span<const Binding> bindings);
    const Graph& graph() const noexcept;

 private:
    class State;
    std::unique_ptr<State> state_;
};
/// As the constructor.
inline Executable instantiate(const Graph& graph) {
    return Executable(graph);
}

}  // namespace tutti::graph
