// progress_bench: the cost of a wait, and whether an asynchronous all_reduce goes on beside a computation. One rank of
// a job that `tutti run` starts; rank 0 prints and writes the figures.
//
// Threads: one, and the group's own.
#include "bench/collectives/sampling.hpp"
#include "bench/rank_program.hpp"

#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    int rounds = 5;
    int wait_ms = 100;
    std::size_t mib = 64;
    std::string json;
};

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return tutti::bench::quantile(values, 0.5);
}

/// The largest of all ranks' values.
double slowest(double value) {
    tutti::all_reduce(std::span<double>(&value, 1), {.op = tutti::ReduceOp::max});
    return value;
}

/// A buffer for all_reduce of which some elements are checked.
class Buffer {
 public:
    explicit Buffer(std::size_t bytes) : values_(bytes / sizeof(float)) {}
    std::vector<float>& fresh() {
        for (std::size_t i = 0; i < values_.size(); i += stride) values_[i] = static_cast<float>(tutti::get_rank() + 1);
        return values_;
    }
    void check() const {
        const int n = tutti::get_world_size();
        const auto want = static_cast<float>(n * (n + 1) / 2);
        for (std::size_t i = 0; i < values_.size(); i += stride) {
            if (values_[i] != want) throw std::runtime_error("all_reduce: a wrong result");
        }
    }

 private:
    static constexpr std::size_t stride = 4096;
    std::vector<float> values_;
};

/// The share of a core that rank 0 uses while it waits in `once`, which the other ranks enter later.
double share_of_core(const Options& options, const std::function<void()>& once) {
    std::vector<double> shares;
    for (int round = 0; round < options.rounds; ++round) {
        tutti::barrier();
        if (tutti::get_rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(options.wait_ms));
        const auto start = Clock::now();
        const double cpu_before_us = tutti::bench::cpu_time_us();
        once();
        shares.push_back((tutti::bench::cpu_time_us() - cpu_before_us) / us_since(start));
    }
    return median(shares);
}

nlohmann::json measure_waits(const Options& options) {
    Buffer buffer(std::size_t{1} << 20);
    std::vector<float> message(1024);
    const std::vector<std::pair<std::string, std::function<void()>>> operations{{"barrier", [] { tutti::barrier(); }},
                                                                                {"all_reduce 1 MB",
                                                                                 [&buffer] {
                                                                                     tutti::all_reduce(buffer.fresh());
                                                                                     buffer.check();
                                                                                 }},
                                                                                {"recv", [&message] {
                                                                                     if (tutti::get_rank() == 0)
                                                                                         tutti::recv(message,
                                                                                                     {.src = 1});
                                                                                     if (tutti::get_rank() == 1)
                                                                                         tutti::send(message, 0);
                                                                                 }}};
    auto rows = nlohmann::json::array();
    for (const auto& [name, once] : operations) {
        const double share = share_of_core(options, once);
        rows.push_back({{"work", "wait"}, {"case", name}, {"milliseconds", options.wait_ms}, {"share", share}});
    }
    return rows;
}

/// Arithmetic that stays in registers.
class Computation {
 public:
    explicit Computation(double us) {
        for (double took = 0; took < us / 4; took = time_us()) turns_ *= 2;
        std::vector<double> times;
        for (int i = 0; i < 5; ++i) times.push_back(time_us());
        turns_ = static_cast<std::uint64_t>(static_cast<double>(turns_) * us / median(times));
    }
    void run() const {
        double x = 1;
        for (std::uint64_t i = 0; i < turns_; ++i) {
            x = x * 0.999999 + 1e-6;
            asm volatile("" : "+x"(x));  // so that each turn is made
        }
    }

 private:
    double time_us() const {
        const auto start = Clock::now();
        run();
        return us_since(start);
    }
    std::uint64_t turns_ = 1024;
};

nlohmann::json measure_overlap(const Options& options) {
    Buffer buffer(options.mib << 20);
    const auto timed = [](const std::function<void()>& work) {
        tutti::barrier();
        const auto start = Clock::now();
        work();
        return slowest(us_since(start));
    };
    const auto reduce = [&buffer] {
        tutti::all_reduce(buffer.fresh());
        buffer.check();
    };
    std::vector<double> alone;
    for (int round = 0; round < options.rounds + 1; ++round) alone.push_back(timed(reduce));
    alone.erase(alone.begin());  // the first one maps memory
    const Computation computation(slowest(median(alone)));
    std::vector<double> computing, one_after_other, together, left;
    for (int round = 0; round < options.rounds; ++round) {
        computing.push_back(timed([&] { computation.run(); }));
        one_after_other.push_back(timed([&] {
            reduce();
            computation.run();
        }));
        double rest_us = 0;
        together.push_back(timed([&] {
            tutti::Work work = tutti::async::all_reduce(buffer.fresh());
            computation.run();
            const auto start = Clock::now();
            work.wait();
            rest_us = us_since(start);
            buffer.check();
        }));
        left.push_back(slowest(rest_us) / together.back());
    }
    return {{"work", "overlap"},
            {"mib", options.mib},
            {"all_reduce_us", median(alone)},
            {"compute_us", median(computing)},
            {"one_after_other_us", median(one_after_other)},
            {"together_us", median(together)},
            {"left", median(left)}};
}

void run(const Options& options) {
    tutti::bench::pin_to(std::stoi(std::getenv("RANK")), std::stoi(std::getenv("WORLD_SIZE")));
    tutti::init_process_group();
    auto rows = measure_waits(options);
    rows.push_back(measure_overlap(options));
    if (tutti::get_rank() == 0) {
        tutti::bench::report(rows, options.json);
    }
    tutti::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("What a wait costs, and whether an asynchronous all_reduce goes on beside a computation; one rank.");
    app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--wait", options.wait_ms, "milliseconds that rank 0 waits")
        ->check(CLI::Range(1, 60000))
        ->capture_default_str();
    app.add_option("--mib", options.mib, "MiB of the overlapped all_reduce")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--json", options.json, "rank 0 writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    return tutti::bench::run_as_rank("progress_bench", [&] { run(options); });
}
