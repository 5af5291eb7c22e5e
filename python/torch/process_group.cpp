#include "process_group.hpp"

#include "issue.hpp"
#include "joining.hpp"
#include "store.hpp"
#include "without_gil.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <tutti/version.h>
#include <tutti/collectives.hpp>

#include <algorithm>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <sstream>

namespace tutti::torch {
namespace {

// The groups that have been made and not left.
struct Alive {
    std::mutex mutex;
    std::set<ProcessGroupTutti*> groups;
};
Alive& alive() {
    static Alive& all = *new Alive;
    return all;
}

// A unique text.
std::string new_nonce() {
    std::random_device random;
    std::ostringstream text;
    text << std::hex << random() << random();
    return text.str();
}

// PyTorch 2.10 has no descriptions here.
template <class Options>
void copy_description(Options& to, const Options& from) {
    if constexpr (requires { to.group_desc; }) to.group_desc = from.group_desc;
}

}  // namespace

ProcessGroupTutti::Options::Options(const c10d::Backend::Options& other, const std::string& name)
    : c10d::Backend::Options(name, other.timeout) {
    group_name = other.group_name;
    copy_description<c10d::Backend::Options>(*this, other);
    global_ranks_in_group = other.global_ranks_in_group;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    enable_reconfigure = other.enable_reconfigure;
#endif
    if (const auto* ours = dynamic_cast<const Options*>(&other)) {
        threads = ours->threads;
        devices_of_gloo = ours->devices_of_gloo;
        transport = ours->transport;
        determinism = ours->determinism;
        listen_host = ours->listen_host;
    }
}

ProcessGroupTutti::ProcessGroupTutti(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size), options_(std::move(options)), store_(store) {
    const WithoutGil guard;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    const bool joins = !options_->enable_reconfigure;
#else
    constexpr bool joins = true;
#endif
    if (joins) group_ = join(store, rank, options_->global_ranks_in_group, size, options_->timeout);
    nonce_ = new_nonce();
    init();
    setGroupUid(options_->group_name);
    Recorder::prepare();
    if (Recorder::is_on()) recorded_as_ = Recorder::get().add_group();
    if (options_->backend != "tutti") {  // get_backend() does not tell
        LOG(INFO) << "tutti " TUTTI_VERSION_STRING " serves group \"" << options_->group_name << "\" (" << size
                  << " ranks) in the place of " << options_->backend;
    }
    const std::lock_guard lock(alive().mutex);
    alive().groups.insert(this);
}

ProcessGroup ProcessGroupTutti::join(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     const std::vector<std::uint64_t>& members, int size,
                                     std::chrono::milliseconds limit) const {
    const Joining joining{.rank = rank, .size = size, .members = members, .name = options_->group_name, .limit = limit};
    return translating([&] {
        return torch::join(store, joining, [&](const Store& place) {
            ProcessGroup group(
                ProcessGroupOptions{.store = place,
                                    .rank = rank,
                                    .world_size = size,
                                    .timeout = limit,
                                    .name = options_->group_name.empty() ? "world" : options_->group_name,
                                    .transport = options_->transport,
                                    .determinism = options_->determinism,
                                    .listen_host = options_->listen_host});
            if (limit != options_->timeout) group.set_timeout(options_->timeout);
            return group;
        });
    });
}

ProcessGroupTutti::~ProcessGroupTutti() {
    const WithoutGil guard;
    {
        const std::lock_guard lock(alive().mutex);
        alive().groups.erase(this);
    }
    drop_coalesced();
    pieces_.reset();
    group_ = ProcessGroup();
}

void ProcessGroupTutti::refuse(const char* operation, const std::string& message) const {
    TORCH_CHECK(false, options_->backend == "gloo" ? "ProcessGroupGloo::" : "ProcessGroupTutti::", operation, ": ",
                message);
}
void ProcessGroupTutti::refuse_for_want_of_ranks() const {
    refuse("init", "the group was made with enable_reconfigure=True and has no ranks yet; call reconfigure first");
}
void ProcessGroupTutti::check_not_coalesced(const char* operation) const {
    if (coalesced()) refuse(operation, "takes one dense tensor a rank between startCoalescing and endCoalescing");
}
void ProcessGroupTutti::check_rank(const char* operation, const char* argument, int rank) const {
    if (rank < 0 || rank >= size_) {
        refuse(operation, c10::str("invalid rank: ", argument, " is ", rank, "; expected 0 to ", size_ - 1));
    }
}

WorkFacts ProcessGroupTutti::facts_of(const Call& call) {
    WorkFacts facts{
        .type = call.type, .rank = rank_, .sequence = sequence_, .timeout = call.timeout, .operation = call.operation};
    if (facts.timeout.count() == 0) facts.timeout = options_->timeout;
    if (at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE)) [[unlikely]] {
        // Names of events are like gloo's: "tutti:all_reduce". The names must outlive the events: there are few.
        static const auto& titles = *new std::vector<std::pair<std::string, std::string>>([] {
            std::vector<std::pair<std::string, std::string>> all;
            for (const char* backend : {"tutti", "gloo"}) {
                std::vector<std::string> operations{"send", "recv", "recvAnySource"};
                for (const CollectiveTraits& collective : collective_table) operations.emplace_back(collective.name);
                for (const std::string& operation : operations)
                    all.emplace_back(operation, std::string(backend) + ":" + operation);
            }
            return all;
        }());
        const std::string prefix = options_->backend + ":";
        for (const auto& [operation, title] : titles) {
            if (operation == call.operation && title.starts_with(prefix)) facts.title = title.c_str();
        }
    }
    return facts;
}

