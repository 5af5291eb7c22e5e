// Window: memory of each rank that the other ranks of a group read, write and update atomically by one-sided calls, and
// signals: 64-bit counters by which a rank notifies another.
//
//     tutti::Window window(tutti::float32, {1024});
//     if (rank == 0) window.put_signal(values, 1, {.signal = 3});
//     if (rank == 1) window.wait_signal(3, 1);  // window.local() holds the values
//
//     tutti::Window counter(tutti::int64, {rank == 0 ? 1 : 0});
//     const auto mine = counter.fetch_add<std::int64_t>(1, 0);  // each rank gets another number
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tutti {

namespace detail {
class WindowState;
}

struct WindowOptions {
    int signals = 16;                      ///< number of signals of each rank, 0 to 65536; equal on all ranks
    ProcessGroup group{};                  ///< default: the default group
    std::chrono::milliseconds timeout{0};  ///< for making the window; zero: the group's
};

/// Where a put or a get begins in the target's memory, and how long it may take.
struct WindowAccess {
    std::int64_t offset = 0;               ///< in elements of the window
    std::chrono::milliseconds timeout{0};  ///< zero: the group's
};

/// As WindowAccess, for a put that is followed by a signal.
struct WindowSignalAccess {
    std::int64_t offset = 0;               ///< in elements of the window
    int signal = 0;                        ///< 0 to signal_count() - 1
    std::uint64_t value = 1;               ///< added to the signal
    std::chrono::milliseconds timeout{0};  ///< zero: the group's
};

/// How an atomic update combines an element with a value: as a ReduceOp (sum, product, min, max, band, bor or bxor), by
/// replacing it, or not at all. The calls refuse other ReduceOps, and those that are not defined for the window's
/// dtype.
class AccumulateOp {
 public:
    enum class Kind : std::uint8_t { sum, product, min, max, band, bor, bxor, replace, no_op };
    static const AccumulateOp replace;  ///< MPI_REPLACE
    static const AccumulateOp no_op;    ///< MPI_NO_OP: of the calls that return the old value

    AccumulateOp(const ReduceOp& op) : AccumulateOp(op.kind()) {}  // NOLINT(google-explicit-constructor): they are ops
    constexpr AccumulateOp(ReduceOp::Kind kind)                    // NOLINT(google-explicit-constructor)
        : reduction_(kind), kind_(kind_of(kind)) {}
    /// Whether it is one of those above; the calls refuse others.
    constexpr bool is_known() const noexcept { return kind_ <= Kind::no_op; }
    constexpr Kind kind() const noexcept { return kind_; }
    /// The reduction; sum for replace and no_op.
    constexpr ReduceOp::Kind reduction() const noexcept { return reduction_; }
    friend constexpr bool operator==(AccumulateOp, AccumulateOp) = default;

 private:
    constexpr explicit AccumulateOp(Kind kind) : reduction_(ReduceOp::Kind::sum), kind_(kind) {}
    static constexpr Kind kind_of(ReduceOp::Kind kind) {
        switch (kind) {
            case ReduceOp::Kind::sum: return Kind::sum;
            case ReduceOp::Kind::product: return Kind::product;
            case ReduceOp::Kind::min: return Kind::min;
            case ReduceOp::Kind::max: return Kind::max;
            case ReduceOp::Kind::band: return Kind::band;
            case ReduceOp::Kind::bor: return Kind::bor;
            case ReduceOp::Kind::bxor: return Kind::bxor;
            default: return Kind{255};
        }
    }

    ReduceOp::Kind reduction_;
    Kind kind_;
};
inline constexpr AccumulateOp AccumulateOp::replace{Kind::replace};
inline constexpr AccumulateOp AccumulateOp::no_op{Kind::no_op};

/// A handle: copies name the same window, and an empty one names none. All ranks of a group make a window together and
/// close() it together; every call in between is one-sided: the target need not call anything.
///
/// Memory model, as OpenSHMEM's with signals that only grow:
/// 1. Calls of one rank to one target take effect there in the order of the calls: a signal is visible only after the
///    data of all puts before it.
/// 2. A rank that has seen a signal's value (wait_signal, read_signal) sees the data of all puts before that signal.
/// 3. When a put returns, it has read its source; its data are certain to have arrived after flush(), after fence(), or
///    when the target has seen a later signal.
/// 4. Signals are atomic, and any number of ranks may raise them at the same time. So are elements against each other's
///    atomic calls (accumulate, get_accumulate, fetch and the like), whichever ranks make them, the target included.
///    Otherwise, if two accesses to an element, one of them a put or a store, have no signal, fence or lock between
///    them, its value is undefined.
/// 5. An atomic call is a release and an acquire at its target: a rank whose call returns a value that another rank's
///    atomic call has written sees, in that target's memory, all that the other had done to this target before. So
///    compare_and_swap() makes a lock of an element, for the memory of its own rank; for memory of other ranks, flush()
///    them before the release.
/// 6. Only signals, fences and atomic calls order calls of different ranks, and only flush() and fences order calls to
///    different targets.
/// Inside a host a call copies memory. Between hosts a call is a message; the target's progress thread, or a thread of
/// the target that waits in a call of tutti, carries it out.
///
/// Every function throws InvalidArgument, before anything is done, for a target, an offset, a signal, an operator or a
/// dtype that does not fit, for tensors that are not contiguous or not in host memory, in a graph's capture, after
/// close(), and for a target that has let go of the window (see close()). If the group has failed, it throws the
/// group's error (PeerLost, Timeout, Aborted, CollectiveMismatch), even where it would only copy memory: a rank notices
/// a death within milliseconds. Targets are ranks of the group. Threads: any; calls to one target are ordered by their
/// beginnings.
/// source   OpenSHMEM 1.5, put with signal; MPI 4.1, chapter 12; torch.distributed's and NCCL 2.29's windows.
class TUTTI_API Window {
 public:
    Window() = default;  ///< no window
    /// A window with `shape` elements of `dtype` on each rank, all zero, and signals of 64 bits, all zero. The first
    /// dimension may differ between ranks, and be 0. Collective: all ranks of the group call it in the same order.
    /// errors   InvalidArgument: also where another backend than tutti's own serves the group's host memory;
    ///          CollectiveMismatch on all ranks if dtypes, shapes (but for the first dimension) or numbers of signals
    ///          differ; DistBackendError if a rank cannot get the memory; PeerLost, Timeout, Aborted.
    /// cost     that of empty_symmetric, and one all_gather_object. Each rank has memory for its own elements, and on
    ///          its host addresses for the most elements of a rank there.
    Window(DType dtype, Extents shape, const WindowOptions& options = {});

    explicit operator bool() const noexcept { return state_ != nullptr; }
    DType dtype() const;
    const Extents& shape() const;        ///< of this rank's memory
    std::int64_t element_count() const;  ///< the same
    const Extents& shape(int rank) const;
    std::int64_t element_count(int rank) const;
    int signal_count() const;
    ProcessGroup group() const;

    /// This rank's elements. The returned tensors share the memory, which outlives the window as long as one of them
    /// exists. It is symmetric memory (symmetric.hpp): collectives move it without copies in between.
    Tensor local() const;
    /// Whether `rank` runs on this host and shares memory with this rank, so that map_remote() works.
    bool is_mapped(int rank) const;
    /// The elements of a rank of this host, for direct reads and writes; the same memory as its local(). Other ranks
    /// may change it at any time; signals and fences order the accesses. Throws InvalidArgument for ranks of other
    /// hosts (is_mapped() is false). The memory reads as zeros when all ranks have closed the window and released its
    /// memory.
    Tensor map_remote(int rank) const;

    /// Writes `source` (any shape, not more elements than there are from the offset on) into the target's memory.
    /// Returns when `source` may be written again. cost: one copy; between hosts one message up to 64 bytes, else two.
    void put(ConstTensorView source, int target, const WindowAccess& access = {}) const;
    /// Reads elements of the target into `destination`, and returns when they are there. Sees all earlier puts of this
    /// rank to that target. cost: one copy; between hosts a round trip.
    void get(TensorView destination, int target, const WindowAccess& access = {}) const;
    /// put(), and then signal(): a rank that sees the signal sees the data.
    void put_signal(ConstTensorView source, int target, const WindowSignalAccess& access = {}) const;
    /// The same without blocking; `source` may be written, and `destination` read, when the Work is complete.
    [[nodiscard]] Work iput(ConstTensorView source, int target, const WindowAccess& access = {}) const;
    [[nodiscard]] Work iget(TensorView destination, int target, const WindowAccess& access = {}) const;
    [[nodiscard]] Work iput_signal(ConstTensorView source, int target, const WindowSignalAccess& access = {}) const;

    /// Atomic updates, element by element: the target's element becomes element op source. Returns when `source` may be
    /// written again; the effect is as certain as a put's. Any dtype for which the operator is defined; replace: any.
    /// An element of complex128 is two float64 here, each atomic by itself. Low-precision types are rounded at each
    /// update. Not for no_op.
    /// cost     inside a host one atomic instruction for each element (integers: sum, band, bor, bxor, replace), or a
    ///          loop of compare-and-swap; between hosts that of a put.
    /// source   MPI_Accumulate, MPI_Raccumulate.
    void accumulate(ConstTensorView source, int target, AccumulateOp op = ReduceOp::sum,
                    const WindowAccess& access = {}) const;
    [[nodiscard]] Work iaccumulate(ConstTensorView source, int target, AccumulateOp op = ReduceOp::sum,
                                   const WindowAccess& access = {}) const;
    /// As accumulate(), and `before` gets the elements' old values; returns when they are there, and so is the effect.
    /// `before` has as many elements as `source`, and does not overlap it. no_op: an atomic get(), whose `source` is
    /// ignored, and may be empty. cost: between hosts a round trip.
    /// source   MPI_Get_accumulate, MPI_Rget_accumulate.
    void get_accumulate(ConstTensorView source, TensorView before, int target, AccumulateOp op,
                        const WindowAccess& access = {}) const;
    [[nodiscard]] Work iget_accumulate(ConstTensorView source, TensorView before, int target, AccumulateOp op,
                                       const WindowAccess& access = {}) const;

    /// The same with one value of the window's dtype (of at most 8 bytes), which must be T; return the old value. The
    /// value is the first argument: fetch_add<std::int64_t>(1, target).
    /// cost     inside a host that of the atomic instruction and some 10 ns; between hosts a round trip.
    /// source   MPI_Fetch_and_op; OpenSHMEM's shmem_atomic_fetch_add, _swap, _fetch.
    template <Element T>
    T fetch_op(std::type_identity_t<T> value, int target, AccumulateOp op, const WindowAccess& access = {}) const {
        T before{};
        fetch_one("Window.fetch_op", dtype_of<T>, &value, &before, target, op, access);
        return before;
    }
    template <Element T>
    T fetch_add(T value, int target, const WindowAccess& access = {}) const {
        T before{};
        fetch_one("Window.fetch_add", dtype_of<T>, &value, &before, target, ReduceOp::Kind::sum, access);
        return before;
    }
    template <Element T>
    T swap(T value, int target, const WindowAccess& access = {}) const {
        T before{};
        fetch_one("Window.swap", dtype_of<T>, &value, &before, target, AccumulateOp::replace, access);
        return before;
    }
    /// An atomic read: fetch<std::int64_t>(target).
    template <Element T>
    T fetch(int target, const WindowAccess& access = {}) const {
        T before{};
        fetch_one("Window.fetch", dtype_of<T>, nullptr, &before, target, AccumulateOp::no_op, access);
        return before;
    }
    /// The element becomes `desired` if it is equal to `expected`, bit by bit (so -0.0 is not 0.0). Returns the old
    /// value: equal to `expected` if the element has been changed. source: MPI_Compare_and_swap,
    /// shmem_atomic_compare_swap.
    template <Element T>
    T compare_and_swap(T expected, std::type_identity_t<T> desired, int target, const WindowAccess& access = {}) const {
        T before{};
        compare_one("Window.compare_and_swap", dtype_of<T>, {&expected, &desired, &before}, target, access);
        return before;
    }
    /// The same without blocking, with tensors of one element, as iget_accumulate: `before` has the old value when the
    /// Work is complete; the others have been read when the call returns.
    [[nodiscard]] Work icompare_and_swap(ConstTensorView expected, ConstTensorView desired, TensorView before,
                                         int target, const WindowAccess& access = {}) const;

    /// Adds `value` to a signal of the target, behind all earlier puts to it. Does not wait for anything.
    /// An addition that would make a signal pass 2^64 - 1 is left out: wait_signal() and read_signal() of the target
    /// throw InvalidArgument from then on; this call throws it, too, if the target's memory is on this host.
    void signal(int target, int signal, std::uint64_t value = 1) const;
    /// Blocks until this rank's signal has at least this value. Polls briefly, then sleeps.
    /// errors   Timeout (the window stays usable), Aborted (also after SIGINT, see interrupt.hpp), PeerLost when a rank
    ///          has died or all others have left. Each names the group, the rank, the signal, its value and the wanted
    ///          one.
    void wait_signal(int signal, std::uint64_t at_least,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// The value of this rank's signal, now.
    std::uint64_t read_signal(int signal) const;

    /// Returns when all calls of this rank to the target have taken effect there. cost: nothing inside a host; between
    /// hosts a round trip, if there was a call since the last one.
    void flush(int target, std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// The same for all targets, with parallel round trips.
    void flush(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// Collective: flush(), and a barrier. Afterwards each rank sees the effects of all ranks' earlier calls.
    void fence(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;

    /// Ends the window; all ranks of the group call it. Does a fence(), after which the window takes no further calls;
    /// does nothing if this rank has closed it before. Errors as a barrier; the window is closed in any case.
    /// If the last handle is destroyed without close(), this rank lets go of the window, without waiting. The others
    /// are notified: their calls to this rank, and all ranks' flush(), fence() and close(), then throw InvalidArgument
    /// that names the window and this rank. Earlier calls are still carried out. The group and its other windows stay
    /// usable.
    void close(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;

 private:
    struct Swap {
        const void* expected;
        const void* desired;
        void* before;
    };
    detail::WindowState& checked(const char* method) const;
    void fetch_one(const char* name, DType dtype, const void* value, void* before, int target, AccumulateOp op,
                   const WindowAccess& access) const;
    void compare_one(const char* name, DType dtype, const Swap& swap, int target, const WindowAccess& access) const;
    std::shared_ptr<detail::WindowState> state_;
};

}  // namespace tutti
