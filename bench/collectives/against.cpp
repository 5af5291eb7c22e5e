// tutti bench --against: the peers' programs (bench/peers), each started in its own way, in turn with tutti's.
#include "bench/collectives/bench.hpp"
#include "bench/collectives/folder.hpp"
#include "launch/launcher.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;

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
    if (!fs::exists(program)) return "its program is not beside this tutti; in tutti's sources: make bench";
    if (peer == "openmpi" && !on_path("mpirun.openmpi")) return "mpirun.openmpi is not installed";
    if (peer == "mpich" && !on_path("mpiexec.mpich")) return "mpiexec.mpich is not installed";
    if (peer == "torch" &&
        std::system(fmt::format("'{}' -c 'import torch' >/dev/null 2>&1", o.torch_python).c_str()) != 0)
        return fmt::format("{} cannot import torch; --torch-python names another", o.torch_python);
    return {};
}

void run_peer(const std::string& peer, const Options& o, const fs::path& program, const fs::path& folder) {
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
          std::string("--json"), o.json}) {
        job.command.push_back(word);
    }
    if (o.pin) job.command.emplace_back("--pin");
    if (!o.check) job.command.emplace_back("--no-check");
    if (o.sampling.fill) job.command.emplace_back("--fill");
    if (peer != "torch") job.command.insert(job.command.end(), {"--line-file", o.line_file});
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

Row median_row(const std::vector<Row>& rows, const Options& options, const Limits& limits) {
    Row row = rows.front();
    const auto over = [&rows](double Row::*member) {
        std::vector<double> values;
        for (const Row& one : rows) values.push_back(one.*member);
        return median(std::move(values));
    };
    for (double Row::*member : {&Row::median_us, &Row::p10_us, &Row::p90_us, &Row::mean_us, &Row::cpu_us,
                                &Row::line_before_ns, &Row::line_after_ns}) {
        row.*member = over(member);
    }
    row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
    row.busbw_gbps = row.algbw_gbps * row.bus_factor;
    for (const Row& other : rows) {
        if (row.wrong) row.wrong = std::max(*row.wrong, other.wrong.value_or(0));
    }
    row.transport = options.transport;
    row.bound_us = bound_us(row, limits);
    return row;
}

struct Peer {
    std::string name;
    fs::path program;
};
fs::path program_of(const std::string& peer) {
    return peers_folder() / (peer == "torch" ? "torch_gloo.py" : peer);
}
std::vector<Peer> peers_of(const Options& options) {
    const auto absent = absent_peers(options);
    for (const auto& [name, why] : absent)
        std::fprintf(stderr, "tutti bench: %s is left out: %s\n", name.c_str(), why.c_str());
    std::vector<Peer> peers;
    for (const std::string& name : options.against) {
        if (std::ranges::find(absent, name, &std::pair<std::string, std::string>::first) == absent.end())
            peers.push_back({name, program_of(name)});
    }
    return peers;
}

/// Collects the rounds.
class Comparison {
 public:
    Comparison(const Options& options, const StartOwn& own) : options_(options), own_(own), peers_(peers_of(options)) {}

    /// One more round of each implementation, for the cases that `asked` names.
    void round(Options asked) {
        const auto start = [&](std::size_t implementation, const std::string& name, const auto& run) {
            const fs::path folder = folder_ / fmt::format("{}-{}", name, started_++);
            fs::create_directories(folder);
            asked.json = folder / "rows.json";
            asked.line_file = folder / "line";
            run(folder);
            add(implementation, asked.json);
        };
        start(0, "tutti", [&](const fs::path&) {
            // Some of the results may be wrong (status 1): the rows say so.
            if (const int status = own_(asked); status > 1 || !fs::exists(asked.json)) {
                throw std::runtime_error(fmt::format("bench: tutti's ranks ended with exit status {}", status));
            }
        });
        for (std::size_t i = 0; i < peers_.size(); ++i) {
            start(i + 1, peers_[i].name,
                  [&](const fs::path& folder) { run_peer(peers_[i].name, asked, peers_[i].program, folder); });
        }
    }

    /// The cases without rounds that are alike; no collectives where all have some.
    Options lacking() const {
        Options asked = options_;
        asked.collectives.clear();
        asked.sizes.clear();
        for (const auto& [work, rounds] : work_) {
            if (!alike(rows_of(rounds)).front().empty()) continue;
            const auto add_to = [](auto& list, const auto& value) {
                if (std::ranges::find(list, value) == list.end()) list.push_back(value);
            };
            add_to(asked.collectives, options_.collectives[work.first]);
            add_to(asked.sizes, std::max(work.second, sizes_of(options_).front()));  // of a barrier 0
        }
        return asked;
    }

    std::vector<Row> rows(const Limits& limits) const {
        std::vector<Row> result;
        std::size_t unlike = 0;
        for (const auto& [work, rounds] : work_) {
            auto counting = alike(rows_of(rounds));
            if (counting.front().empty()) {
                counting = rows_of(rounds);
                ++unlike;
            }
            for (const auto& one : counting) result.push_back(median_row(one, options_, limits));
        }
        if (unlike > 0) {
            std::fprintf(stderr,
                         "tutti bench: %zu of %zu sizes compare rounds in which the CPUs stood differently to one "
                         "another: the machine moved them in each of %d\n",
                         unlike, work_.size(), started_ / static_cast<int>(peers_.size() + 1));
        }
        return result;
    }

 private:
    // A collective and a size, and the rounds by implementation: tutti, its plans, the peers.
    using Work = std::pair<std::size_t, std::uint64_t>;
    using Rounds = std::map<std::size_t, std::vector<Row>>;

    void add(std::size_t implementation, const std::string& json) {
        for (Row& row : read_json(json)) {
            const auto at = std::ranges::find(options_.collectives, row.collective) - options_.collectives.begin();
            const std::size_t place = 2 * implementation + (row.implementation == "tutti-plan" ? 1 : 0);
            work_[{static_cast<std::size_t>(at), row.bytes}][place].push_back(std::move(row));
        }
    }
    static std::vector<std::vector<Row>> rows_of(const Rounds& rounds) {
        std::vector<std::vector<Row>> result;
        for (const auto& [place, rows] : rounds) result.push_back(rows);
        return result;
    }

    const Options& options_;
    const StartOwn& own_;
    std::vector<Peer> peers_;
    Folder folder_;
    int started_ = 0;
    std::map<Work, Rounds> work_;
};

}  // namespace

std::vector<std::string> peer_names() {
    return {"openmpi", "mpich", "gloo", "torch"};
}

std::vector<std::pair<std::string, std::string>> absent_peers(const Options& options) {
    std::vector<std::pair<std::string, std::string>> absent;
    for (const std::string& name : options.against) {
        if (const std::string why = missing(name, options, program_of(name)); !why.empty())
            absent.emplace_back(name, why);
    }
    return absent;
}

std::vector<Row> compare(const Options& options, const Limits& limits, const StartOwn& own) {
    Comparison comparison(options, own);
    for (int round = 0; round < options.rounds; ++round) comparison.round(options);
    for (int round = 0; round < options.rounds; ++round) {
        const Options lacking = comparison.lacking();
        if (lacking.collectives.empty()) break;
        comparison.round(lacking);
    }
    return comparison.rows(limits);
}

}  // namespace tutti::bench
