// tutti bench: the command line, and the ranks that it starts.
#include "bench/collectives/bench.hpp"

#include "bench/collectives/command.hpp"
#include "bench/collectives/computing.hpp"
#include "bench/collectives/folder.hpp"
#include "bench/collectives/page.hpp"
#include "core/suggestion.hpp"
#include "core/thread.hpp"
#include "launch/launcher.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <mutex>
#include <sstream>

namespace tutti::bench {
namespace {

using namespace command;

struct Arguments {
    std::string collectives, min = "8", max = "64M", sizes, dtypes = "float32";
    std::string worker;  ///< the limits that the parent measured, when this is a rank
    std::string against;
    int check = 1;
    bool no_check = false, no_pin = false, no_limits = false, quiet = false;
    Options options;
};

std::vector<std::string> list_of(const std::string& text) {
    std::vector<std::string> items;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) items.push_back(item);
    return items;
}

void complete(Arguments& a) {
    Options& o = a.options;
    const auto known = collective_names();
    o.collectives = a.collectives == "all" ? known : list_of(a.collectives);
    if (a.collectives == "all" && o.op == "avg")  // which no prefix has
        std::erase_if(o.collectives, [](const std::string& name) { return name == "scan" || name == "exscan"; });
    if (o.collectives.empty()) {
        throw CLI::ValidationError(fmt::format("collectives \"\": expected all or some of {}", fmt::join(known, ",")));
    }
    for (const std::string& name : o.collectives) {
        if (std::ranges::find(known, name) != known.end()) continue;
        throw CLI::ValidationError(fmt::format("collective \"{}\": expected all or some of {}{}", name,
                                               fmt::join(known, ","), did_you_mean(name, known)));
    }
    o.min_bytes = bytes_of(a.min, "-b");
    o.max_bytes = bytes_of(a.max, "-e");
    if (o.min_bytes < 1 || o.max_bytes < o.min_bytes) {
        throw CLI::ValidationError("-b " + a.min + " -e " + a.max + ": expected 1 <= b <= e");
    }
    for (const std::string& size : list_of(a.sizes)) {
        o.sizes.push_back(bytes_of(size, "--sizes"));
        if (o.sizes.back() < 1)
            throw CLI::ValidationError("--sizes " + a.sizes + ": expected sizes of at least 1 byte");
    }
    if (!(o.factor > 1)) throw CLI::ValidationError(fmt::format("-f {}: expected a factor above 1", o.factor));
    o.dtypes.clear();
    for (const std::string& name : list_of(a.dtypes)) o.dtypes.push_back(dtype_from_string(name));
    if (o.dtypes.empty()) throw CLI::ValidationError("--dtype \"\": expected a list such as float32,int64");
    op_from_string(o.op);
    // Better refused now than after the measurement.
    for (const auto& [option, file] : {std::pair("--json ", &o.json), std::pair("--csv ", &o.csv)}) {
        if (!file->empty() && a.worker.empty() && !std::ofstream(*file, std::ios::app))
            throw CLI::ValidationError(option + *file +
                                       ": expected a file that can be written: " + std::strerror(errno));
    }
    if (!o.report.empty() && o.regret)
        throw CLI::ValidationError("--report: expected no --regret, whose rows are others; --json has them");
    if (!o.csv.empty() && o.regret)
        throw CLI::ValidationError("--csv: expected no --regret, whose rows are others; --json has them");
    o.against = list_of(a.against);
    const auto peers = peer_names();
    for (const std::string& name : o.against) {
        if (std::ranges::find(peers, name) != peers.end()) continue;
        throw CLI::ValidationError(fmt::format("--against \"{}\": expected some of {}{}", name, fmt::join(peers, ","),
                                               did_you_mean(name, peers)));
    }
    if (!o.against.empty() && o.dtypes.size() > 1) {
        throw CLI::ValidationError("--dtype " + a.dtypes + ": expected one type with --against");
    }
    if (!o.against.empty() && o.transport == "inproc") {
        throw CLI::ValidationError("--transport inproc: expected shm or tcp with --against; peers have processes");
    }
    if (o.regret && !o.against.empty()) {
        throw CLI::ValidationError("--regret: expected no --against; it compares tutti's own algorithms");
    }
    a.no_check |= a.check == 0;
    o.check = !a.no_check;
    o.pin = !a.no_pin;
    o.table = !a.quiet;
}

bool all_right(const std::vector<Row>& rows) {
    return std::ranges::none_of(rows, [](const Row& row) { return row.wrong.value_or(0) > 0; });
}

// The process in which the command was typed prints, writes and judges.
int finish(const Options& options, const Limits& limits, const std::vector<Row>& rows, Report* report) {
    if (options.regret) return 0;
    if (options.table) print_summary(stdout, rows);
    std::fflush(stdout);
    if (!options.json.empty()) write_json(options.json, rows, limits);
    if (!options.csv.empty()) write_csv(options.csv, rows, limits);
    if (report != nullptr) {
        About about = about_this_host();
        about.versions = versions_of(options);
        about.absent = absent_peers(options);
        report->write(rows, limits, std::move(about));
        std::printf("# report: %s/index.html%s\n", options.report.c_str(),
                    report->why_no_plots().empty() ? "" : ", without plots");
    }
    return all_right(rows) ? 0 : 1;
}

// The work of one rank. It reports regrets here, and returns rows for finish().
std::vector<Row> run_rank_of(const Options& options, const Limits& limits, const ProcessGroup& group) {
    std::FILE* table = options.table && group.rank() == 0 ? stdout : nullptr;
    if (!options.regret) return measure(options, limits, group, table);
    const auto regrets = measure_regret(options, group, table);
    if (group.rank() == 0 && !options.json.empty()) write_json(options.json, regrets);
    return {};
}

// Ranks as threads. The first error is the one to tell: the others follow from it.
int run_threads(const Options& options, const Limits& limits, Report* report) {
    const HashStore store;
    std::vector<Row> rows;
    std::exception_ptr first;
    std::mutex mutex;
    // No thread begins before all are there: they would wait for those that cannot be had.
    enum class Sign { waits, goes, fails };
    std::atomic<Sign> start{Sign::waits};
    std::list<thread::Joined> threads;
    try {
        for (int rank = 0; rank < options.ranks; ++rank) {
            threads.emplace_back(thread::start({"tutti-rank", fmt::format("rank {}", rank)}, [&, rank] {
                start.wait(Sign::waits);
                if (start == Sign::fails) return;
                try {
                    ProcessGroup group({.store = store, .rank = rank, .world_size = options.ranks});
                    auto mine = run_rank_of(options, limits, group);
                    if (rank == 0) rows = std::move(mine);
                    group.destroy();
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    if (!first) first = std::current_exception();
                }
            }));
        }
        start = Sign::goes;
    } catch (const DistError&) {
        first = std::current_exception();
        start = Sign::fails;
    }
    start.notify_all();
    threads.clear();
    if (first) std::rethrow_exception(first);
    return finish(options, limits, rows, report);
}

int run_rank(const Options& options, const std::string& limits_text) {
    const Limits limits = limits_from_text(limits_text);
    init_process_group();
    const auto rows = run_rank_of(options, limits, default_group());
    const bool writes = get_rank() == 0 && !options.regret && !options.json.empty();
    if (writes) write_json(options.json, rows, limits);
    const int status = all_right(rows) ? 0 : 1;
    destroy_process_group();
    return status;
}

// This program again, once for each rank. `table`: rank 0 prints its measurements.
int run_processes(const Arguments& a, const Limits& limits, bool table) {
    const Options& o = a.options;
    launch::Options job;
    job.ranks = o.ranks;
    job.prefix = false;
    job.environment = {"TUTTI_TRANSPORT=" + o.transport};
    job.command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                   "bench",
                   fmt::format("{}", fmt::join(o.collectives, ",")),
                   "-n",
                   std::to_string(o.ranks),
                   "--sizes",
                   fmt::format("{}", fmt::join(sizes_of(o), ",")),
                   "--dtype",
                   a.dtypes,
                   "--op",
                   o.op,
                   "--transport",
                   o.transport,
                   "--iters",
                   std::to_string(o.sampling.iterations),
                   "--warmup",
                   std::to_string(o.sampling.warmup),
                   "--seconds",
                   fmt::format("{}", o.sampling.row_seconds),
                   "--worker",
                   to_text(limits)};
    if (!o.json.empty()) job.command.insert(job.command.end(), {"--json", o.json});
    if (!o.line_file.empty()) job.command.insert(job.command.end(), {"--line-file", o.line_file});
    if (!table) job.command.emplace_back("--quiet");
    if (o.regret) job.command.insert(job.command.end(), {"--regret", "--rounds", std::to_string(o.rounds)});
    if (o.symmetric) job.command.emplace_back("--symmetric");
    if (a.no_check) job.command.emplace_back("--no-check");
    if (o.plan) job.command.emplace_back("--plan");
    if (o.sampling.fill) job.command.emplace_back("--fill");
    if (a.no_pin) job.command.emplace_back("--no-pin");
    return launch::launch(job);
}

