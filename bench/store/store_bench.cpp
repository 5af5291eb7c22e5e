// store_bench: the cost of a TCPStore operation on loopback, beside Redis and PyTorch's TCPStore. Every contender's
// server is a process of its own, every client a process with one connection, one request at a time. The contenders
// take turns in every round; the figures are medians over the rounds.
//
// Threads: one.
#include "contender.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace tutti::bench;

struct Options {
    std::string redis_server = "redis-server";
    std::string torch_python = "python3";
    std::string torch_script = TUTTI_STORE_BENCH_SCRIPT;
    std::vector<int> clients{1, 8, 50};
    std::vector<std::string> work{work_names.begin(), work_names.end()};
    std::vector<std::string> against{"tcp", "redis", "torch"};
    int rounds = 5;
    int milliseconds = 200;
    std::string json;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

Contenders make_contenders(const Options& options) {
    Contenders result;
    const auto add = [&](std::unique_ptr<Contender> contender, const std::string& why) {
        if (!contender) return void(std::printf("%s\n", why.c_str()));
        result.push_back(std::move(contender));
    };
    std::string why;
    const auto wanted = [&](const char* name) { return std::ranges::count(options.against, name) > 0; };
    add(make_tutti(Way::usual), why);
    if (wanted("tcp")) add(make_tutti(Way::tcp_only), why);
    if (wanted("redis")) add(make_redis(options.redis_server, why), why);
    if (wanted("torch")) add(make_torch(options.torch_python, options.torch_script, why), why);
    return result;
}

std::vector<Task> make_tasks(const Options& options) {
    std::vector<Task> tasks;
    const std::chrono::milliseconds time(options.milliseconds);
    for (const auto& word : options.work) {
        const auto at = std::ranges::find(work_names, word);
        const Work work = static_cast<Work>(at - work_names.begin());
        if (work == Work::wake) {
            tasks.push_back({work, 1, time});
        } else {
            for (const int clients : options.clients) tasks.push_back({work, clients, time});
        }
    }
    return tasks;
}

struct Row {
    std::vector<double> medians_us, ops_per_s;
};

void report(const std::vector<Task>& tasks, const Contenders& contenders, std::vector<std::vector<Row>>& rows,
            const std::string& file) {
    auto all = nlohmann::json::array();
    std::printf("%-5s %7s  %-24s %10s %12s  %s\n", "work", "clients", "implementation", "median us", "ops/s",
                "time and throughput, tutti / it");
    for (std::size_t t = 0; t < tasks.size(); ++t) {
        Figures ours;
        for (std::size_t c = 0; c < contenders.size(); ++c) {
            const Figures figures{median(rows[t][c].medians_us), median(rows[t][c].ops_per_s)};
            if (c == 0) ours = figures;
            const std::string work(name_of(tasks[t].work));
            std::printf("%-5s %7d  %-24s %10.2f %12.0f", work.c_str(), tasks[t].clients, contenders[c]->name().c_str(),
                        figures.median_us, figures.ops_per_s);
            if (c > 0) {
                std::printf("  %.2f %.2f", ours.median_us / figures.median_us, ours.ops_per_s / figures.ops_per_s);
            }
            std::printf("\n");
            all.push_back({{"work", work},
                           {"clients", tasks[t].clients},
                           {"implementation", contenders[c]->name()},
                           {"median_us", figures.median_us},
                           {"ops_per_s", figures.ops_per_s}});
        }
    }
    for (const auto& contender : contenders) {
        if (const auto remark = contender->remark(); !remark.empty()) std::printf("%s\n", remark.c_str());
    }
    if (!file.empty()) std::ofstream(file) << all.dump(1) << '\n';
}

void run(const Options& options) {
    const Contenders contenders = make_contenders(options);
    const auto tasks = make_tasks(options);
    std::vector<std::vector<Row>> rows(tasks.size(), std::vector<Row>(contenders.size()));
    for (int round = 0; round < options.rounds; ++round) {
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
                // Another one begins in every round.
                const std::size_t c = (turn + static_cast<std::size_t>(round)) % contenders.size();
                const Figures figures = contenders[c]->run(tasks[t]);
                rows[t][c].medians_us.push_back(figures.median_us);
                rows[t][c].ops_per_s.push_back(figures.ops_per_s);
            }
        }
    }
    report(tasks, contenders, rows, options.json);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures the operations of a TCPStore on loopback, beside Redis and PyTorch's TCPStore.");
    app.add_option("--redis-server", options.redis_server, "Redis's server program")->capture_default_str();
    app.add_option("--torch-python", options.torch_python, "a Python that can import torch")->capture_default_str();
    app.add_option("--torch-script", options.torch_script, "torch_store.py")->group("");
    app.add_option("--clients", options.clients, "numbers of clients")
        ->delimiter(',')
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--work", options.work, "what to measure")
        ->delimiter(',')
        ->check(CLI::IsMember({"get", "set", "add", "wake"}))
        ->capture_default_str();
    app.add_option("--against", options.against, "peers; tcp: tutti without Unix sockets")
        ->delimiter(',')
        ->check(CLI::IsMember({"tcp", "redis", "torch", "none"}))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--milliseconds", options.milliseconds, "of each measurement")
        ->check(CLI::Range(1, 60000))
        ->capture_default_str();
    app.add_option("--json", options.json, "writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "store_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
