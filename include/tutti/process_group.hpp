// ProcessGroup: ranks that communicate.
//
// A handle: copies refer to the same group. All ranks of a group construct it together, from a store; several worlds
// can exist in one process. Any thread may call any function, but all ranks must issue a group's collectives in the
// same order: issue them from one thread, or order the threads' calls yourself.
#pragma once

#include <tutti/collective_forms.hpp>
#include <tutti/export.hpp>
#include <tutti/store.hpp>
#include <tutti/tensor.hpp>

#include <any>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr std::chrono::milliseconds default_timeout = std::chrono::minutes(30);

/// The conditions under which results are equal bit for bit. all_reduce gives the same bits on all ranks at every
/// level.
enum class Determinism {
    fast,              ///< any order of reduction; the algorithm may depend on measurements (TUTTI_TUNE)
    run_to_run,        ///< equal placement and sizes give equal bits in every run: fixed size limits choose algorithms
    layout_invariant,  ///< values are combined in the order of global ranks, however ranks are placed
};

/// The transport of the data.
enum class TransportKind {
    automatic,  ///< shared memory between ranks of one host, TCP between hosts; plain memory between threads
    shm,        ///< shared memory only: all ranks must be on one host
    tcp,        ///< TCP only, also between ranks of one host
};

struct ProcessGroupOptions {
    Store store{};  ///< reachable from all ranks
    int rank = -1;  ///< 0 … world_size-1, unique
    int world_size = -1;
    std::chrono::milliseconds timeout =
        default_timeout;         ///< of joining, and of every operation without its own timeout
    std::string name = "world";  ///< in error messages; groups that use one store need different names
    TransportKind transport = TransportKind::automatic;  ///< automatic: TUTTI_TRANSPORT decides if set
    Determinism determinism = Determinism::fast;         ///< fast: TUTTI_DETERMINISM decides if set
    std::string backend{};                               ///< as InitOptions::backend
    std::any pg_options{};                               ///< for the backend's constructor
    std::optional<Device> device_id{};                   ///< as InitOptions::device_id
    std::string
        listen_host{};  ///< address to listen on; empty: TUTTI_HOST, else that of the interface that reaches the store
};

namespace detail {
class Group;
/// Stands for default options, whose types are only declared here; distributed.hpp defines the conversion to them.
struct LeftOut {
    template <class T>
    operator const T&() const;
};
}  // namespace detail
class ConstTensorView;
class TensorView;
class Work;
using TensorList = std::vector<TensorView>;
using ConstTensorList = std::vector<ConstTensorView>;
// distributed.hpp defines the options.
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) struct Options;
#include <tutti/collectives.def>
struct MonitoredBarrierOptions;
struct RecvOptions;
struct SendOptions;

/// How a rank takes part in ProcessGroup::split.
struct SplitOptions {
    int color = 0;  ///< ranks of equal colours form a group; negative: this rank joins none
    int key = 0;    ///< orders ranks in the new group; equal keys: as in this group
    std::optional<std::chrono::milliseconds> timeout{};  ///< of the new group; default: this group's
    std::string group_desc{};
    std::any pg_options{};  ///< of the new group's backend; default: this group's
};

/// How long ProcessGroup::shrink waits, and for which ranks.
struct ShrinkOptions {
    std::chrono::milliseconds timeout{0};  ///< for live ranks that have not called shrink; zero: the group's
    /// shrink() leaves out live ranks that have not called it this long after this rank did. Default: it leaves out
    /// none, and waits for them until `timeout`.
    std::optional<std::chrono::milliseconds> patience{};
};

/// What ProcessGroup::grow takes in, and how long it waits.
struct GrowOptions {
    Store place{};                   ///< where the newcomers wait: NewcomersPlace, JoinOptions (newcomers.hpp)
    std::string name = "newcomers";  ///< as there
    /// How many newcomers to take in; 0: those that wait now, after a failure as many as ranks are lost.
    int count = 0;
    /// With fewer than `count` newcomers the group grows all the same, if this many have come. Default: `count`.
    std::optional<int> at_least{};
    std::optional<std::chrono::milliseconds> wait{};  ///< for `count` newcomers; default: `timeout`
    std::chrono::milliseconds timeout{0};  ///< for newcomers, and for all ranks to call grow; zero: the group's
    std::optional<std::chrono::milliseconds> patience{};  ///< after a failure: as ShrinkOptions
};

