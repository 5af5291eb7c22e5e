// UCC without UCX: ucc.h's functions over a native group of tutti's. Ranks find each other by what their out-of-band
// exchange brings, as UCC's do; nothing moves but in ucc_context_progress(); triggered collectives run in stream order.
//   TUTTI_FAKE_UCC_FAULT=init      contexts are refused with UCC_ERR_NO_RESOURCE
//   TUTTI_FAKE_UCC_FAULT=call      all_reduces of host memory end with UCC_ERR_IO_ERROR
//   TUTTI_FAKE_UCC_FAULT=version   it says 1.1.0
#include "nccl/fake_cuda/cuda.hpp"
#include "nccl/ucc_api.hpp"

#include <tutti/tutti.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

namespace ucc = tutti::nccl::ucc;
using ucc::Collective;
using ucc::Status;
constexpr Status initialized = 2, not_supported = -1, invalid_param = -3, no_resource = -5, io_error = -9;

bool has_fault(std::string_view name) {
    const char* fault = std::getenv("TUTTI_FAKE_UCC_FAULT");
    return fault != nullptr && fault == name;
}

std::string random_name() {
    static std::atomic<unsigned> number{0};
    return "/tmp/tutti_fake_ucc_" + std::to_string(::getpid()) + "_" + std::to_string(number++);
}

// All ranks get the first one's words.
constexpr std::size_t name_bytes = 96;
using Name = std::array<char, name_bytes>;

struct Context {
    Name name{};
    ucc::Oob oob;
};

struct Team;
struct Call {
    ucc::Request request{initialized};  // first: it is what UCC shows of it
    ucc::CollArgs args;
    Team* team = nullptr;
    tutti::Work work;
    tutti::Tensor kept;
    bool posted = false;
};

struct Team {
    Context* context = nullptr;
    ucc::Oob oob;
    void* exchange = nullptr;
    std::vector<Name> names;
    Name own{};
    int rank = 0, size = 0;
    std::thread maker;
    std::atomic<Status> status{ucc::in_progress};
    tutti::ProcessGroup group;
    std::mutex mutex;
    std::vector<Call*> under_way;
};
std::mutex teams_mutex;
std::vector<Team*> teams;

struct Engine {
    Team* team;
    CUstream stream;
    std::deque<ucc::Event*> events;
};

Status exchange(const ucc::Oob& oob, Name& own, std::vector<Name>& all, void*& request) {
    all.resize(oob.ranks);
    if (request == nullptr) {
        const Status status = oob.allgather(own.data(), all.data(), sizeof(Name), oob.info, &request);
        if (status != ucc::ok) return status;
    }
    const Status status = oob.req_test(request);
    if (status == ucc::ok) {
        oob.req_free(request);
        request = nullptr;
    }
    return status;
}
Name name_of(const std::string& text) {
    Name name{};
    text.copy(name.data(), name.size() - 1);
    return name;
}

void join(Team* team, std::string path) {
    try {
        tutti::ProcessGroup group({.store = tutti::FileStore(path, team->size),
                                   .rank = team->rank,
                                   .world_size = team->size,
                                   .timeout = std::chrono::seconds(60),
                                   .backend = "native"});
        team->group = group;
        team->status = ucc::ok;
    } catch (const std::exception&) {
        team->status = no_resource;
    }
}

// ---- What a collective is in a native group ----

struct Kind {
    unsigned ucc;
    tutti::DType tutti;
};
constexpr Kind kinds[] = {{0, tutti::int8},     {1, tutti::int16},    {2, tutti::int32},    {3, tutti::int64},
                          {5, tutti::uint8},    {6, tutti::uint16},   {7, tutti::uint32},   {8, tutti::uint64},
                          {10, tutti::float16}, {11, tutti::float32}, {12, tutti::float64}, {13, tutti::bfloat16}};

