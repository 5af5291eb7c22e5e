#include "nccl/ucc_team.hpp"

#include "nccl/driver.hpp"
#include "nccl/streams.hpp"
#include "nccl/ucc_oob.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr unsigned api_major = 1, api_minor = 2;  // the oldest API that has all used parts
constexpr auto time_for_end = 2s;                 // of an idle team
constexpr int looks_before_nap = 1000;

struct Functions {
    void (*get_version)(unsigned* major, unsigned* minor, unsigned* patch);
    const char* (*status_string)(ucc::Status status);
    ucc::Status (*lib_config_read)(const char* prefix, const char* file, ucc::LibConfig* config);
    void (*lib_config_release)(ucc::LibConfig config);
    ucc::Status (*init_version)(unsigned major, unsigned minor, const ucc::LibParams* params, ucc::LibConfig config,
                                ucc::Lib* lib);
    ucc::Status (*context_config_read)(ucc::Lib lib, const char* file, ucc::ContextConfig* config);
    void (*context_config_release)(ucc::ContextConfig config);
    ucc::Status (*context_create)(ucc::Lib lib, const ucc::ContextParams* params, ucc::ContextConfig config,
                                  ucc::Context* context);
    ucc::Status (*context_progress)(ucc::Context context);
    ucc::Status (*context_destroy)(ucc::Context context);
    ucc::Status (*team_create_post)(ucc::Context* contexts, std::uint32_t count, const ucc::TeamParams* params,
                                    ucc::Team* team);
    ucc::Status (*team_create_test)(ucc::Team team);
    ucc::Status (*team_destroy)(ucc::Team team);
    ucc::Status (*collective_init)(ucc::CollArgs* args, ucc::Request** request, ucc::Team team);
    ucc::Status (*collective_post)(ucc::Request* request);
    ucc::Status (*collective_finalize)(ucc::Request* request);
    ucc::Status (*ee_create)(ucc::Team team, const ucc::EngineParams* params, ucc::ExecutionEngine* engine);
    ucc::Status (*ee_destroy)(ucc::ExecutionEngine engine);
    ucc::Status (*ee_get_event)(ucc::ExecutionEngine engine, ucc::Event** event);
    ucc::Status (*ee_ack_event)(ucc::ExecutionEngine engine, ucc::Event* event);
    ucc::Status (*collective_triggered_post)(ucc::ExecutionEngine engine, ucc::Event* event);
};
Functions call{};

// The one library handle of the process, which stays.
ucc::Status library(ucc::Lib& lib) {
    static std::mutex mutex;
    static ucc::Lib one = nullptr;
    const std::lock_guard lock(mutex);
    lib = one;
    if (one != nullptr) return ucc::ok;
    ucc::LibConfig config = nullptr;
    ucc::Status status = call.lib_config_read(nullptr, nullptr, &config);
    if (status != ucc::ok) return status;
    ucc::LibParams params;
    params.mask = ucc::lib_has_thread_mode;
    params.thread_mode = ucc::thread_multiple;
    status = call.init_version(api_major, api_minor, &params, config, &one);
    call.lib_config_release(config);
    if (status != ucc::ok) one = nullptr;
    lib = one;
    return status;
}

// The driver of the memory's device; null: host memory, or no driver.
std::shared_ptr<const Driver> driver_of(const void* memory, int& device) {
    static const auto& driver = *new std::shared_ptr<const Driver>([] {
        try {
            return open_cuda_driver();
        } catch (const std::exception&) {
            return std::shared_ptr<const Driver>();
        }
    }());
    device = driver ? driver->device_of(memory) : -1;
    return device < 0 ? nullptr : driver;
}

thread_local int group_depth = 0;

}  // namespace

void resolve_ucc(Symbols& symbols) {
    symbols.need(call.get_version, "ucc_get_version");
    symbols.need(call.status_string, "ucc_status_string");
    symbols.need(call.lib_config_read, "ucc_lib_config_read");
    symbols.need(call.lib_config_release, "ucc_lib_config_release");
    symbols.need(call.init_version, "ucc_init_version");
    symbols.need(call.context_config_read, "ucc_context_config_read");
    symbols.need(call.context_config_release, "ucc_context_config_release");
    symbols.need(call.context_create, "ucc_context_create");
    symbols.need(call.context_progress, "ucc_context_progress");
    symbols.need(call.context_destroy, "ucc_context_destroy");
    symbols.need(call.team_create_post, "ucc_team_create_post");
    symbols.need(call.team_create_test, "ucc_team_create_test");
    symbols.need(call.team_destroy, "ucc_team_destroy");
    symbols.need(call.collective_init, "ucc_collective_init");
    symbols.need(call.collective_post, "ucc_collective_post");
    symbols.need(call.collective_finalize, "ucc_collective_finalize");
    symbols.need(call.ee_create, "ucc_ee_create");
    symbols.need(call.ee_destroy, "ucc_ee_destroy");
    symbols.need(call.ee_get_event, "ucc_ee_get_event");
    symbols.need(call.ee_ack_event, "ucc_ee_ack_event");
    symbols.need(call.collective_triggered_post, "ucc_collective_triggered_post");
}

