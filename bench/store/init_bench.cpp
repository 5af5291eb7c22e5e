// init_bench: how long N processes that have all started take from init_process_group to the end of the first barrier,
// beside PyTorch's gloo. The time is that of the slowest process, from the moment when all are let go. With
// --namespaces the processes are in these network namespaces, equally many in each: hosts.py makes them.
//
// Threads: one (the library has its own). Processes are forked before the library is used.
#include "processes.hpp"
#include "python_driver.hpp"

#include <tutti/tutti.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace {

using namespace tutti::bench;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int ranks_max = 256;

struct Board {
    std::atomic<int> ready;
    std::atomic<std::int64_t> init_ns[ranks_max];
    std::atomic<std::int64_t> end_ns[ranks_max];
};

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

struct Times {
    double init_ms = 0;  ///< until the last process has left init_process_group
    double all_ms = 0;   ///< until the last has left the barrier
};

/// Where the processes are.
struct Hosts {
    std::string address = "127.0.0.1";    ///< of the first
    std::vector<std::string> namespaces;  ///< none: all are here

    std::string of(int rank, int ranks) const {
        if (namespaces.empty()) return {};
        return namespaces[static_cast<std::size_t>(rank) * namespaces.size() / static_cast<std::size_t>(ranks)];
    }
};

void enter(const std::string& name) {
    if (name.empty()) return;
    const int there = ::open(("/var/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (there < 0 || ::setns(there, CLONE_NEWNET) != 0)
        throw std::runtime_error("cannot enter the network namespace " + name);
    ::close(there);
}

Times run_tutti(int ranks, const Hosts& hosts) {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    Board& board = *static_cast<Board*>(memory);  // all zero is its first state
    const std::string method = "tcp://" + hosts.address + ":" + std::to_string(free_port());
    int go[2];
    if (::pipe2(go, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
    std::vector<Process> processes;
    for (int rank = 0; rank < ranks; ++rank) {
        processes.emplace_back([&, rank] {
            enter(hosts.of(rank, ranks));
            ++board.ready;
            char byte = 0;
            if (::read(go[0], &byte, 1) != 1) throw std::runtime_error("the benchmark has ended");
            tutti::init_process_group({.init_method = method, .world_size = ranks, .rank = rank});
            board.init_ns[rank] = now_ns();
            tutti::barrier();
            board.end_ns[rank] = now_ns();
            tutti::destroy_process_group();
        });
    }
    while (board.ready < ranks) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);
    const std::int64_t start = now_ns();
    const std::string bytes(static_cast<std::size_t>(ranks), 'g');
    bool good = ::write(go[1], bytes.data(), bytes.size()) == ranks;
    ::close(go[0]);
    ::close(go[1]);
    for (auto& process : processes) good = process.join() && good;
    if (!good) throw std::runtime_error("a process failed");
    Times times;
    for (int rank = 0; rank < ranks; ++rank) {
        times.init_ms = std::max(times.init_ms, static_cast<double>(board.init_ns[rank] - start) * 1e-6);
        times.all_ms = std::max(times.all_ms, static_cast<double>(board.end_ns[rank] - start) * 1e-6);
    }
    ::munmap(memory, sizeof(Board));
    return times;
}

Times run_gloo(PythonDriver& gloo, int ranks, const Hosts& hosts) {
    std::string request = std::to_string(ranks) + " " + hosts.address + " " + std::to_string(free_port());
    for (const auto& name : hosts.namespaces) request += " " + name;
    const auto result = gloo.ask(request);
    return {result["init_ms"], result["all_ms"]};
}

struct Options {
    std::string torch_python = "python3";
    std::string torch_script = TUTTI_INIT_BENCH_SCRIPT;
    std::vector<int> ranks{2, 8, 32};
    int rounds = 5;
    Hosts hosts;
    std::string json;
};

void run(const Options& options) {
    std::unique_ptr<PythonDriver> gloo;
    try {
        gloo = std::make_unique<PythonDriver>("gloo", options.torch_python, options.torch_script);
    } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
    }
    auto all = nlohmann::json::array();
    std::printf("%5s  %-30s %22s %22s\n", "ranks", "implementation", "init_process_group ms", "with a barrier ms");
    for (const int ranks : options.ranks) {
        std::vector<double> init[2], whole[2];
        for (int round = 0; round < options.rounds; ++round) {
            const auto note = [&](std::size_t who, const Times& times) {
                init[who].push_back(times.init_ms);
                whole[who].push_back(times.all_ms);
            };
            note(0, run_tutti(ranks, options.hosts));
            if (gloo) note(1, run_gloo(*gloo, ranks, options.hosts));
        }
        for (std::size_t who = 0; who < (gloo ? 2U : 1U); ++who) {
            const std::string name =
                who == 0 ? std::string("tutti ") + tutti::version() : "gloo (torch " + gloo->version() + ")";
            std::printf("%5d  %-30s %22.2f %22.2f\n", ranks, name.c_str(), median(init[who]), median(whole[who]));
            all.push_back({{"work", "init_barrier"},
                           {"ranks", ranks},
                           {"implementation", name},
                           {"init_ms", median(init[who])},
                           {"median_ms", median(whole[who])}});
        }
    }
    if (!options.json.empty()) std::ofstream(options.json) << all.dump(1) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures the start of a job: from init_process_group to the end of the first barrier.");
    app.add_option("--torch-python", options.torch_python, "a Python that can import torch")->capture_default_str();
    app.add_option("--torch-script", options.torch_script, "torch_init.py")->group("");
    app.add_option("--ranks", options.ranks)->delimiter(',')->check(CLI::Range(1, ranks_max))->capture_default_str();
    app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
    auto* namespaces = app.add_option("--namespaces", options.hosts.namespaces, "network namespaces for the processes");
    namespaces->delimiter(',');
    app.add_option("--address", options.hosts.address, "that of the first namespace")->needs(namespaces);
    app.add_option("--json", options.json, "writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "init_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
