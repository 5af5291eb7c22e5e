#include "communicator.hpp"

#include "faults.hpp"

#include <tutti/distributed.hpp>
#include <tutti/groups.hpp>
#include <tutti/meeting.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tutti::nccl_library {
namespace {

constexpr std::chrono::seconds abort_limit{10};

// Whether the program's structure reaches beyond this member.
bool has(const ncclConfig_t& config, const int ncclConfig_t::*member) {
    const auto* at = reinterpret_cast<const char*>(&(config.*member));
    return static_cast<std::size_t>(at - reinterpret_cast<const char*>(&config)) + sizeof(int) <= config.size;
}

void check(const ncclConfig_t& config, const char* name, const int ncclConfig_t::*member, int least, int most) {
    if (!has(config, member)) return;
    const int value = config.*member;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most)) return;
    fail(ncclInvalidArgument, "config.", name, " is ", value, ": expected ", least, " to ", most,
         ", or NCCL_CONFIG_UNDEF_INT");
}

}  // namespace

Settings settings_of(const ncclConfig_t* config, const Settings& otherwise) {
    Settings settings = otherwise;
    if (const char* blocking = std::getenv("NCCL_COMM_BLOCKING"); blocking != nullptr && *blocking != '\0') {
        settings.blocking = std::string_view(blocking) != "0";
    }
    if (config == nullptr) return settings;
    constexpr std::size_t least_bytes = offsetof(ncclConfig_t, cgaClusterSize);  // that of NCCL 2.14
    if (config->magic != NCCL_API_MAGIC || config->size < least_bytes) {
        fail(ncclInvalidArgument, "config was not initialised: expected NCCL_CONFIG_INITIALIZER");
    }
    check(*config, "blocking", &ncclConfig_t::blocking, 0, 1);
    check(*config, "cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 16);
    check(*config, "minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX);
    check(*config, "maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX);
    check(*config, "splitShare", &ncclConfig_t::splitShare, 0, 1);
    check(*config, "collnetEnable", &ncclConfig_t::collnetEnable, 0, 1);
    check(*config, "shrinkShare", &ncclConfig_t::shrinkShare, 0, 1);
    check(*config, "graphUsageMode", &ncclConfig_t::graphUsageMode, 0, 2);
    check(*config, "numRmaCtx", &ncclConfig_t::numRmaCtx, 1, INT_MAX);
    const bool both = has(*config, &ncclConfig_t::minCTAs) && has(*config, &ncclConfig_t::maxCTAs);
    if (both && config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        config->minCTAs > config->maxCTAs) {
        fail(ncclInvalidArgument, "config.minCTAs is ", config->minCTAs, ", which is more than config.maxCTAs, ",
             config->maxCTAs);
    }
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) settings.blocking = config->blocking != 0;
    constexpr std::size_t name_end = offsetof(ncclConfig_t, commName) + sizeof(const char*);
    if (config->size >= name_end && config->commName != nullptr && *config->commName != '\0') {
        settings.name = config->commName;
    }
    return settings;
}

std::string Communicator::describe() const {
    return text("rank ", rank_, " of ", size_, " in \"", settings_.name, "\"");
}

// ---- States ---------------------------------------------------------------------------------------------------------

void Communicator::join(const std::function<Store()>& find_store) {
    try {
        if (faults().hangs_init(rank_)) hang("to join");
        Store store = find_store();
        {
            const std::lock_guard lock(mutex_);
            if (state_ == State::aborted) throw Failure(*failure_);
            store_ = store;  // abort() aborts its waits from now on
        }
        const std::string sizes = store.compare_set("ranks", "", text(size_));
        if (sizes != text(size_)) {
            nccl_library::fail(ncclInvalidArgument, "rank ", rank_, " wants ", size_,
                               " ranks, and another one of the same unique id ", sizes);
        }
        if (store.add(text("rank ", rank_), 1) != 1) {
            nccl_library::fail(
                ncclInvalidUsage, "rank ", rank_, " of ", size_,
                " came twice with one unique id: expected each rank once, and an id for each communicator");
        }
        join_group();
    } catch (...) {
        const Failure failure = as_failure(std::current_exception());
        become_failed({failure.code(), text(describe(), ": ", failure.sentence())});
        const std::lock_guard lock(mutex_);
        throw Failure(*failure_);
    }
}

void Communicator::join_group() {
    const std::string prefix = groups_ == 0 ? "group" : text("group after suspension ", groups_);
    ProcessGroup group(
        {.store = PrefixStore(prefix, store_), .rank = rank_, .world_size = size_, .name = settings_.name});
    const std::lock_guard lock(mutex_);
    if (state_ == State::aborted) throw Failure(*failure_);
    group_ = std::move(group);
    ++groups_;
    state_ = State::ready;
}

ncclResult_t Communicator::state() const {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_->code();
    return state_ == State::joining || background_ > 0 ? ncclInProgress : ncclSuccess;
}

std::string Communicator::sentence() const {
    const std::lock_guard lock(mutex_);
    return failure_ ? failure_->sentence() : std::string();
}

void Communicator::check_ready() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Failure(*failure_);
    if (state_ == State::joining || background_ > 0) {
        nccl_library::fail(ncclInvalidArgument, describe(),
                           ": the call before is still under way: expected this one after ncclCommGetAsyncError has "
                           "said something else than ncclInProgress");
    }
    if (state_ == State::finalized) nccl_library::fail(ncclInvalidArgument, describe(), " was finalized");
    if (state_ == State::suspended) {
        nccl_library::fail(ncclInvalidUsage, describe(), " is suspended: expected ncclCommResume first");
    }
    if (state_ == State::revoked) {
        nccl_library::fail(ncclInvalidUsage, describe(), " was revoked: it can only be split, shrunk or destroyed");
    }
}

void Communicator::check_group() const {
    const std::lock_guard lock(mutex_);
    if (state_ == State::suspended) {
        nccl_library::fail(ncclInvalidUsage, describe(), " is suspended: expected ncclCommResume first");
    }
}

bool Communicator::is_revoked() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::revoked;
}

