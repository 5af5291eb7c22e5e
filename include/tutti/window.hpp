// Window: memory of each rank that the other ranks of a group read and write by one-sided calls, and signals: 64-bit
// counters by which a rank notifies another.
//
//     tutti::Window window(tutti::float32, {1024});
//     if (rank == 0) window.put_signal(values, 1, {.signal = 3});
//     if (rank == 1) window.wait_signal(3, 1);  // window.local() holds the values
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace tutti {

namespace detail {
class WindowState;
}

struct WindowOptions {
    int signals = 16;                      ///< how many each rank has, 0 to 65536; equal on all ranks
    ProcessGroup group{};                  ///< default: the default group
    std::chrono::milliseconds timeout{0};  ///< for making the window; zero: the group's
};

/// Where a put or a get begins in the target's memory, and how long it may take.
struct WindowAccess {
    std::int64_t offset = 0;               ///< in elements of the window
    std::chrono::milliseconds timeout{0};  ///< zero: the group's
};

/// The same for a put that is followed by a signal.
struct WindowSignalAccess {
    std::int64_t offset = 0;               ///< in elements of the window
    int signal = 0;                        ///< 0 to signal_count() - 1
    std::uint64_t value = 1;               ///< added to the signal
    std::chrono::milliseconds timeout{0};  ///< zero: the group's
};

/// A handle: copies name the same window, and an empty one names none. All ranks of a group make a window together and
/// close() it together; every call in between is one-sided: the target need not call anything.
///
/// Memory model, as OpenSHMEM's with signals that only grow:
/// 1. Calls of one rank to one target take effect there in the order in which it made them: a signal is visible only
///    after the data of all puts before it.
/// 2. A rank that has seen a signal's value (wait_signal, read_signal) sees those data.
/// 3. A put that has returned has read its source; its data have arrived for certain after flush(), after a fence(), or
///    when the target has seen a later signal.
/// 4. Signals are atomic and may be raised by any number of ranks at the same time; elements are not: two accesses to
///    the same element without a signal or a fence between them, of which one is a put or a store, leave it undefined.
/// 5. Between calls to different targets, and between calls of different ranks, only signals and fences make an order.
/// Inside a host a call copies memory. Between hosts a call is a message, which the target's progress thread, or a
/// thread of the target that waits in a call of tutti, carries out.
///
/// Every function throws InvalidArgument, before anything is done, for a target, an offset, a signal or a dtype that
/// does not fit, for tensors that are not contiguous or not in host memory, in a graph's capture, after close(), and
/// for a target that has let go of the window (see close()); and when the group has failed, its error (PeerLost,
/// Timeout, Aborted, CollectiveMismatch), also where it only copies memory: a death is noticed within milliseconds.
/// Targets are ranks of the group. Threads: any; the order of calls to one target is that in which they begin.
/// source   OpenSHMEM 1.5, put with signal; MPI 4.1, chapter 12; torch.distributed's and NCCL 2.29's windows.
class TUTTI_API Window {
 public:
    Window() = default;  ///< no window
    /// A window with `shape` elements of `dtype` on each rank, all zero, and signals of 64 bits, all zero. Collective:
    /// all ranks of the group call it in the same order.
    /// errors   InvalidArgument: also where another backend than tutti's own serves the group's host memory;
    ///          CollectiveMismatch on all ranks if dtypes, shapes or numbers of signals differ; DistBackendError if a
    ///          rank cannot get the memory; PeerLost, Timeout, Aborted.
    /// cost     that of empty_symmetric, and one all_gather_object.
    Window(DType dtype, Extents shape, const WindowOptions& options = {});

    explicit operator bool() const noexcept { return state_ != nullptr; }
    DType dtype() const;
    const Extents& shape() const;
    std::int64_t element_count() const;  ///< of each rank
    int signal_count() const;
    ProcessGroup group() const;

    /// This rank's elements. Handles share the memory, which outlives the window as long as one of them does. It is
    /// symmetric memory (symmetric.hpp): collectives move it without copies in between.
    Tensor local() const;
    /// Whether `rank` runs on this host and shares memory with this rank, so that map_remote() works.
    bool is_mapped(int rank) const;
    /// The elements of a rank of this host, to be read and written directly; the same memory as its local(). Others may
    /// change it at any time; a signal or a fence makes an order. InvalidArgument for ranks of other hosts: there is
    /// nothing to map. The memory reads as zeros when all ranks have closed the window and let go of it.
    Tensor map_remote(int rank) const;

    /// Writes `source` (any shape, not more elements than there are from the offset on) into the target's memory.
    /// Returns when `source` may be written again. cost: one copy; between hosts one message up to 64 bytes, else two.
    void put(ConstTensorView source, int target, const WindowAccess& access = {}) const;
    /// Reads elements of the target into `destination`; they are there when it returns. It sees all earlier puts of
    /// this rank to that target. cost: one copy; between hosts a round trip.
    void get(TensorView destination, int target, const WindowAccess& access = {}) const;
    /// put(), and then signal(): the signal says that the data are there.
    void put_signal(ConstTensorView source, int target, const WindowSignalAccess& access = {}) const;
    /// The same without waiting; `source` may be written, and `destination` read, when the Work is complete.
    [[nodiscard]] Work iput(ConstTensorView source, int target, const WindowAccess& access = {}) const;
    [[nodiscard]] Work iget(TensorView destination, int target, const WindowAccess& access = {}) const;
    [[nodiscard]] Work iput_signal(ConstTensorView source, int target, const WindowSignalAccess& access = {}) const;

    /// Adds `value` to a signal of the target, behind all earlier puts to it. Does not wait for anything.
    /// An addition that would make a signal pass 2^64 - 1 is left out: wait_signal() and read_signal() of the target
    /// throw InvalidArgument from then on; this call throws it, too, if the target's memory is on this host.
    void signal(int target, int signal, std::uint64_t value = 1) const;
    /// Blocks until this rank's signal has at least this value. Looks for a moment, then sleeps.
    /// errors   Timeout (the window can be used on), Aborted (also by a signal of the system), PeerLost when a rank has
    ///          died or all others have left. Each names the group, the rank, the signal, its value and the wanted one.
    void wait_signal(int signal, std::uint64_t at_least,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// The value of this rank's signal, now.
    std::uint64_t read_signal(int signal) const;

    /// Returns when all calls of this rank to the target have taken effect there. cost: nothing inside a host; between
    /// hosts a round trip, if there was a call since the last one.
    void flush(int target, std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// The same for all targets, whose round trips run beside each other.
    void flush(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;
    /// Collective: flush(), and a barrier. Each rank then sees all that the ranks did before.
    void fence(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;

    /// Ends the window; all ranks of the group call it. A fence(), after which the window takes no further calls;
    /// nothing, if this rank has closed it before. Errors as for a barrier; the window is closed in any case.
    /// A window whose last handle goes without close() waits for nobody. The others hear that this rank has let go of
    /// it: their calls to this rank, and flush(), fence() and close() of all, then throw InvalidArgument that names the
    /// window and this rank. Calls from before that are carried out. The group and the other windows go on.
    void close(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) const;

 private:
    detail::WindowState& checked(const char* method) const;
    std::shared_ptr<detail::WindowState> state_;
};

}  // namespace tutti
