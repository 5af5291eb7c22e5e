// Group: some ranks of a world, in an order of their own, and the collectives among them.
//
// Collectives of one group run one after the other in the order of their issue; those of different groups, and
// messages, run beside each other. Ranks are the group's own here, except where it says otherwise.
//
// Threads: any; the world's lock guards all that moves.
#pragma once

#include "algorithm/slots.hpp"
#include "backend/registry.hpp"
#include "group/agreement.hpp"
#include "group/foreign_backends.hpp"
#include "group/group_memory.hpp"
#include "group/inquest.hpp"
#include "group/operation.hpp"
#include "group/planner.hpp"
#include "group/ranks.hpp"
#include "group/relay.hpp"
#include "group/world.hpp"
#include "record/recorder.hpp"

#include <tutti/process_group.hpp>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>

namespace tutti::detail {

/// The rest of another group, which has ended.
struct Remains {
    std::shared_ptr<const Group> of{};
    std::vector<int> left_out{};  ///< ranks of that one, ascending
};

struct SubgroupSpec {
    GroupPlace place;
    std::vector<int> members;  ///< ranks of the world, in the order of the group
    std::string name;
    std::string description;
    std::chrono::milliseconds timeout{0};
    backend::Devices backends{};  ///< empty: native
    std::any pg_options{};
    std::optional<Device> device{};         ///< that this process is bound to
    std::shared_ptr<const Group> parent{};  ///< all of its ranks make this one together
    Remains remains{};
};

class Group : public std::enable_shared_from_this<Group> {
 public:
    /// The group of all ranks of a new world. Throws as ProcessGroup's constructor.
    static std::shared_ptr<Group> of_all(const ProcessGroupOptions& options, std::optional<Deadline> joining = {},
                                         std::string description = {}, Remains remains = {});
    /// This rank is a member. Ranks exchange nothing: all members make it of equal parts.
    static std::shared_ptr<Group> of_some(const std::shared_ptr<World>& world, SubgroupSpec spec);
    ~Group();

    World& world() const noexcept { return *world_; }
    const std::shared_ptr<World>& shared_world() const noexcept { return world_; }
    std::uint32_t index() const noexcept { return index_; }
    const Ranks& ranks() const noexcept { return ranks_; }
    int rank() const noexcept { return ranks_.rank(); }
    int size() const noexcept { return ranks_.size(); }
    int global(int rank) const noexcept { return ranks_.global(rank); }
    int rank_of(int global) const noexcept { return ranks_.rank_of(global); }
    record::Recorder& recorder() noexcept { return recorder_; }
    Inquest& inquest() noexcept { return inquest_; }
    const std::string& name() const noexcept { return name_; }
    const std::string& description() const noexcept { return description_; }
    Determinism determinism() const noexcept { return world_->setup().determinism; }
    const std::vector<int>& hosts() const noexcept { return layout().host_of; }
    std::chrono::milliseconds timeout() const noexcept { return timeout_.load(); }
    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
    /// Whether it works on tensors there.
    bool serves(Device::Type device) const noexcept { return backends_->names().contains(device); }
    ForeignBackends& backends() const noexcept { return *backends_; }
    /// The channel of a message with `tag`, zero or more.
    std::uint64_t message_channel(int tag) const noexcept {
        return Channel::of_message(index_, static_cast<std::uint64_t>(tag));
    }
    std::uint64_t message_channel(OwnMessage own) const noexcept {
        return Channel::of_message(index_, static_cast<std::uint64_t>(own));
    }

    /// Queues the operation; asynchronous ones are progressed in the background.
    void submit(const std::shared_ptr<Operation>& operation, bool asynchronous);
    /// Decides how a collective that is not issued yet will run, and all that are made from it: fills in `slot_call`
    /// and returns true, or `schedule` and returns false.
    bool choose_way(Operation& operation);
    /// Issues it, waits for it, and throws its error.
    void run(const std::shared_ptr<Operation>& operation);
    /// Runs a short collective at once, without an Operation, when nothing else is in flight. `timeout` zero: the
    /// group's. Where it has to go the ordinary way, does nothing and returns false.
    bool run_short(const char* name, const engine::SlotCall& call, std::chrono::milliseconds timeout,
                   OrdinaryCall ordinary = {});
    /// Whether a collective of this shape is a short one. Depends only on values that are equal on all ranks.
    bool is_short(Collective collective, std::uint64_t block_bytes) const noexcept;
    /// all_to_all: whether all blocks that this rank sends are short. Ranks may differ in that.
    bool blocks_fit(const engine::SlotCall& call) const noexcept;
    /// Sends a short message to a rank (of the world) of this host at once; `payload` may be written again. Where it
    /// has to go the ordinary way, does nothing and returns false.
    bool send_now(int peer, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload);
    /// Receives a short message of a rank of this host that is there or comes within a moment, when nothing else is in
    /// flight. False: it has to go the ordinary way.
    bool receive_now(transport::Transfer& receive);
    const Planner& planner() const noexcept { return planner_; }
    const algorithm::Layout& layout() const noexcept { return planner_.layout(); }
    /// Planner::serve_with; set only while no collective is under way.
    void serve_with(Collective collective, std::optional<std::string> algorithm);
    /// How many times this rank has asked for a smaller group, this time included; equal on all ranks that do.
    int next_shrink() noexcept { return ++shrinks_; }
    /// Ends it, and with it the world.
    void abort(const std::string& reason) { world_->abort(reason); }
    /// Waits for the operations that this rank has in flight; of the group of all ranks, leaves the world.
    void leave();

