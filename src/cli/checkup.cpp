#include "cli/checkup.hpp"

#include "api/environment.hpp"
#include "backend/libraries.hpp"
#include "cli/host_settings.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "security/secret.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/peer_memory.hpp"
#include "tune/cache.hpp"
#include "tune/machine.hpp"
#include "tune/tune.hpp"

#include <tutti/spawn.hpp>
#include <tutti/tutti.hpp>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace tutti::cli {
namespace {

using Kind = Finding::Kind;
using namespace std::chrono_literals;

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// Cores' worth of time that the control group allows; 0: no limit, or no visible one.
double core_quota() {
    std::istringstream limit(first_line("/sys/fs/cgroup/cpu.max"));
    std::string quota;
    double period = 0;
    limit >> quota >> period;
    return quota.empty() || quota == "max" || period <= 0 ? 0 : std::atof(quota.c_str()) / period;
}

Finding cores() {
    cpu_set_t set;
    const int usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long all = ::sysconf(_SC_NPROCESSORS_ONLN);
    std::string found = fmt::format("{} of {}", usable, all);
    if (const double quota = core_quota(); quota > 0 && quota < usable) {
        return {Kind::slow, "cores", fmt::format("{}, time for {:.3g}", found, quota),
                fmt::format("ranks that wait by spinning use up the quota: start at most {} here, or TUTTI_WAIT=sleep",
                            std::max(1, static_cast<int>(quota)))};
    }
    return {Kind::good,
            "cores",
            fmt::format("{}; more ranks than that wait by sleeping", found),
            {},
            "no control group allows less than the cores that this process may use"};
}

Finding open_files() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const std::string found = limit.rlim_cur == RLIM_INFINITY ? "no limit" : std::to_string(limit.rlim_cur);
    if (limit.rlim_cur >= 1024) return {Kind::good, "open files", found, {}, "at least 1024"};
    return {Kind::slow, "open files", found,
            "a rank keeps a connection to each rank of other hosts that it talks to: ulimit -n 4096"};
}

// The machine's own name space always has this number.
bool in_user_namespace() {
    constexpr ino_t of_the_machine = 0xeffffffd;
    struct stat status {};
    return ::stat("/proc/self/ns/user", &status) == 0 && status.st_ino != of_the_machine;
}

Finding peer_memory() {
    if (!transport::PeerMemory::allowed()) {
        return {Kind::slow, "peers' memory", "may not be read: large messages are copied twice",
                "allow process_vm_readv, process_vm_writev and pidfd_open: kernel.yama.ptrace_scope=0, the container's "
                "seccomp profile, processes that may be dumped"};
    }
    std::string found = "large messages are read from the sender's memory in one copy";
    if (in_user_namespace())
        found += "; copied twice between ranks that are started in user namespaces of their own, as this process is";
    return {Kind::good, "peers' memory", found, {}, "process_vm_readv and pidfd_open are allowed"};
}

Finding network() {
    std::vector<std::string> interfaces;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) list = nullptr;
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) != 0 ||
            (at->ifa_flags & IFF_UP) == 0)
            continue;
        char text[INET_ADDRSTRLEN] = {};
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
        interfaces.push_back(fmt::format("{} {} (mtu {})", at->ifa_name, text,
                                         first_line(fmt::format("/sys/class/net/{}/mtu", at->ifa_name))));
    }
    ::freeifaddrs(list);
    if (!interfaces.empty())
        return {Kind::good,
                "network",
                fmt::format("{}", fmt::join(interfaces, ", ")),
                {},
                "an interface that is up and has an address, beside loopback"};
    return {Kind::missing, "network", "only loopback", "jobs on several hosts need an interface with an address"};
}

Finding socket_buffers() {
    constexpr long enough = 4 << 20;
    long least = enough;
    std::vector<std::string> found;
    for (const char* name : {"tcp_wmem", "tcp_rmem"}) {
        std::istringstream limits(first_line(fmt::format("/proc/sys/net/ipv4/{}", name)));
        long minimum = 0, usual = 0, most = 0;
        limits >> minimum >> usual >> most;
        if (most == 0) continue;
        least = std::min(least, most);
        found.push_back(fmt::format("{} {} KiB", name, most >> 10));
    }
    const std::string text = found.empty() ? "not to be seen here" : fmt::format("at most {}", fmt::join(found, ", "));
    if (least >= enough) return {Kind::good, "socket buffers", text, {}, "at least 4096 KiB each"};
    return {Kind::slow, "socket buffers", text,
            "one connection does not fill a fast network: sysctl net.ipv4.tcp_wmem and tcp_rmem up to 4 MiB and more"};
}