int ucc_version() {
    if (call.get_version == nullptr) return 0;
    unsigned major = 0, minor = 0, patch = 0;
    call.get_version(&major, &minor, &patch);
    return static_cast<int>(major * 10000 + minor * 100 + patch);
}

const char* ucc_status_text(ucc::Status status) {
    return call.status_string(status);
}

// ---- From the first rank to the last ------------------------------------------------------------------------------

ucc::Status UccTeam::make(UccTeam*& team, const Store& store, int rank, int ranks, const std::atomic<bool>& given_up) {
    auto* one = new UccTeam(rank, ranks);
    const ucc::Status status = one->connect(store, given_up);
    if (status == ucc::ok) {
        team = one;
    } else {
        end(one);
    }
    return status;
}

ucc::Status UccTeam::connect(const Store& store, const std::atomic<bool>& given_up) {
    ucc::Lib lib = nullptr;
    ucc::Status status = library(lib);
    if (status != ucc::ok) return status;
    for_context_ = std::make_unique<UccOob>(PrefixStore("context", store), rank_, ranks_);
    for_team_ = std::make_unique<UccOob>(PrefixStore("team", store), rank_, ranks_);
    for_context_->end_with(&given_up);
    for_team_->end_with(&given_up);
    ucc::ContextConfig config = nullptr;
    status = call.context_config_read(lib, nullptr, &config);
    if (status != ucc::ok) return status;
    ucc::ContextParams context;
    context.mask = ucc::context_has_oob;
    context.oob = for_context_->functions();
    status = call.context_create(lib, &context, config, &context_);
    call.context_config_release(config);
    if (status != ucc::ok) return status;
    ucc::TeamParams team;
    team.mask = ucc::team_has_oob | ucc::team_has_rank | ucc::team_has_rank_range | ucc::team_has_size;
    team.oob = for_team_->functions();
    team.rank = index();
    team.size = size();
    status = call.team_create_post(&context_, 1, &team, &team_);
    while (status >= 0) {
        if (given_up) return ucc::timed_out;
        status = call.team_create_test(team_);
        if (status != ucc::in_progress) return status;
        (void)call.context_progress(context_);
        std::this_thread::sleep_for(50us);
    }
    return status;
}

UccTeam::~UccTeam() = default;

// Returns whether nothing was under way.
bool UccTeam::stop() noexcept {
    over_ = true;
    bool idle = true;
    {
        const std::lock_guard lock(mutex_);
        idle = under_way_.empty() && waiting_ == 0;
        changed_.notify_all();
    }
    if (driver_.joinable()) driver_.join();
    return idle;
}

ucc::Status UccTeam::end(UccTeam* team) {
    if (!team->stop()) return ucc::ok;  // the team stays: a thread may still be in it, and UCC knows its buffers
    for (UccOob* oob : {team->for_context_.get(), team->for_team_.get()}) {
        if (oob == nullptr) continue;
        oob->end_with(nullptr);
        oob->end_at(Clock::now() + time_for_end);
    }
    for (const auto& [stream, engine] : team->engines_) (void)call.ee_destroy(engine);
    ucc::Status status = ucc::ok;
    if (team->team_ != nullptr) {
        for (const auto until = Clock::now() + time_for_end; Clock::now() < until;) {
            status = call.team_destroy(team->team_);
            if (status != ucc::in_progress) break;
            (void)call.context_progress(team->context_);
        }
        if (status != ucc::ok) return status;
    }
    if (team->context_ != nullptr) status = call.context_destroy(team->context_);
    delete team;
    return status;
}

// ---- Collectives --------------------------------------------------------------------------------------------------

struct UccTeam::Grouped {
    UccTeam* team;
    ucc::Request* request;
};

std::vector<UccTeam::Grouped>& UccTeam::group() {
    thread_local std::vector<Grouped> calls;
    return calls;
}

void UccTeam::begin_group() {
    ++group_depth;
}

ucc::Status UccTeam::end_group() {
    if (group_depth > 0 && --group_depth > 0) return ucc::ok;
    std::vector<Grouped> calls;
    calls.swap(group());
    ucc::Status status = ucc::ok;
    for (const Grouped& one : calls) {
        const ucc::Status ended = one.team->finish(one.request);
        if (status == ucc::ok) status = ended;
    }
    return status;
}

void UccTeam::copy(void* to, const void* from, std::size_t bytes, void* stream) const {
    int device = -1;
    if (const auto driver = driver_of(to, device)) return driver->copy(to, from, bytes, stream);
    std::memmove(to, from, bytes);
}