void Communicator::become_failed(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    if (state_ != State::aborted && state_ != State::revoked) state_ = State::failed;
    one_sided_->fail(*failure_);
    changed_.notify_all();
}

std::vector<std::string> Communicator::exchange(const std::string& mine) {
    bool revoked = false;
    {
        const std::lock_guard lock(mutex_);
        revoked = state_ == State::revoked;
    }
    return revoked ? exchange_by_store(mine) : exchange_by_group(mine);
}

std::vector<std::string> Communicator::exchange_by_group(const std::string& mine) {
    const auto bytes = static_cast<std::int64_t>(mine.size());
    std::string together(mine.size() * static_cast<std::size_t>(size_), '\0');
    const std::uint64_t turn = take_turn();
    try {
        await_turn(turn);
        all_gather_into_tensor(TensorView(together.data(), Extents::of(bytes * size_), DType::uint8),
                               ConstTensorView(mine.data(), Extents::of(bytes), DType::uint8), {.group = group_});
    } catch (...) {
        pass_turn(turn);
        throw;
    }
    pass_turn(turn);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) {
        all.push_back(together.substr(mine.size() * static_cast<std::size_t>(rank), mine.size()));
    }
    return all;
}

std::vector<std::string> Communicator::exchange_by_store(const std::string& mine) {
    return meet({.place = store_,
                 .name = "exchange",
                 .rank = rank_,
                 .size = size_,
                 .operation = "the ranks of a revoked communicator"},
                mine)
        .cards;
}

// ---- Turns ----------------------------------------------------------------------------------------------------------

std::uint64_t Communicator::take_turn() {
    const std::lock_guard lock(mutex_);
    return next_turn_++;
}

void Communicator::await_turn(std::uint64_t turn) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == turn || ended(); });
    if (ended() || failure_) {
        if (failure_) throw Failure(*failure_);
        nccl_library::fail(ncclInvalidUsage, describe(), " was revoked");
    }
    running_ = true;
}

void Communicator::pass_turn(std::uint64_t turn) noexcept {
    const std::lock_guard lock(mutex_);
    if (turn_ == turn) {
        running_ = false;
        ++turn_;
        while (passed_.erase(turn_) > 0) ++turn_;
    } else {
        passed_.insert(turn);
    }
    changed_.notify_all();
}

const Fault* Communicator::next_fault() {
    if (faults().of_communicators.empty()) return nullptr;
    std::uint64_t begun = 0;
    {
        const std::lock_guard lock(mutex_);
        begun = begun_++;
    }
    return faults().of_operation(begun, rank_);
}

void Communicator::hang(const char* what) {
    const auto limit = group_ ? group_.timeout() : default_timeout;
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return ended(); })) {
        nccl_library::fail(ncclRemoteError, "TUTTI_NCCL_FAULTS makes ", describe(), " hang ", what,
                           "; nobody aborted it within ", limit.count(), " ms");
    }
    if (failure_) throw Failure(*failure_);
    nccl_library::fail(ncclInvalidUsage, describe(), " was revoked");
}