bool view_of(const ucc::Buffer& buffer, tutti::TensorView& view) {
    for (const Kind& kind : kinds) {
        if (kind.ucc << 3U != buffer.type) continue;
        if (buffer.data == nullptr) return false;
        view = tutti::TensorView(buffer.data, tutti::Extents::of(static_cast<std::int64_t>(buffer.count)), kind.tutti);
        return true;
    }
    return false;
}
tutti::ReduceOp op_of(int op) {
    constexpr tutti::ReduceOp::Kind operators[] = {tutti::ReduceOp::Kind::sum, tutti::ReduceOp::Kind::product,
                                                   tutti::ReduceOp::Kind::max, tutti::ReduceOp::Kind::min};
    return tutti::ReduceOp(operators[op]);
}
tutti::TensorView part(const tutti::TensorView& all, std::int64_t first, std::int64_t count) {
    auto* data = static_cast<std::byte*>(all.data()) + first * static_cast<std::int64_t>(tutti::size_of(all.dtype()));
    return {data, tutti::Extents::of(count), all.dtype()};
}
tutti::Work begin(Call& call) {
    namespace async = tutti::async;
    const ucc::CollArgs& a = call.args;
    const tutti::ProcessGroup& g = call.team->group;
    const int n = call.team->size, root = static_cast<int>(a.root), me = call.team->rank;
    const bool in_place = (a.mask & ucc::args_have_flags) != 0 && (a.flags & ucc::flag_in_place) != 0;
    tutti::TensorView in, out;
    view_of(a.src, in);
    view_of(a.dst, out);
    switch (a.collective) {
        case Collective::broadcast:
            if ((a.mask & ucc::args_have_active_set) == 0) return async::broadcast(in, {.src = root, .group = g});
            if (me == root) {
                const auto peer = static_cast<int>(static_cast<std::int64_t>(a.active_set.start) + a.active_set.stride);
                return tutti::isend(in, peer, {.group = g});
            }
            return tutti::irecv(in, {.src = root, .group = g});
        case Collective::all_reduce:
            if (!in_place) std::memcpy(out.data(), in.data(), in.byte_count());
            return async::all_reduce(out, {.op = op_of(a.op), .group = g});
        case Collective::reduce: {
            tutti::TensorView x = me == root ? out : in;
            if (me == root && !in_place) std::memcpy(out.data(), in.data(), in.byte_count());
            return async::reduce(x, {.dst = root, .op = op_of(a.op), .group = g});
        }
        case Collective::all_gather:
            return async::all_gather_into_tensor(
                out, in_place ? part(out, me * in.element_count(), in.element_count()) : in, {.group = g});
        case Collective::reduce_scatter: {
            const std::int64_t block = (in_place ? out : in).element_count() / n;
            call.kept = tutti::empty(in.dtype(), tutti::Extents::of(block * n));
            std::memcpy(call.kept.raw_data(), in_place ? out.data() : in.data(), call.kept.byte_count());
            return async::reduce_scatter_tensor(in_place ? part(out, me * block, block) : out, call.kept,
                                                {.op = op_of(a.op), .group = g});
        }
    }
    return {};
}
Status status_of(const tutti::Work& work) {
    return work.is_success() ? ucc::ok : io_error;
}

const char* text_of(Status status) {
    switch (status) {
        case not_supported: return "Operation is not supported";
        case invalid_param: return "Invalid parameter";
        case no_resource: return "Resources are not available for the operation";
        case ucc::timed_out: return "Timeout expired";
        case io_error: return "Network/IO error";
        default: return "Unknown error";
    }
}

void run_in_stream(void* held) {
    auto& call = *static_cast<Call*>(held);
    try {
        tutti::Work work = begin(call);
        work.wait();
        call.request.status = status_of(work);
    } catch (const std::exception&) {
        call.request.status = io_error;
    }
}

// The fake of CUDA's driver, where the process has it.
decltype(&cuLaunchHostFunc) host_function() {
    static const auto function = [] {
        const char* file = std::getenv("TUTTI_CUDA_LIB");
        void* library = file != nullptr ? ::dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
        void* symbol = library != nullptr ? ::dlsym(library, "cuLaunchHostFunc") : nullptr;
        return reinterpret_cast<decltype(&cuLaunchHostFunc)>(symbol);
    }();
    return function;
}

}  // namespace

FAKE_API void ucc_get_version(unsigned* major, unsigned* minor, unsigned* patch) {
    *major = 1;
    *minor = has_fault("version") ? 1 : 8;
    *patch = 0;
}
FAKE_API const char* ucc_status_string(Status status) {
    return text_of(status);
}
FAKE_API Status ucc_lib_config_read(const char*, const char*, void** config) {
    *config = nullptr;
    return ucc::ok;
}
FAKE_API void ucc_lib_config_release(void*) {}
FAKE_API Status ucc_init_version(unsigned major, unsigned minor, const ucc::LibParams* params, void*, void** lib) {
    if (major != 1 || minor > 8 || (params->mask & 1U) == 0 || params->thread_mode != 2) return invalid_param;
    static int one = 0;
    *lib = &one;
    return ucc::ok;
}
FAKE_API Status ucc_context_config_read(void*, const char*, void** config) {
    *config = nullptr;
    return ucc::ok;
}
FAKE_API void ucc_context_config_release(void*) {}
FAKE_API Status ucc_context_create(void*, const ucc::ContextParams* params, void*, Context** context) {
    if (has_fault("init")) return no_resource;
    if ((params->mask & 4U) == 0) return invalid_param;
    auto one = std::make_unique<Context>();
    Name own = name_of(random_name());
    std::vector<Name> all;
    void* request = nullptr;
    Status status = ucc::in_progress;
    while (status == ucc::in_progress) status = exchange(params->oob, own, all, request);
    if (status != ucc::ok) return status;
    one->name = all.front();
    one->oob = params->oob;
    *context = one.release();
    return ucc::ok;
}
FAKE_API Status ucc_context_progress(Context* context) {
    const std::lock_guard lock(teams_mutex);
    for (Team* team : teams) {
        if (team->context != context) continue;
        std::erase_if(team->under_way, [](Call* call) {
            if (!call->work.is_completed()) return false;
            call->request.status = status_of(call->work);
            return true;
        });
    }
    return ucc::ok;
}
// The ranks wait for each other, by what they gave it when it was made.
FAKE_API Status ucc_context_destroy(Context* context) {
    Name own{};
    std::vector<Name> all;
    void* request = nullptr;
    Status status = ucc::in_progress;
    while (status == ucc::in_progress) status = exchange(context->oob, own, all, request);
    delete context;
    return ucc::ok;
}