ucc::Status UccTeam::start(ucc::CollArgs& args, const void* memory, void* stream) {
    if (over_) return ucc::not_supported;
    int device = -1;
    if (driver_of(memory, device)) {
        args.src.memory = args.dst.memory = ucc::cuda_memory;
        const bool pair = (args.mask & ucc::args_have_active_set) != 0;
        return pair && group_depth > 0 ? trigger_aside(args, stream) : trigger(args, stream);
    }
    ucc::Request* request = nullptr;
    const ucc::Status status = post(args, request);
    if (status != ucc::ok) return status;
    if (group_depth == 0) return finish(request);
    group().push_back({this, request});
    return ucc::ok;
}

ucc::Status UccTeam::post(ucc::CollArgs& args, ucc::Request*& request) {
    const std::lock_guard lock(mutex_);
    ucc::Status status = call.collective_init(&args, &request, team_);
    if (status != ucc::ok) return status;
    status = call.collective_post(request);
    if (status < 0) {
        (void)call.collective_finalize(request);
        return status;
    }
    ++waiting_;
    return ucc::ok;
}

// If the team is over its request stays: UCC cannot cancel it.
ucc::Status UccTeam::finish(ucc::Request* request) {
    for (int looks = 0;; ++looks) {
        {
            const std::lock_guard lock(mutex_);
            if (over_) return ucc::not_supported;
            if (request->status > 0) (void)call.context_progress(context_);
            if (const ucc::Status status = request->status; status <= 0) {
                (void)call.collective_finalize(request);
                --waiting_;
                return status;
            }
        }
        if (looks < looks_before_nap)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(20us);
    }
}

// ---- In CUDA's streams --------------------------------------------------------------------------------------------

ucc::Status UccTeam::engine_of(void* stream, ucc::ExecutionEngine& engine) {
    const auto known = engines_.find(stream);
    if (known != engines_.end()) {
        engine = known->second;
        return ucc::ok;
    }
    ucc::EngineParams params;
    params.stream = stream;
    const ucc::Status status = call.ee_create(team_, &params, &engine);
    if (status == ucc::ok) engines_.emplace(stream, engine);
    return status;
}

// From the library's documentation of triggered collectives: the earlier work in the stream is a computation that
// completes; the engine sends an event when it has taken the collective, and another when that is over.
ucc::Status UccTeam::trigger(ucc::CollArgs& args, void* stream) {
    const std::lock_guard lock(mutex_);
    ucc::ExecutionEngine engine = nullptr;
    ucc::Status status = engine_of(stream, engine);
    if (status != ucc::ok) return status;
    ucc::Request* request = nullptr;
    status = call.collective_init(&args, &request, team_);
    if (status != ucc::ok) return status;
    ucc::Event computed{.type = ucc::event_compute_complete, .request = request};
    status = call.collective_triggered_post(engine, &computed);
    if (status < 0) {
        (void)call.collective_finalize(request);
        return status;
    }
    for (ucc::Event* event = nullptr; call.ee_get_event(engine, &event) == ucc::ok;)
        (void)call.ee_ack_event(engine, event);
    under_way_.push_back(request);
    if (!driver_.joinable()) driver_ = std::thread([this] { drive(); });
    changed_.notify_all();
    return ucc::ok;
}

// For a group of calls: uses a stream for this pair and direction, so that no call waits for another.
ucc::Status UccTeam::trigger_aside(ucc::CollArgs& args, void* stream) {
    int device = -1;
    const auto driver = driver_of(args.src.data, device);
    auto& own = streams_[{args.active_set.start, args.active_set.stride}];
    if (!own) own = std::make_unique<OwnStream>(driver, device, false);
    Event before(driver, device), after(driver, device);
    before.record(stream);
    before.make_wait(own->handle());
    const ucc::Status status = trigger(args, own->handle());
    if (status != ucc::ok) return status;
    after.record(own->handle());
    after.make_wait(stream);
    return ucc::ok;
}

ucc::Status UccTeam::error() noexcept {
    const std::lock_guard lock(mutex_);
    if (!over_ && !under_way_.empty()) look();
    return error_;
}

void UccTeam::look() {
    (void)call.context_progress(context_);
    std::erase_if(under_way_, [this](ucc::Request* request) {
        const ucc::Status status = request->status;
        if (status > 0) return false;
        (void)call.collective_finalize(request);
        if (status < 0) error_ = status;
        return true;
    });
}

void UccTeam::drive() {
    std::unique_lock lock(mutex_);
    while (!over_) {
        if (under_way_.empty()) {
            changed_.wait(lock, [this] { return over_ || !under_way_.empty(); });
            continue;
        }
        look();
        lock.unlock();
        std::this_thread::sleep_for(20us);
        lock.lock();
    }
}

}  // namespace tutti::nccl
