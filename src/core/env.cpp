#include "core/env.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <ranges>

extern char** environ;

namespace tutti::env {
namespace {

constexpr std::string_view prefix = "TUTTI_";
constexpr auto table = std::to_array<Variable>({
    {"TUTTI_ACL_LIB", "backend hccl: the file of AscendCL (default libascendcl.so)"},
    {"TUTTI_ALGORITHM", "use this algorithm: NAME or COLLECTIVE=NAME[,…], or any but this one: ^NAME; rank 0's counts"},
    {"TUTTI_BACKEND_PATH", "folders, separated by colons, with libraries of backends (before tutti's own folder)"},
    {"TUTTI_CONFORMANCE_BACKEND", "set by tutti-backend-conformance: what its tests are about"},
    {"TUTTI_CONFORMANCE_PORT", "tutti-backend-conformance under mpirun: where the ranks meet"},
    {"TUTTI_CUDA_LIB", "backend nccl: the file of CUDA's driver (default libcuda.so.1)"},
    {"TUTTI_DETERMINISM", "fast (default), run_to_run or layout_invariant"},
    {"TUTTI_DISTRIBUTED_DEBUG",
     "off (default), info or detail: what is checked and logged; before TORCH_DISTRIBUTED_DEBUG"},
    {"TUTTI_FAULTS", "faults for drills, such as \"rank=3 op=all_reduce@100 kill; rank=1 op=send stop=5s\""},
    {"TUTTI_HANDSHAKE_TIMEOUT_MS", "how long a new connection may take to prove the secret (default 5000)"},
    {"TUTTI_HCCL_LIB", "backend hccl: the file of HCCL (default libhccl.so)"},
    {"TUTTI_HIP_LIB", "backend rccl: the file of HIP's runtime (default libamdhip64.so)"},
    {"TUTTI_HOST", "address that this process listens on (default: the one that reaches the master)"},
    {"TUTTI_HUGE_PAGES",
     "1 (default: buffers that are used often get huge pages), own (tutti's own tensors alone) or 0"},
    {"TUTTI_INSECURE", "1: allow a job on several hosts without a secret"},
    {"TUTTI_JOB_SECRET", "the job's secret, of 16 bytes or more; every connection proves it"},
    {"TUTTI_JOB_SECRET_FILE", "owner-only file that holds the job's secret"},
    {"TUTTI_LAUNCHER",
     "set by tutti run: by which it finds the processes that it has started, and ranks tell it whom they blame"},
    {"TUTTI_LAUNCHER_MASTER_PORT",
     "set by tutti run, as MASTER_PORT: where that is another, TUTTI_STORE_PORT does not count"},
    {"TUTTI_LAUNCH_NUMBER", "set by tutti run: the process's number with its launcher"},
    {"TUTTI_LIFELINE_TIMEOUT_MS",
     "how long a host may not answer until its ranks count as lost, in milliseconds (default 13500; at least 2000)"},
    {"TUTTI_LOG_FORMAT", "text (default), or json: each line of the log is a JSON object"},
    {"TUTTI_LOG_LEVEL", "trace, debug, info, warning (default), error or off"},
    {"TUTTI_METRICS_FILE", "file that takes the counters of this process every second, as Prometheus reads them"},
    {"TUTTI_MPI_LIB",
     "backend mpi: the file of MPI's library (default: the one that is loaded, else by mpirun and the loader's path)"},
    {"TUTTI_NCCL_FAULTS", "libtutti-nccl: faults for tests, such as \"error=remote_error after=3 rank=1\""},
    {"TUTTI_NCCL_LIB", "backend nccl: the file of NCCL's library (default: beside torch, then the loader's path)"},
    {"TUTTI_NEWCOMER",
     "1, set by tutti run: no rank yet; init_process_group() and join() wait for a group to take the process in"},
    {"TUTTI_NNODES",
     "tutti run in a pod of a Kubernetes Indexed Job: how many pods the job has (default: one job each)"},
    {"TUTTI_PROGRESS_NICE",
     "niceness of the thread of asynchronous operations, over its process's (default 0; -20 to 19; less takes a "
     "right)"},
    {"TUTTI_RCCL_LIB",
     "backend rccl: the file of RCCL (default: beside torch, then librccl.so.1 by the loader's path)"},
    {"TUTTI_REPLACES",
     "1, set by tutti run: a process comes for each rank that is lost (--replace, --spares), so resilient() waits for "
     "it"},
    {"TUTTI_REPLACE_GLOO",
     "1: `import tutti.torch`, which `import torch` does, puts tutti in the place of PyTorch's gloo"},
    {"TUTTI_SCHEDULE",
     "files of schedules as text (docs/guides/write-a-schedule.md), separated by commas; rank 0's counts"},
    {"TUTTI_SPEC_DIR", "where tests write the inventory rows that they showed"},
    {"TUTTI_SPREAD",
     "0: where ranks outnumber cores, none moves its caller's thread to a core with fewer ranks (default 1)"},
    {"TUTTI_STATUS_PORT",
     "rank r serves /status and /metrics at this port + r of 127.0.0.1, to those who know TUTTI_JOB_SECRET"},
    {"TUTTI_STORE_LOCAL", "0: clients of a TCPStore on its own host use TCP too (default 1: a Unix socket)"},
    {"TUTTI_STORE_PORT", "set by tutti run: where it serves the store, so that rank 0 does not"},
    {"TUTTI_STORE_STANDBY",
     "HOST:PORT, set by tutti run --standby: where the store is if it is not at MASTER_ADDR and TUTTI_STORE_PORT"},
    {"TUTTI_SYCL_LIB", "backend xccl: the file of libtutti-sycl.so (default: by the loader's path)"},
    {"TUTTI_TCP_CHECKSUM",
     "CRC-32C of what ranks send over TCP: auto (default: but for loopback), on or off; rank 0's counts"},
    {"TUTTI_TCP_CONGESTION",
     "auto (default: the system's congestion control, but Reno for BBR between near hosts), system, or a name"},
    {"TUTTI_TCP_CONNECTIONS", "auto (default: more where they help) or 1 to 16: connections between two ranks"},
    {"TUTTI_TIMEOUT_MS", "default time limit of an operation, in milliseconds"},
    {"TUTTI_TLS", "on or off (default): TLS 1.3 for all connections between hosts; the same on all hosts"},
    {"TUTTI_TRACE_DIR", "folder for what the recorder holds: when a group fails or ends, and on SIGUSR2"},
    {"TUTTI_TRACE_FORMAT", "tutti (default), or torch: TUTTI_TRACE_DIR takes files for torchfrtrace, too"},
    {"TUTTI_TRANSPORT", "auto (default), shm or tcp"},
    {"TUTTI_TUNE", "auto (default), off, nocache, remeasure, COLLECTIVE[:BYTES]=ALGORITHM or a file; rank 0's counts"},
    {"TUTTI_UCC_LIB", "backend ucc: the file of UCC (default libucc.so.1)"},
    {"TUTTI_WAIT",
     "auto (default), spin, yield or sleep: what a waiting rank does; others than auto leave it on its core"},
    {"TUTTI_XCCL_LIB",
     "backend xccl: the file of oneCCL (default: beside torch, then libccl.so.2 by the loader's path)"},
});

// All names begin alike, so the prefix says nothing about how near they are.
std::string after_the_prefix(std::string_view name) {
    const std::string near =
        nearest(name.substr(prefix.size()),
                table | std::views::transform([](const Variable& v) { return v.name.substr(prefix.size()); }));
    return near.empty() ? near : fmt::format("{}{}", prefix, near);
}

thread_local const Snapshot* own_view = nullptr;  // of a thread that the library has started

std::span<const char* const> environment_now() {
    std::size_t count = 0;
    TUTTI_ASSERT(environ != nullptr);
    while (environ[count] != nullptr) ++count;
    return {environ, count};
}

}  // namespace

// Most threads start with the same, so it is shared.
Snapshot snapshot() {
    if (own_view != nullptr) return *own_view;
    const auto entries = environment_now();
    const auto now = std::make_shared<const std::vector<std::string>>(entries.begin(), entries.end());
    static std::mutex mutex;
    static auto& last = *new std::weak_ptr<const std::vector<std::string>>;  // threads start after main(), too
    const std::lock_guard lock(mutex);
    if (const Snapshot before = last.lock(); before && *before == *now) return before;
    last = now;
    return now;
}

Reading::Reading(Snapshot what) : what_(std::move(what)) {
    TUTTI_ASSERT(what_ != nullptr && own_view == nullptr);
    own_view = &what_;
}
Reading::~Reading() {
    own_view = nullptr;
}

std::span<const Variable> known_variables() {
    TUTTI_ASSERT(std::ranges::is_sorted(table, {}, &Variable::name));
    return table;
}

std::optional<std::string> get(std::string_view name) {
    TUTTI_ASSERT(!name.empty() && name.find('=') == std::string_view::npos);
    TUTTI_ASSERT(!name.starts_with(prefix) || std::ranges::binary_search(table, name, {}, &Variable::name));
    if (own_view == nullptr) {
        const char* value = std::getenv(std::string(name).c_str());
        if (value == nullptr || *value == '\0') return std::nullopt;
        return std::string(value);
    }
    for (const std::string_view entry : **own_view) {
        if (!entry.starts_with(name) || entry.size() <= name.size() + 1 || entry[name.size()] != '=') continue;
        return std::string(entry.substr(name.size() + 1));
    }
    return std::nullopt;
}

std::optional<std::int64_t> get_int(std::string_view name, std::int64_t min, std::int64_t max) {
    TUTTI_ASSERT(min <= max);
    const auto text = get(name);
    if (!text) return std::nullopt;
    const auto value = number_in<std::int64_t>(*text);
    if (!value || *value < min || *value > max) {
        throw InvalidArgument(
            fmt::format("environment variable {}={}: expected an integer from {} to {}", name, *text, min, max));
    }
    TUTTI_ASSERT(*value >= min && *value <= max);
    return value;
}

bool get_bool(std::string_view name, bool fallback) {
    const auto text = get(name);
    return text ? truth(name, *text) : fallback;
}

bool truth(std::string_view name, const std::string& text) {
    const std::string value = in_lower_case(text);
    if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
    if (value == "0" || value == "false" || value == "no" || value == "off") return false;
    throw InvalidArgument(fmt::format("environment variable {}={}: expected 1 or 0{}", name, text,
                                      did_you_mean(text, std::array{"true", "false", "yes", "no", "on", "off"})));
}

std::vector<std::string> unknown_variables(std::span<const char* const> environment) {
    std::vector<std::string> sentences;
    for (const char* entry : environment) {
        TUTTI_ASSERT(entry != nullptr);
        const std::string_view text(entry);
        const std::string_view name = text.substr(0, text.find('='));
        if (!name.starts_with(prefix)) continue;
        if (std::ranges::any_of(table, [&](const Variable& v) { return v.name == name; })) continue;
        const std::string near = after_the_prefix(name);
        sentences.push_back(
            fmt::format("unknown environment variable {}; {}", name,
                        near.empty() ? "tutti doctor --variables lists all" : fmt::format("did you mean {}?", near)));
    }
    return sentences;
}

void warn_about_unknown_variables() {
    static std::once_flag once;
    std::call_once(once, [] {
        for (const auto& sentence : unknown_variables(environment_now())) TUTTI_WARN("{}", sentence);
    });
}

}  // namespace tutti::env