// Tutti's ranks alone: they print the rows and give them to this process.
int run_own(const Arguments& a, const Limits& limits, Report* report) {
    const Folder folder;
    Arguments asked = a;
    asked.options.line_file = folder / "line";
    if (a.options.regret) return run_processes(asked, limits, true);
    asked.options.json = folder / "rows.json";
    const int status = run_processes(asked, limits, a.options.table);
    if (status > 1 || !std::filesystem::exists(asked.options.json)) return status;
    std::vector<Row> rows = read_json(asked.options.json);
    for (Row& row : rows) row.bound_us = bound_us(row, limits);
    return finish(a.options, limits, rows, report);
}

int run_against(const Arguments& a, const Limits& limits, Report* report) {
    const auto rows = compare(a.options, limits, [&](const Options& options) {
        Arguments asked = a;
        asked.options = options;
        return run_processes(asked, limits, false);
    });
    double own = 0;
    for (const Row& row : rows) {
        if (row.implementation == "tutti") own = row.median_us;
        print_row(stdout, row, limits, own);
    }
    return finish(a.options, limits, rows, report);
}

}  // namespace

namespace {

// Null: none is asked for.
std::unique_ptr<Report> report_of(const Options& options) {
    if (options.report.empty()) return nullptr;
    auto report = std::make_unique<Report>(options.report, options.plot_python);
    if (!report->why_no_plots().empty())
        std::fprintf(stderr, "tutti bench: the report will have no plots: %s\n", report->why_no_plots().c_str());
    return report;
}

}  // namespace