std::uint64_t ProcessGroupTutti::record(const Call& call, const WorkFacts& facts, const Kept& kept) {
    const bool is_message = c10d::isP2POp(call.type);
    const Recorder::GroupName name{getGroupUid(), getGroupDesc()};
    std::vector<std::uint64_t> ranks = options_->global_ranks_in_group;
    if (ranks.empty()) {
        for (int rank = 0; rank < size_; ++rank) ranks.push_back(static_cast<std::uint64_t>(rank));
    }
    Recorder::get().name_group(recorded_as_, name, ranks);  // PyTorch names and describes a group after its making
    return Recorder::get().begin({.group = recorded_as_,
                                  .group_name = name,
                                  .sequence = facts.sequence,
                                  .message_sequence = is_message ? ++messages_ : messages_.load(),
                                  .is_message = is_message,
                                  .rank = rank_,
                                  .peer = call.peer,
                                  .splits = call.splits,
                                  .title = call.operation,
                                  .timeout = facts.timeout},
                                 kept.inputs, kept.outputs);
}

WorkPtr ProcessGroupTutti::finished(const Call& call, std::vector<Tensors> outputs) {
    if (!call.async_op) return {};
    return c10::make_intrusive<TorchWork>(facts_of(call), std::move(outputs));
}

void ProcessGroupTutti::setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    if (group_) translating([&] { group_.set_timeout(timeout); });
}

void ProcessGroupTutti::addEphemeralTimeout(const std::chrono::milliseconds& /*timeout*/) {
    TORCH_WARN_ONCE("the backend ", options_->backend, " ignores _add_ephemeral_timeout; expected: set_timeout");
}

c10d::ErrorType ProcessGroupTutti::getError() {
    return failures_.first();
}

c10::intrusive_ptr<ProcessGroupTutti::Options> ProcessGroupTutti::options_of_another(
    const c10::intrusive_ptr<c10d::Backend::Options>& given) const {
    auto own = c10::make_intrusive<Options>(given ? *given : *options_, options_->backend);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    own->enable_reconfigure = false;  // its ranks are known
#endif
    return own;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupTutti::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                           const std::vector<int>& ranks,
                                                           const c10::intrusive_ptr<c10d::Backend::Options>& options) {
    const auto place = std::ranges::find(ranks, rank_);
    if (place == ranks.end()) return nullptr;
    auto own = options_of_another(options);
    const auto parents = own->global_ranks_in_group;
    own->global_ranks_in_group.clear();
    for (const int rank : ranks) {
        const auto index = static_cast<std::size_t>(rank);
        own->global_ranks_in_group.push_back(parents.size() > index ? parents[index] : index);
    }
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("split/" + own->group_name, store);
    auto group = c10::make_intrusive<ProcessGroupTutti>(prefixed, static_cast<int>(place - ranks.begin()),
                                                        static_cast<int>(ranks.size()), own);
    group->setGroupUid(own->group_name);
    return group;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupTutti::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                           const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                                           const int& rank, const int& size) {
    auto own = options_of_another(options);
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("merge/" + own->group_name, store);
    return c10::make_intrusive<ProcessGroupTutti>(prefixed, rank, size, own);
}