FAKE_API Status ucc_team_create_post(Context** contexts, std::uint32_t count, const ucc::TeamParams* params,
                                     Team** team) {
    constexpr std::uint64_t needed = (1U << 2U) | (1U << 4U) | (1U << 5U) | (1U << 7U);
    if (count != 1 || (params->mask & needed) != needed || params->oob.ranks != params->size ||
        params->oob.rank != params->rank) {
        return invalid_param;
    }
    auto* one = new Team;
    one->context = contexts[0];
    one->oob = params->oob;
    one->rank = static_cast<int>(params->rank);
    one->size = static_cast<int>(params->size);
    one->own = name_of(random_name());
    *team = one;
    const std::lock_guard lock(teams_mutex);
    teams.push_back(one);
    return ucc::ok;
}
FAKE_API Status ucc_team_create_test(Team* team) {
    if (team->maker.joinable()) {
        if (team->status != ucc::in_progress) team->maker.join();
        return team->status;
    }
    const Status status = exchange(team->oob, team->own, team->names, team->exchange);
    if (status != ucc::ok) return status;
    const std::string path =
        std::string(team->context->name.data()) + std::string(team->names.front().data()).substr(5);
    team->maker = std::thread(join, team, path);
    return ucc::in_progress;
}
FAKE_API Status ucc_team_destroy(Team* team) {
    {
        const std::lock_guard lock(teams_mutex);
        std::erase(teams, team);
    }
    if (team->maker.joinable()) team->maker.join();
    if (team->status == ucc::ok) team->group.destroy();
    delete team;
    return ucc::ok;
}

FAKE_API Status ucc_collective_init(ucc::CollArgs* args, Call** request, Team* team) {
    tutti::TensorView view;
    if (!view_of(args->src, view)) return invalid_param;
    if (args->op < 0 || args->op > 3) return not_supported;
    auto* call = new Call;
    call->args = *args;
    call->team = team;
    *request = call;
    return ucc::ok;
}
FAKE_API Status ucc_collective_post(Call* call) {
    if (call->posted) return invalid_param;
    call->posted = true;
    call->request.status = ucc::in_progress;
    if (has_fault("call") && call->args.collective == Collective::all_reduce) {
        call->request.status = io_error;
        return ucc::ok;
    }
    try {
        call->work = begin(*call);
    } catch (const std::exception&) {
        call->request.status = io_error;
        return io_error;
    }
    const std::lock_guard lock(teams_mutex);
    call->team->under_way.push_back(call);
    return ucc::ok;
}
FAKE_API Status ucc_collective_finalize(Call* call) {
    if (call->request.status > 0 && call->posted) return invalid_param;
    delete call;
    return ucc::ok;
}

FAKE_API Status ucc_ee_create(Team* team, const ucc::EngineParams* params, Engine** engine) {
    if (params->type != 0 || params->bytes != sizeof(void*)) return invalid_param;
    *engine = new Engine{team, static_cast<CUstream>(params->stream), {}};
    return ucc::ok;
}
FAKE_API Status ucc_ee_destroy(Engine* engine) {
    delete engine;
    return ucc::ok;
}
FAKE_API Status ucc_ee_get_event(Engine* engine, ucc::Event** event) {
    if (engine->events.empty()) return -7;  // UCC_ERR_NOT_FOUND
    *event = engine->events.front();
    engine->events.pop_front();
    return ucc::ok;
}
FAKE_API Status ucc_ee_ack_event(Engine*, ucc::Event* event) {
    delete event;
    return ucc::ok;
}
FAKE_API Status ucc_collective_triggered_post(Engine* engine, ucc::Event* event) {
    auto* call = reinterpret_cast<Call*>(event->request);
    if (event->type != ucc::event_compute_complete || call->args.src.memory != ucc::cuda_memory) return invalid_param;
    if (host_function() == nullptr) return not_supported;
    call->posted = true;
    call->request.status = ucc::in_progress;
    if (host_function()(engine->stream, run_in_stream, call) != 0) return io_error;
    engine->events.push_back(new ucc::Event{.type = 1, .request = event->request});
    return ucc::ok;
}
