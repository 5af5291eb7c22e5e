// tutti bench --against: the peers' programs (bench/peers), each started in its own way, in turn with tutti's.
#include "cli/bench/bench.hpp"
#include "launch/launcher.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <tuple>

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;

/// Removed with everything in it.
class Folder {
 public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "tutti-bench-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("bench: no folder can be made in " + fs::temp_directory_path().string());
        }
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
    fs::path path_;
};

// build/bin/tutti and build/bench/peers.
fs::path peers_folder() {
    return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "bench" / "peers";
}

bool on_path(const std::string& program) {
    return std::system(fmt::format("command -v {} >/dev/null 2>&1", program).c_str()) == 0;
}

bool crowded(const Options& options) {
    cpu_set_t allowed;
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < options.ranks;
}

/// How a peer's ranks are started, with its documented best settings: the program's own launcher, or tutti's.
struct Start {
    std::vector<std::string> command, environment;
    int ranks = 1;  ///< that tutti's launcher starts; 1: the command starts them itself
};

Start openmpi(const Options& o, const fs::path& program) {
    Start start;
    start.command = {"mpirun.openmpi",  "-n",        std::to_string(o.ranks),
                     "--oversubscribe", "--bind-to", "none",
                     "--mca",           "pml",       "ob1",
                     "--mca",           "btl",       o.transport == "tcp" ? "self,tcp" : "self,vader"};
    const auto add = [&](std::initializer_list<const char*> more) {
        start.command.insert(start.command.end(), more.begin(), more.end());
    };
    if (o.transport == "tcp") add({"--mca", "btl_tcp_if_include", "lo"});
    if (crowded(o)) add({"--mca", "mpi_yield_when_idle", "1"});
    start.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
    start.command.push_back(program.string());
    return start;
}

Start mpich(const Options& o, const fs::path& program) {
    Start start;
    start.command = {"mpiexec.mpich", "-n", std::to_string(o.ranks), program.string()};
    if (o.transport == "tcp") start.environment = {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"};
    return start;
}

Start meeting(const Options& o, std::vector<std::string> command, const fs::path& folder) {
    return {std::move(command), {"TUTTI_PEER_MEETING=" + folder.string()}, o.ranks};
}

std::string missing(const std::string& peer, const Options& o, const fs::path& program) {
    if (!fs::exists(program)) return "it is not built; install it and type: make bench";
    if (peer == "openmpi" && !on_path("mpirun.openmpi")) return "mpirun.openmpi is not installed";
    if (peer == "mpich" && !on_path("mpiexec.mpich")) return "mpiexec.mpich is not installed";
    if (peer == "torch" &&
        std::system(fmt::format("'{}' -c 'import torch' >/dev/null 2>&1", o.torch_python).c_str()) != 0)
        return fmt::format("{} cannot import torch; --torch-python names another", o.torch_python);
    return {};
}

void run_peer(const std::string& peer, const Options& o, const fs::path& program, const fs::path& folder,
              const std::string& json) {
    fs::create_directories(folder);
    Start start = peer == "openmpi" ? openmpi(o, program)
                  : peer == "mpich" ? mpich(o, program)
                  : peer == "torch" ? meeting(o, {o.torch_python, program.string()}, folder)
                                    : meeting(o, {program.string()}, folder);
    launch::Options job;
    job.command = std::move(start.command);
    const std::string dtype(to_string(o.dtypes.front()));
    for (const std::string& word :
         {fmt::format("{}", fmt::join(o.collectives, ",")), std::string("--sizes"),
          fmt::format("{}", fmt::join(sizes_of(o), ",")), std::string("--dtype"), dtype, std::string("--op"), o.op,
          std::string("--iters"), std::to_string(o.sampling.iterations), std::string("--warmup"),
          std::to_string(o.sampling.warmup), std::string("--seconds"), fmt::format("{}", o.sampling.row_seconds),
          std::string("--json"), json}) {
        job.command.push_back(word);
    }
    if (o.pin) job.command.emplace_back("--pin");
    if (!o.check) job.command.emplace_back("--no-check");
    job.environment = std::move(start.environment);
    job.ranks = start.ranks;
    job.prefix = false;
    job.timeout = std::chrono::minutes(10);
    if (const int status = launch::launch(job); status != 0) {
        throw std::runtime_error(
            fmt::format("bench: {} ended with exit status {}; what it said stands above", peer, status));
    }
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return quantile(values, 0.5);
}

}  // namespace

std::vector<std::string> peer_names() {
    return {"openmpi", "mpich", "gloo", "torch"};
}

std::vector<Row> compare(const Options& options, const Limits& limits,
                         const std::function<int(const std::string& json)>& own) {
    struct Peer {
        std::string name;
        fs::path program;
    };
    std::vector<Peer> peers;
    for (const std::string& name : options.against) {
        const fs::path program = peers_folder() / (name == "torch" ? "torch_gloo.py" : name);
        if (const std::string why = missing(name, options, program); !why.empty()) {
            std::fprintf(stderr, "tutti bench: %s is left out: %s\n", name.c_str(), why.c_str());
        } else {
            peers.push_back({name, program});
        }
    }
    // Rows by size, then by implementation, tutti's first; each with the rounds' rows.
    using Key = std::tuple<std::size_t, std::uint64_t, std::size_t>;
    std::map<Key, std::vector<Row>> rounds;
    const auto add = [&](std::size_t implementation, const std::string& json) {
        for (Row& row : read_json(json)) {
            const auto at = std::ranges::find(options.collectives, row.collective) - options.collectives.begin();
            const std::size_t place = 2 * implementation + (row.implementation == "tutti-plan" ? 1 : 0);
            rounds[{static_cast<std::size_t>(at), row.bytes, place}].push_back(std::move(row));
        }
    };
    const Folder folder;
    for (int round = 0; round < options.rounds; ++round) {
        const std::string json = folder / fmt::format("tutti-{}.json", round);
        // Some of the results may be wrong (status 1): the rows say so.
        if (const int status = own(json); status > 1 || !fs::exists(json)) {
            throw std::runtime_error(fmt::format("bench: tutti's ranks ended with exit status {}", status));
        }
        add(0, json);
        for (std::size_t i = 0; i < peers.size(); ++i) {
            const std::string name = fmt::format("{}-{}", peers[i].name, round);
            const std::string rows = folder / (name + ".json");
            run_peer(peers[i].name, options, peers[i].program, folder / name, rows);
            add(i + 1, rows);
        }
    }
    std::vector<Row> result;
    for (auto& [key, rows] : rounds) {
        Row row = rows.front();
        const auto over = [&rows](double Row::*member) {
            std::vector<double> values;
            for (const Row& one : rows) values.push_back(one.*member);
            return median(std::move(values));
        };
        row.median_us = over(&Row::median_us);
        row.p10_us = over(&Row::p10_us);
        row.p90_us = over(&Row::p90_us);
        row.cpu_us = over(&Row::cpu_us);
        row.line_ns = over(&Row::line_ns);
        row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
        row.busbw_gbps = row.algbw_gbps * row.bus_factor;
        for (const Row& other : rows) {
            if (row.wrong) row.wrong = std::max(*row.wrong, other.wrong.value_or(0));
        }
        row.transport = options.transport;
        row.bound_us = bound_us(row, limits);
        result.push_back(std::move(row));
    }
    return result;
}

}  // namespace tutti::bench