Finding tuning() {
    const auto setting = tune::setting_from_environment(tune::Files::ignored);
    if (setting.numbers == tune::Setting::Numbers::none)
        return {Kind::slow, "tuning", "off", "TUTTI_TUNE=off: fixed limits choose the algorithms"};
    const tune::Cache cache(tune::topology());
    if (const auto known = cache.load()) {
        const algorithm::CostModel& costs = known->costs;
        const tune::Circumstances& then = known->circumstances;
        const std::string numbers = fmt::format(
            "measured {:%Y-%m-%d %H:%M} UTC: a cache line {:.0f} ns, memory {:.1f} GB/s, a wake-up {:.0f} us ({})",
            fmt::gmtime(static_cast<std::time_t>(then.when)), costs.line_us * 1000, costs.memory_copy_gbps,
            costs.wake_us, cache.file_name());
        if (then.busy())
            return {
                Kind::slow, "tuning", fmt::format("{}, on a busy host: {}", numbers, then.to_string()),
                "the numbers are worse than the host is; the next start measures again, a minute after the last one "
                "at the earliest (now: TUTTI_TUNE=remeasure)"};
        return {Kind::good,
                "tuning",
                numbers,
                {},
                fmt::format("a quiet host: at most 5 % of the time stolen, 10 % waited, repeats 50 % apart; it was: {}",
                            then.to_string())};
    }
    if (cache.usable())
        return {Kind::good, "tuning", fmt::format("not measured yet; will be in {}", cache.file_name())};
    return {Kind::slow, "tuning", "cannot be kept",
            "each job measures for 20 ms: set XDG_CACHE_HOME or HOME to a folder of yours"};
}

std::vector<Finding> environment() {
    std::vector<Finding> findings;
    try {
        api::check_environment();
        findings.push_back({Kind::good,
                            "variables",
                            "every TUTTI_ variable has a value that a group can take",
                            {},
                            "tutti doctor --variables"});
    } catch (const DistError& error) {
        findings.push_back({Kind::broken, "variables", error.what(), "no group can be made until it is right"});
    }
    std::size_t count = 0;
    while (::environ[count] != nullptr) ++count;
    for (const std::string& sentence : env::unknown_variables(std::span<const char* const>(::environ, count)))
        findings.push_back({Kind::slow, "variables", sentence, "it changes nothing"});
    return findings;
}

Finding secret() {
    for (const char* variable : {"TUTTI_JOB_SECRET", "TUTTI_JOB_SECRET_FILE"}) {
        if (!env::get(variable)) continue;
        try {
            (void)security::Secret::from_environment();
            return {Kind::good, "secret", fmt::format("given by {}", variable)};
        } catch (const DistError& error) {
            return {Kind::broken, "secret", error.what(), error.context().hint};
        }
    }
    return {Kind::missing, "secret", "none", "jobs on several hosts need the same TUTTI_JOB_SECRET on all"};
}

// By name; of a name that several folders have, the first.
std::map<std::string, std::filesystem::path> backend_libraries() {
    auto folders = backend::named_folders();
    std::error_code none;
    const auto prefix = std::filesystem::read_symlink("/proc/self/exe", none).parent_path().parent_path();
    for (const char* libraries : {"lib", TUTTI_LIBRARY_FOLDER})
        folders.push_back(prefix / libraries / "tutti/backends");
    std::map<std::string, std::filesystem::path> found;
    for (const auto& folder : folders) {
        for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
            const std::string name = file.path().stem();
            if (name.starts_with("libtutti-backend-")) found.try_emplace(name.substr(17), file.path());
        }
    }
    return found;
}

using Report = const char* (*)();
constexpr std::string_view not_here = "not here: ";