class TUTTI_API ProcessGroup {
 public:
    /// No group: as an option, the default group.
    ProcessGroup() = default;
    /// Joins the group; returns when all ranks have joined. Throws Timeout, whose message lists the ranks that did not
    /// join.
    explicit ProcessGroup(const ProcessGroupOptions& options);
    explicit ProcessGroup(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

    /// The value that a rank outside a group gets: GroupMember::NON_GROUP_MEMBER. Collectives and receives with it do
    /// nothing, and asynchronous calls return an empty Work; the log warns of the first call of each function. send,
    /// send_object_list and batch_isend_irecv throw InvalidArgument: a message would be lost.
    static ProcessGroup non_member() noexcept {
        ProcessGroup group;
        group.outside_ = true;
        return group;
    }
    bool is_non_member() const noexcept { return outside_; }

    explicit operator bool() const noexcept { return group_ != nullptr; }
    int rank() const;  ///< -1: not a member
    int size() const;  ///< -1: not a member
    const std::string& name() const;
    /// Free text, from group_desc.
    const std::string& description() const;
    /// Global ranks (ranks in the group's world), by group rank.
    std::vector<int> ranks() const;
    /// Whether this process came into the group by tutti::join, so that it has to adopt the others' values.
    bool is_newcomer() const;
    /// Convert between a rank in the group and its global rank. Throw InvalidArgument if there is no such rank.
    int global_rank(int group_rank) const;
    int group_rank(int global_rank) const;
    std::chrono::milliseconds timeout() const;
    void set_timeout(std::chrono::milliseconds timeout);
    Determinism determinism() const;
    /// The name of the group's main backend: with a device_id, the backend that serves this device. Otherwise, if the
    /// machine has a device and the group has that device's usual backend beside native (as with an empty
    /// InitOptions::backend), that backend; else the backend of host memory, or the group's only one.
    const std::string& backend() const;
    /// Host index of each rank: ranks with equal numbers share memory.
    std::vector<int> hosts() const;
    /// The predicted time of a collective ("all_reduce") in microseconds, from the figures that the ranks measured when
    /// they joined (rough defaults with TUTTI_TUNE=off); equal on all ranks. `bytes`: of the buffer, or of one rank's
    /// block. Throws InvalidArgument for another name.
    double predicted_us(std::string_view collective, std::uint64_t bytes) const;
    /// Makes groups of this group's ranks, by colour; all ranks call it, and each gets its new group (non_member() with
    /// a negative colour). Blocks until all have called it. It opens no connection and allocates no shared memory: the
    /// new groups use those of this group's world.
    ProcessGroup split(const SplitOptions& options) const;
    /// Makes a group of the survivors when ranks have died or left: a world of its own, in the same processes, with
    /// ranks 0 to n-1 in the order of this group. Every survivor calls it, after PeerLost or another error that ended
    /// the group (shrink() first aborts the group if it still works); it does not wait for dead ranks. Survivors meet
    /// in the group's store, which must still exist: if a rank that died served it, DistStoreError says so.
    /// Timeout, on all survivors, names the live ranks that did not call it; then all may call it again. A rank that
    /// was left out gets PeerLost. This group is unusable afterwards; destroy it, or drop its handles.
    ///     tutti::set_default_group(tutti::default_group().shrink());
    ProcessGroup shrink(const ShrinkOptions& options = {}) const;
    /// Makes a group of this group's ranks and of newcomers, which wait in a place (tutti::join); all ranks call it.
    /// The new group has a world of its own, and newcomers come behind the old ranks. This group stays as it is, and is
    /// the caller's to destroy. After a failure grow() is called as shrink() is, by all survivors: they keep their
    /// numbers where the new group has such a number, and newcomers take those of the lost ranks, then the numbers
    /// behind. If no newcomer waits, none is wanted and no rank is lost, it returns this group.
    ///
    /// errors   If the new group cannot be made, all ranks and the newcomers that were taken in get the same message,
    ///          and this group stays as it was: Timeout (too few newcomers, or a rank did not call; newcomers that were
    ///          not taken in wait on), PeerLost (a rank or a newcomer ended). A rank that ends after all have come is
    ///          lost to the new group. Others as shrink().
    ///
    ///     g = g.grow({.place = store});
    ///     g.adopt({weights, step});
    ProcessGroup grow(const GrowOptions& options) const;
    /// Broadcasts each tensor from the lowest rank that is no newcomer (of a group that grow() did not make: from rank
    /// 0), all at the same time. Blocking; errors as broadcast().
    void adopt(const std::vector<TensorView>& tensors) const;
    /// Ends every operation in flight, here and (soon) on the other ranks, with Aborted; afterwards this group
    /// and all other groups of its world are unusable.
    void abort(const std::string& reason);
    /// Leaves the group: waits until this rank's operations are complete and the data that it sent have arrived, then
    /// closes. A send whose receiver leaves without receiving it ends with PeerLost; a send that is not received within
    /// the group's timeout is withdrawn and ends with Aborted; in both cases the buffer is the caller's again. Receives
    /// without a matching message end with Aborted. Leaving the group of all ranks leaves all groups of its world.
    /// Ranks that still wait for this one get PeerLost, after they have received all data that it sent. The destructor
    /// of the last handle also leaves, when the operations in flight are complete. In a forked child destroy() does
    /// nothing, and all other functions of an inherited group throw InvalidArgument.
    /// Throws CollectiveMismatch, after leaving, if ranks of this host disagreed about a collective in which this rank
    /// waited for no other.
    void destroy();

    friend bool operator==(const ProcessGroup&, const ProcessGroup&) = default;
    const std::shared_ptr<detail::Group>& impl() const noexcept { return group_; }

    // ---- The functions of distributed.hpp on this group, with the same parameters, generated from the table of
    // collectives: g.all_reduce(x), g.broadcast(x, {.src = 0}). Include distributed.hpp to call them. They throw
    // InvalidArgument if the options name another group.

#define TUTTI_OR_NONE = detail::LeftOut()
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) \
    void name(TUTTI_PARAMETERS_##tensors(Options)) const;
#define TUTTI_FORMER_FUNCTION(former, name, tensors, Options) void former(TUTTI_PARAMETERS_##tensors(Options)) const;
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE
    void monitored_barrier(const MonitoredBarrierOptions& options = detail::LeftOut()) const;
    void send(ConstTensorView tensor, int dst, const SendOptions& options = detail::LeftOut()) const;
    int recv(TensorView tensor, const RecvOptions& options = detail::LeftOut()) const;
    [[nodiscard]] Work isend(ConstTensorView tensor, int dst, const SendOptions& options = detail::LeftOut()) const;
    [[nodiscard]] Work irecv(TensorView tensor, const RecvOptions& options = detail::LeftOut()) const;
    /// torch's method: starts all_reduce of each tensor, with one Work (coalescing.hpp).
    [[nodiscard]] Work allreduce(const TensorList& tensors, const AllReduceOptions& options = detail::LeftOut()) const;

 private:
    std::shared_ptr<detail::Group> group_;
    bool outside_ = false;
};

/// Leaves all groups of this process, as destroy(). Operations still under way after `limit` end with Aborted, here and
/// on the other ranks. tutti calls it, with two seconds, when a program calls exit() or returns from main(); call it
/// yourself if buffers are freed before that, as an interpreter's are. A rank that relays notices of deaths between
/// other ranks stays until another rank relays them, at most a second longer. Any thread.
TUTTI_API void leave_all_groups(std::chrono::milliseconds limit) noexcept;

/// torch.distributed's name for the group of a rank that is no member.
struct GroupMember {
    static ProcessGroup non_group_member() noexcept { return ProcessGroup::non_member(); }
};

}  // namespace tutti