    GroupMemory& memory() noexcept { return memory_; }
    /// GroupMemory::make_symmetric of all ranks of this host.
    std::shared_ptr<transport::SymmetricSegment> make_symmetric(std::size_t bytes, const Deadline& deadline);

    // ---- For the world, under its lock unless it says otherwise

    /// It is issued, whether the group or a backend moves its data. Throws when the group can take no more.
    void begin(const std::shared_ptr<Operation>& operation);
    /// Moves the collectives on as far as they go.
    bool progress();
    /// The collective that moves; null: none.
    std::shared_ptr<Operation> front() const noexcept { return collectives_.empty() ? nullptr : collectives_.front(); }
    /// All collectives end with it.
    void drop(const std::exception_ptr& error);
    /// Checks that the collective that moves is in time, and goes well, as far as this rank can see.
    void check_front(Instant now);
    /// Whether the other side of a message has left without it, as far as this rank has looked.
    bool is_in_vain(const Operation& message) const;
    /// No operation that waits for that rank (of the group) can finish: all ranks hear the cause.
    void give_up(int peer);
    /// The same of the last one, when this rank has none in flight.
    void check_last();
    /// Whether this rank has finished that collective.
    bool has_finished(std::uint64_t sequence) const noexcept;
    /// Whether all bytes that this rank sends to `peer` in that collective, if any, are on their way.
    bool has_sent_all(int peer, std::uint64_t sequence) const;
    const Agreement& agreement() const noexcept { return *agreement_; }
    /// Ranks whose part of it has not come yet.
    std::vector<int> waits_for(const Operation& operation) const;

 private:
    explicit Group(std::shared_ptr<World> world, SubgroupSpec spec);

    /// The fault that TUTTI_FAULTS asks for in it, when its time has come.
    void suffer(Operation& operation, bool moved, bool ends);
    static algorithm::Layout layout_of(World& world, const Ranks& ranks);
    void take_means();
    void start(Operation& operation);
    void begin_schedule(Operation& operation);
    void probe(const Operation& operation);
    bool has_left(int peer) const;
    void check_records(std::uint64_t sequence);
    void disagreement(const Agreement::Disagreement& found);
    void execute(Operation& operation);
    bool begin_relay(Operation& operation);
    void end_relay(Operation& operation);
    // Short calls (short_calls.cpp).
    struct ShortCallEvents;
    void take_short_sizes(Collective collective);
    bool make_short(Operation& operation) const;
    void begin_short(Operation& operation);
    bool advance_short(Operation& operation);
    bool advance_short(const engine::SlotCall& call, engine::SlotState& state, std::uint64_t sequence,
                       record::Ticket& ticket);
    template <Collective c>
    bool run_short_as(const char* name, const engine::SlotCall& call, std::chrono::milliseconds timeout,
                      OrdinaryCall ordinary);
    template <Collective c>
    bool wait_briefly(const engine::SlotCall& call, engine::SlotState& state, std::uint64_t sequence,
                      record::Ticket& ticket);
    bool yield_briefly(const engine::SlotCall& call, engine::SlotState& state, std::uint64_t sequence,
                       record::Ticket& ticket);
    bool awaits_only_others_cpus(const engine::SlotCall& call, const engine::SlotState& state);
    void go_on(BiasedMutex::Entry& entry, const char* name, const engine::SlotCall& call,
               const engine::SlotState& state, std::uint64_t sequence, record::Ticket ticket,
               std::chrono::milliseconds timeout, OrdinaryCall ordinary);
    void record_short(const engine::SlotCall& call, std::uint64_t sequence, record::Ticket& ticket);
    void note_splits(const engine::SlotCall& call, record::Ticket ticket);

    const std::shared_ptr<World> world_;
    const std::uint32_t index_;
    const Ranks ranks_;
    const std::string name_, description_;
    std::atomic<std::chrono::milliseconds> timeout_;
    Planner planner_;
    std::array<std::vector<algorithm::SlotSizes>, collective_count + 1> short_sizes_;  // by collective
    record::Recorder recorder_;
    Inquest inquest_;
    GroupMemory memory_;
    engine::RankContext context_;
    bool left_ = false;
    bool has_quick_way_ = true;  // of short calls: not when it has been left, nor where faults are asked for
    std::unique_ptr<ForeignBackends> backends_;
    std::atomic<int> shrinks_{0};

    std::deque<std::shared_ptr<Operation>> collectives_;
    std::uint64_t sequence_ = 0;
    std::optional<Agreement> agreement_;  // of the collectives that have been started here
    std::optional<engine::Slots> slots_;  // where all ranks share memory
    std::uint64_t looked_back_to_ = 0;    // the collective that is compared when this rank runs out of slots
    Instant next_probe_{};
    Relay relay_;
};

}  // namespace tutti::detail