// A backend library's report on the library that it is for; "" where it has none; after "not here: " why the backend
// cannot be used. Asked in a process of its own: the program has tutti in itself, and opening a vendor's library may do
// anything.
std::string report_of(const std::filesystem::path& file) {
    TUTTI_ASSERT(!file.empty());
    int pipe[2];
    if (::pipe(pipe) != 0) return {};
    const pid_t child = ::fork();
    if (child == 0) {
        constexpr unsigned seconds = 10;
        ::alarm(seconds);
        void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        std::string text;
        if (library == nullptr) {
            text = fmt::format("{}it cannot be loaded: {}", not_here, ::dlerror());
        } else if (auto* const report = reinterpret_cast<Report>(::dlsym(library, "tutti_backend_report"));
                   report != nullptr) {
            text = report();
        }
        (void)!::write(pipe[1], text.data(), text.size());
        ::_exit(0);
    }
    ::close(pipe[1]);
    std::string text;
    char part[512];
    for (ssize_t got = 0; child > 0 && (got = ::read(pipe[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    ::close(pipe[0]);
    int status = 0;
    if (child > 0) (void)::waitpid(child, &status, 0);
    if (child > 0 && status != 0)
        return fmt::format("{}asking its library ended the process, or took too long", not_here);
    return text;
}

// This program cannot load them; programs that use libtutti.so find those beside it.
std::vector<Finding> backends() {
    std::vector<std::string> names{"native"};
    std::vector<Finding> findings(1);
    for (const auto& [name, file] : backend_libraries()) {
        names.push_back(name);
        const std::string report = report_of(file);
        if (report.starts_with(not_here)) {
            std::string why = report.substr(not_here.size());
            if (why.starts_with(name + ": ")) why.erase(0, name.size() + 2);  // the line begins with it
            findings.push_back({Kind::missing, name, std::move(why),
                                fmt::format("only groups with the backend \"{}\" need it", name)});
        } else if (!report.empty())
            findings.push_back({Kind::good, name, report});
    }
    findings.front() = {Kind::good, "backends", fmt::format("{}", fmt::join(names, ", "))};
    return findings;
}

bool in_path(const std::string& program) {
    TUTTI_ASSERT(!program.empty() && program.find('/') == std::string::npos);
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        if (::access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
    }
    return false;
}

Finding program(const char* name, const char* use) {
    if (in_path(name)) return {Kind::good, name, "is here"};
    return {Kind::missing, name, "is not in PATH", use};
}

// Two ranks, processes of this machine, that meet and sum.
Finding trial(const char* what, TransportKind transport) {
    TUTTI_ASSERT(what != nullptr && transport != TransportKind::automatic);
    const auto begin = std::chrono::steady_clock::now();
    double microseconds[2] = {};  // the time of a call, and the tuning's prediction
    int result[2];
    if (::pipe(result) != 0) return {Kind::broken, what, "no pipe can be made", "ulimit -n"};
    try {
        const TCPStore store({.is_master = true, .wait_for_workers = false});
        spawn(
            [&](int rank) {
                ProcessGroup group({.store = TCPStore({.port = store.port(), .wait_for_workers = false}),
                                    .rank = rank,
                                    .world_size = 2,
                                    .timeout = 5s,
                                    .transport = transport});
                std::vector<float> x(1 << 18, static_cast<float>(rank + 1));
                all_reduce(x, {.group = group});
                if (std::ranges::any_of(x, [](float value) { return value != 3; }))
                    throw InternalError("the sum of two ranks is wrong");
                std::vector<double> took;
                for (int i = 0; i < 20; ++i) {
                    barrier({.group = group});
                    const auto start = std::chrono::steady_clock::now();
                    all_reduce(x, {.group = group});
                    took.push_back(
                        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
                }
                std::ranges::nth_element(took, took.begin() + 10);
                const double told[2] = {took[10], group.predicted_us("all_reduce", x.size() * sizeof(float))};
                if (rank == 0) (void)!::write(result[1], told, sizeof told);
                group.destroy();
            },
            2);
        if (::read(result[0], microseconds, sizeof microseconds) != sizeof microseconds) microseconds[0] = 0;
    } catch (const std::exception& error) {
        ::close(result[0]), ::close(result[1]);
        return {Kind::broken, what, error.what(), "two ranks of this machine do not meet: see the message"};
    }
    ::close(result[0]), ::close(result[1]);
    const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - begin;
    const std::string found = fmt::format("two ranks met; all_reduce of 1 MiB takes {:.0f} us ({:.0f} ms in all)",
                                          microseconds[0], all.count());
    constexpr double too_long = 5;
    const std::string predicted = fmt::format("the tuning predicts {:.0f} us", microseconds[1]);
    if (microseconds[0] > too_long * microseconds[1])
        return {Kind::slow, what, fmt::format("{}; {}", found, predicted),
                "others use the cores now (top, vmstat 1), or the host has changed: TUTTI_TUNE=remeasure"};
    return {Kind::good,
            what,
            found,
            {},
            fmt::format("each sum is right, and {}: at most {:.0f} times that", predicted, too_long)};
}

Finding shared_memory() {
    try {
        transport::Arena::create_shared(transport::ArenaLayout::of(2, 2));
    } catch (const DistBackendError& error) {
        return {Kind::slow, "shared memory", error.what(), "without it the ranks of a host talk over TCP"};
    }
    return trial("shared memory", TransportKind::shm);
}

}  // namespace

std::vector<Finding> checkup() {
    std::vector<Finding> findings = environment();
    TUTTI_ASSERT(!findings.empty());
    const bool broken = findings.front().kind == Kind::broken;
    if (!broken) {  // before anything starts a thread
        findings.push_back(shared_memory());
        findings.push_back(trial("tcp", TransportKind::tcp));
        findings.push_back(tuning());
        for (const auto& finding : host_settings()) findings.push_back(finding);
    }
    for (const auto& finding : {cores(), peer_memory(), open_files(), network(), socket_buffers(), secret()})
        findings.push_back(finding);
    for (const auto& finding : backends()) findings.push_back(finding);
    for (const auto& finding : {program("ssh", "tutti run --hostfile starts ranks on other hosts with it"),
                                program("gdb", "breakpoint() waits for it")})
        findings.push_back(finding);
    return findings;
}

}  // namespace tutti::cli