void ProcessGroupTutti::abort() {
    const WithoutGil guard;
    failures_.tell_hooks();
    if (group_) translating([&] { group_.abort("ProcessGroup.abort was called"); });
}

void ProcessGroupTutti::shutdown() {
    const WithoutGil guard;
    drop_coalesced();
    if (!group_) return;
    try {
        group_.destroy();
    } catch (const DistError& error) {
        // This rank has left all the same. An exception would stop PyTorch half-way, which shuts down one group after
        // the other and then forgets them all.
        failures_.note(std::current_exception());
        TORCH_WARN("a group that this rank leaves had failed: ", error.what());
    }
}

void ProcessGroupTutti::leave_all() {
    std::vector<ProcessGroup> groups;
    {
        const std::lock_guard lock(alive().mutex);
        for (ProcessGroupTutti* one : std::exchange(alive().groups, {})) {
            if (one->group_) groups.push_back(one->group_);
        }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    leave(std::move(groups), "the interpreter of this rank has ended", end);
    TorchWork::wait_until_all_is_told(end);
}

void ProcessGroupTutti::leave(std::vector<ProcessGroup> groups, const std::string& why,
                              std::chrono::steady_clock::time_point end) {
    for (ProcessGroup& group : groups) {
        std::future<void> left = std::async(std::launch::async, [&group] {
            try {
                group.destroy();
            } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
            }
        });
        if (left.wait_until(end) == std::future_status::timeout) group.abort(why);
    }
}

std::unique_ptr<ProcessGroupTutti::Coalesced> ProcessGroupTutti::take_coalesced() {
    const std::lock_guard lock(coalescing_mutex_);
    auto own = coalesced_.extract(std::this_thread::get_id());
    if (own.empty()) return nullptr;
    collecting_ = coalesced_.size();
    return std::move(own.mapped());
}

// A scope that an exception leaves forgets its calls. Only other threads may end their own scopes: those stay in
// memory.
void ProcessGroupTutti::drop_coalesced() noexcept {
    try {
        const std::unique_ptr<Coalesced> dropped = take_coalesced();
        {
            const std::lock_guard lock(coalescing_mutex_);
            for (auto& [thread, others] : coalesced_) (void)others.release();
            coalesced_.clear();
            collecting_ = 0;
        }
        throw Aborted("coalescing has not been ended");
    } catch (const Aborted&) {  // NOLINT(bugprone-empty-catch)
    }
}

void ProcessGroupTutti::startCoalescing() {
    translating([&] {
        auto own = std::make_unique<Coalesced>(group());  // throws if this thread has one already
        own->kept.outputs.resize(1);
        const std::lock_guard lock(coalescing_mutex_);
        coalesced_[std::this_thread::get_id()] = std::move(own);
        collecting_ = coalesced_.size();
    });
}

WorkPtr ProcessGroupTutti::endCoalescing() {
    const CallSiteScope site(python::call_site());
    return translating([&]() -> WorkPtr {
        const std::unique_ptr<Coalesced> coalesced = take_coalesced();
        if (!coalesced) throw InvalidArgument("endCoalescing: this thread has not called startCoalescing");
        Work work = coalesced->scope.end();
        const Call call{"coalesced", c10d::OpType::COALESCED, true, std::chrono::milliseconds::zero(), false};
        WorkFacts facts = facts_of(call);
        Kept& kept = coalesced->kept;
        if (Recorder::is_on()) facts.recorded = record(call, facts, kept);
        failures_.watch(work);
        auto host =
            c10::make_intrusive<TorchWork>(facts, std::move(work), std::move(kept.outputs), std::move(kept.inputs));
        if (coalesced->stagings.empty()) return host;
        return c10::make_intrusive<StagedWork>(std::move(host), std::move(coalesced->stagings));
    });
}

}  // namespace tutti::torch