void Communicator::begin_background() {
    const std::lock_guard lock(mutex_);
    ++background_;
}

void Communicator::end_background() noexcept {
    const std::lock_guard lock(mutex_);
    --background_;
    changed_.notify_all();
}

void Communicator::enter_group(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    if (collector_ != std::thread::id() && collector_ != thread) {
        nccl_library::fail(ncclInvalidUsage, describe(),
                           " has operations in the open group of another thread: expected all calls of a group by one "
                           "thread");
    }
    collector_ = thread;
}

void Communicator::leave_group() noexcept {
    const std::lock_guard lock(mutex_);
    collector_ = std::thread::id();
}

bool Communicator::in_group() const {
    const std::lock_guard lock(mutex_);
    return collector_ != std::thread::id();
}

// ---- Ends -----------------------------------------------------------------------------------------------------------

void Communicator::revoke() {
    {
        const std::lock_guard lock(mutex_);
        if (state_ != State::ready && state_ != State::suspended && state_ != State::failed) return;
        state_ = State::revoked;
        failure_.reset();
        one_sided_->stop();
        one_sided_->fail(Failure(ncclInvalidUsage, text(describe(), " was revoked")));
        changed_.notify_all();
    }
    if (!group_) return;
    group_.abort("ncclCommRevoke");
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, abort_limit, [&] { return !running_; });
}

void Communicator::finalize() {
    {
        std::unique_lock lock(mutex_);
        if (failure_) throw Failure(*failure_);
        if (state_ == State::finalized) return;
        if (state_ == State::suspended) {
            state_ = State::finalized;
            return;
        }
        await_issued(lock);
        if (state_ == State::revoked) return;
    }
    one_sided_->stop();
    group_.destroy();
    const std::lock_guard lock(mutex_);
    if (state_ == State::ready) state_ = State::finalized;
}

void Communicator::await_issued(std::unique_lock<std::mutex>& lock) {
    const auto done = [&] { return turn_ == next_turn_ || ended() || failure_.has_value(); };
    if (!changed_.wait_for(lock, group_.timeout(), done)) {
        nccl_library::fail(ncclRemoteError, describe(), ": operations have not ended within ", group_.timeout().count(),
                           " ms");
    }
    if (failure_) throw Failure(*failure_);
}

void Communicator::suspend() {
    {
        std::unique_lock lock(mutex_);
        await_issued(lock);
    }
    // A rank leaves when it has all that the others have sent it, and they know that.
    const std::vector<std::uint64_t> sent = one_sided_->sent(size_);
    const std::size_t bytes = sent.size() * sizeof(std::uint64_t);
    std::vector<std::uint64_t> expected;
    for (const std::string& theirs : exchange(std::string(reinterpret_cast<const char*>(sent.data()), bytes))) {
        std::uint64_t count = 0;
        std::memcpy(&count, theirs.data() + static_cast<std::size_t>(rank_) * sizeof count, sizeof count);
        expected.push_back(count);
    }
    const bool listened = one_sided_->listens();
    if (std::ranges::any_of(expected, [](std::uint64_t count) { return count > 0; })) listen();
    one_sided_->await_all(expected, group_.timeout());
    one_sided_->stop();
    (void)exchange(".");
    ProcessGroup group;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) throw Failure(*failure_);
        if (state_ != State::ready) return;
        listened_ = listened;
        shared_bytes_ = shared_memory_bytes(group_);
        state_ = State::suspended;
        group = std::exchange(group_, {});
    }
    group.destroy();
}

void Communicator::resume() {
    {
        const std::lock_guard lock(mutex_);
        if (failure_) throw Failure(*failure_);
        if (state_ != State::suspended) {
            nccl_library::fail(ncclInvalidUsage, describe(), " is not suspended: expected ncclCommSuspend before it");
        }
        state_ = State::joining;
    }
    try {
        join_group();
        if (listened_) listen();
    } catch (...) {
        const Failure failure = as_failure(std::current_exception());
        become_failed({failure.code(), text(describe(), ": ", failure.sentence())});
        throw Failure(*failure_);
    }
}

Communicator::MemoryUse Communicator::memory_use() const {
    const std::lock_guard lock(mutex_);
    MemoryUse use{.lasting = sizeof *this + one_sided_->table_bytes(), .is_released = state_ == State::suspended};
    for (const auto& [number, op] : operators_) use.lasting += sizeof op + op.factor.size();
    use.releasable = state_ == State::ready ? shared_memory_bytes(group_) : shared_bytes_;
    return use;
}