Command add_bench(CLI::App& app) {
    auto a = std::make_shared<Arguments>();
    Options& o = a->options;
    o.plot_python = o.torch_python = python_of_scripts();
    CLI::App* sub = app.add_subcommand("bench", "Measure collectives: tutti bench all_reduce -n 2 -b 8 -e 64M -f 2");
    std::vector<std::string> collectives = collective_names();
    collectives.insert(collectives.begin(), "all");
    sub->add_option("collectives", a->collectives, "what is measured")
        ->required()
        ->check(shows(collectives, Form::list));
    sub->add_option("-n,--np,--ranks", o.ranks, "number of ranks")->check(CLI::Range(1, 1024))->capture_default_str();
    sub->add_option("-b,--begin", a->min, "smallest size")->type_name("SIZE")->capture_default_str();
    sub->add_option("-e,--end", a->max, "largest size")->type_name("SIZE")->capture_default_str();
    sub->add_option("-f,--factor", o.factor, "from one size to the next")->capture_default_str();
    sub->add_option("--sizes", a->sizes, "a list of sizes, such as 8,64K,1M, instead of -b, -e and -f")
        ->type_name("SIZES");
    sub->add_option("-d,--dtype", a->dtypes, "element types")
        ->check(shows(dtype_names(), Form::list))
        ->capture_default_str();
    sub->add_option("-o,--op", o.op, "how values are combined")
        ->check(shows(op_names(), Form::word))
        ->capture_default_str();
    sub->add_option("--transport", o.transport, "what carries the data; inproc: ranks are threads")
        ->check(one_of({"shm", "tcp", "inproc"}))
        ->capture_default_str();
    sub->add_flag("--symmetric", o.symmetric, "tutti's buffers are symmetric memory (empty_symmetric)");
    sub->add_option("--json", o.json, "also write the rows to this file, as JSON")->type_name("FILE");
    sub->add_option("--csv", o.csv, "also write the rows to this file, with commas between the columns")
        ->type_name("FILE");
    sub->add_option("-i,--iters", o.sampling.iterations, "samples of each row; 0: as many as fit in --seconds")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    sub->add_option("-w,--warmup", o.sampling.warmup, "calls before the samples")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    sub->add_option("--seconds", o.sampling.row_seconds, "time for each row")
        ->check(is_duration(Zero::refused))
        ->capture_default_str();
    sub->add_flag(both_spellings("--no-check"), a->no_check, "do not check the results");
    sub->add_option("-c,--check", a->check, "the same in nccl-tests' form: 0 does not check")->check(CLI::Range(0, 1));
    sub->add_flag("--plan", o.plan, "measure each call as a plan too, in a row of its own");
    sub->add_flag(both_spellings("--no-pin"), a->no_pin, "leave the ranks to the scheduler");
    sub->add_flag(both_spellings("--no-limits"), a->no_limits,
                  "do not measure the machine's limits, and leave out what they explain");
    sub->add_option("--against", a->against, "also run these peers, in turn with tutti")
        ->check(shows(peer_names(), Form::list));
    sub->add_flag("--regret", o.regret,
                  "run every algorithm by name, in turn, and print how much the chosen one is slower than the best");
    sub->add_option("--rounds", o.rounds, "turns of each, with --against or --regret; times are medians over them")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    sub->add_option(
           "--beside", o.beside,
           "measure beside that many processes that compute; rows take all of --seconds, see mean_us in --json")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    sub->add_option("--report", o.report, "also write the rows, a page and plots (by matplotlib) into this folder")
        ->type_name("FOLDER");
    sub->add_option(both_spellings("--plot-python"), o.plot_python, "the interpreter that has matplotlib")
        ->type_name("FILE")
        ->default_str("PYTHON_EXEC, else python3");
    sub->add_option(both_spellings("--torch-python"), o.torch_python, "the interpreter that has torch")
        ->type_name("FILE")
        ->default_str("PYTHON_EXEC, else python3");
    sub->add_flag(both_spellings("--quiet"), a->quiet)->group("");
    sub->add_flag(both_spellings("--fill"), o.sampling.fill)->group("");
    sub->add_option("--worker", a->worker)->group("");
    sub->add_option("--line-file", o.line_file)->group("");
    sub->footer(
        "Columns and bus bandwidth are nccl-tests'. Every result is checked.\n\n"
        "Examples:\n"
        "  tutti bench all_reduce -n 2 -b 8 -e 64M -f 2\n"
        "  tutti bench all -n 4 --sizes 8,64K,1M --report report\n"
        "  tutti bench all_reduce -n 2 --against openmpi,mpich,gloo\n"
        "  tutti bench all_reduce -n 4 --regret\n\n"
        "Exit status: 0 when every result is right, 1 when one is wrong or a rank fails, 2 for a command line that is "
        "wrong.");
    return [a] {
        complete(*a);
        Options& options = a->options;
        if (!a->worker.empty()) return run_rank(options, a->worker);
        const auto report = report_of(options);
        const Limits limits =
            a->no_limits || options.regret ? Limits{} : measure_limits(options.transport == "tcp", options.ranks);
        if (options.beside > 0) options.sampling.fill = true;
        const Computing beside(options.beside);
        if (!options.regret) print_header(stdout, options, limits);
        if (!options.against.empty()) return run_against(*a, limits, report.get());
        return options.transport == "inproc" ? run_threads(options, limits, report.get())
                                             : run_own(*a, limits, report.get());
    };
}

}  // namespace tutti::bench