void Communicator::abort() noexcept {
    try {
        Store store;
        ProcessGroup group;
        {
            const std::lock_guard lock(mutex_);
            if (state_ == State::aborted) return;
            const bool was_finalized = state_ == State::finalized, was_suspended = state_ == State::suspended;
            // Nothing is to end here then, and another rank may still be in its last operation: the group's last handle
            // leaves without a word.
            const bool is_idle = state_ == State::ready && turn_ == next_turn_ && !failure_;
            state_ = State::aborted;
            if (!failure_) failure_ = Failure(ncclInvalidUsage, text(describe(), " was aborted"));
            one_sided_->stop();
            one_sided_->fail(*failure_);
            if (!was_finalized && !is_idle) group = group_;
            if (!group_ && !was_finalized && !was_suspended) store = store_;
            changed_.notify_all();
        }
        if (store) store.abort("ncclCommAbort");
        if (group) group.abort("ncclCommAbort");
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, abort_limit, [&] { return !running_; });
    } catch (...) {
        remember(as_failure(std::current_exception()));
    }
}

// ---- What belongs to it ---------------------------------------------------------------------------------------------

ncclRedOp_t Communicator::add_operator(ScaledSum op) {
    static std::atomic<int> next{ncclNumOps};  // of all communicators, so that one does not know another one's
    const int number = next.fetch_add(1);
    const std::lock_guard lock(mutex_);
    operators_.emplace(number, std::move(op));
    return static_cast<ncclRedOp_t>(number);
}

void Communicator::remove_operator(ncclRedOp_t op) {
    const std::lock_guard lock(mutex_);
    if (operators_.erase(static_cast<int>(op)) == 0) {
        nccl_library::fail(ncclInvalidArgument, "op is ", static_cast<int>(op), ", which ", describe(),
                           " does not know: expected one of ncclRedOpCreatePreMulSum's for it");
    }
}

ScaledSum Communicator::operator_of(ncclRedOp_t op) const {
    const std::lock_guard lock(mutex_);
    const auto found = operators_.find(static_cast<int>(op));
    if (found != operators_.end()) return found->second;
    nccl_library::fail(ncclInvalidArgument, "op is ", static_cast<int>(op), ", which ", describe(),
                       " does not know: expected ncclSum to ncclAvg, or one of ncclRedOpCreatePreMulSum's for it");
}

void* Communicator::add_registration(Registered window) {
    static std::atomic<std::uintptr_t> next{1};
    auto* const handle = reinterpret_cast<void*>(next.fetch_add(1) * 16);
    one_sided_->add(handle, std::move(window));
    return handle;
}

void* Communicator::add_registration(void* memory, std::size_t bytes) {
    return add_registration(Registered{.memory = memory, .bytes = bytes, .number = 0, .rank_bytes = {}});
}

// A rank takes puts before it knows that the others have registered theirs, so the second exchange is before its end.
void* Communicator::add_symmetric_window(void* memory, std::size_t bytes) {
    const std::uint64_t own = bytes;
    Registered window{.memory = memory, .bytes = bytes, .number = one_sided_->next_window(), .rank_bytes = {}};
    for (const std::string& theirs : exchange(std::string(reinterpret_cast<const char*>(&own), sizeof own))) {
        std::uint64_t size = 0;
        std::memcpy(&size, theirs.data(), sizeof size);
        window.rank_bytes.push_back(size);
    }
    void* const handle = add_registration(std::move(window));
    listen();
    (void)exchange(".");
    return handle;
}

void Communicator::remove_registration(const void* handle, const char* what) {
    if (!one_sided_->remove(handle)) {
        nccl_library::fail(ncclInvalidArgument, what, " is none that ", describe(), " has registered");
    }
}

Registered Communicator::registered(const void* handle, const char* what) const {
    const std::optional<Registered> found = one_sided_->find(handle);
    if (!found) nccl_library::fail(ncclInvalidArgument, what, " is none that ", describe(), " has registered");
    return *found;
}

void Communicator::listen() {
    one_sided_->listen(group_, [weak = weak_from_this()](const Failure& failure) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->become_failed({failure.code(), text(self->describe(), ": ", failure.sentence())});
        if (self->group_) self->group_.abort(self->sentence());
    });
}

}  // namespace tutti::nccl_library
