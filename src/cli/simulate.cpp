// tutti simulate: the schedules of a collective, played on a model of a machine.
#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "cli/commands.hpp"
#include "cli/output_file.hpp"
#include "cli/simulate_conditions.hpp"
#include "cli/simulate_report.hpp"
#include "cli/simulate_step.hpp"
#include "cli/tuning.hpp"
#include "command/requests.hpp"
#include "core/assert.hpp"
#include "simulate/goal.hpp"
#include "simulate/picture.hpp"
#include "simulate/step_picture.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/peer_memory.hpp"

#include <tutti/dtype.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>

namespace tutti::cli {
namespace {

constexpr int simulated_ranks_max = 1 << 20;

struct SimulateArguments {
    std::string collective, step, bytes = "1M", dtype = "float32", transport = "auto", algorithm, network, json, svg,
                                  goal;
    int ranks = 2, hosts = 0, ranks_per_host = 0, root = 0, calls = 1;
    double cores = 0;
    ConditionTexts conditions;
};

// `named`: hosts of a file; 0: any number.
int hosts_of(const SimulateArguments& a, int named) {
    if (a.hosts != 0 && a.ranks_per_host != 0)
        throw InvalidArgument(
            fmt::format("--hosts {} and --ranks-per-host {}: expected one of them", a.hosts, a.ranks_per_host));
    const int hosts = a.hosts != 0 ? a.hosts : a.ranks_per_host != 0 ? a.ranks / a.ranks_per_host : std::max(1, named);
    if (hosts < 1 || a.ranks % hosts != 0 || (a.ranks_per_host != 0 && hosts * a.ranks_per_host != a.ranks))
        throw InvalidArgument(fmt::format("{} {}: expected a divisor of {} (--ranks): all hosts have equally many",
                                          a.ranks_per_host != 0 ? "--ranks-per-host" : "--hosts",
                                          a.ranks_per_host != 0 ? a.ranks_per_host : hosts, a.ranks));
    if (named != 0 && hosts > named)
        throw InvalidArgument(
            fmt::format("--network {}: expected a file of at least {} hosts, not {}", a.network, hosts, named));
    return hosts;
}

// Equal hosts, with ranks in order.
simulate::Question question_of(const SimulateArguments& a) {
    simulate::Question question;
    algorithm::Layout& layout = question.layout;
    layout.tuning = tuning_of_this_host();
    question.costs = layout.tuning.costs.value_or(algorithm::CostModel{});
    if (!a.network.empty()) question.network = network_of(a.network, question.costs);
    const int hosts = hosts_of(a, question.network.hosts), per_host = a.ranks / hosts;
    layout.host_of.resize(static_cast<std::size_t>(a.ranks));
    for (int rank = 0; rank < a.ranks; ++rank) layout.host_of[static_cast<std::size_t>(rank)] = rank / per_host;
    const auto shape = transport::ArenaLayout::of(per_host, a.ranks);
    layout.shared_memory = a.transport != "tcp";
    layout.slot_bytes = shape.slot_bytes;
    layout.slots = shape.slots;
    layout.machines = hosts;
    layout.pulls = layout.shared_memory && hosts == 1 && transport::PeerMemory::allowed();
    // Hosts that are not this one have a core for each of their ranks, unless a number is given.
    const bool this_one = hosts == 1 && a.network.empty();
    if (a.cores > 0)
        question.costs.cores = a.cores;
    else if (!this_one)
        question.costs.cores = std::max(question.costs.cores, static_cast<double>(per_host));
    if (layout.tuning.costs) layout.tuning.costs = simulate::costs_behind(question.network, question.costs);
    question.calls = a.calls;
    question.conditions = conditions_of(a.conditions, a.ranks, hosts);
    return question;
}

void set_request(simulate::Question& question, const SimulateArguments& a, std::uint64_t bytes,
                 const std::string& algorithm) {
    question.request = request_for(a.collective, bytes, dtype_from_string(a.dtype), a.ranks);
    question.request.root = a.root;
    question.request.algorithm.reset();
    if (!algorithm.empty())
        question.request.algorithm = algorithm;
    else
        question.request.algorithm =
            algorithm::parse_override(question.layout.tuning.named, question.request.collective);
}

// On standard error, for plays of more than a second.
class ProgressLine {
 public:
    explicit ProgressLine(std::string what) : what_(std::move(what)) {}
    ~ProgressLine() {
        if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
    }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void operator()(const simulate::Reached& reached) {
        const double now = seconds();
        if (now < next_) return;
        next_ = now + (terminal_ ? 0.2 : 5);
        shown_ = true;
        const std::string of = reached.writes ? "schedules are generated"
                                              : fmt::format("steps are played, at {}", time_in_words(reached.us));
        fmt::print(stderr, "{}tutti: {}: {:.0f} % of the {}{}", terminal_ ? "\r\033[K" : "", what_, 100 * reached.share,
                   of, terminal_ ? "" : "\n");
        std::fflush(stderr);
    }
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }

 private:
    std::string what_;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    bool terminal_ = ::isatty(STDERR_FILENO) == 1, shown_ = false;
    double next_ = 1;
};

Simulated simulated(const simulate::Question& question, std::uint64_t bytes) {
    ProgressLine line(fmt::format("{} of {} bytes", to_string(question.request.collective), size_in_words(bytes)));
    Simulated play{.bytes = bytes};
    play.answer = simulate::answer(question, [&](const simulate::Reached& reached) { line(reached); });
    play.wall_s = line.seconds();
    return play;
}

std::string machine_in_words(const SimulateArguments& a, const simulate::Question& question) {
    const int hosts = question.layout.host_of.back() + 1;
    const simulate::Network& network = question.network;
    return fmt::format("{} ranks on {} host{}, network: {}; numbers {}{}{}", a.ranks, hosts, hosts == 1 ? "" : "s",
                       network.name, source_of(question.layout),
                       hosts > 1 && a.cores == 0 ? "; a core for each rank" : "",
                       network.left_out.empty() ? "" : fmt::format("\nleft out: {}", network.left_out));
}

int run_step(const SimulateArguments& a) {
    for (const auto& [given, what] : {std::pair{!a.collective.empty(), "a collective"},
                                      {!a.algorithm.empty(), "--algorithm (TUTTI_ALGORITHM chooses for a step)"},
                                      {!a.conditions.kill.empty(), "--kill"},
                                      {!a.goal.empty(), "--goal"},
                                      {a.calls != 1, "--calls"}}) {
        if (given) throw InvalidArgument(fmt::format("--step {} and {}: expected one of them", a.step, what));
    }
    const simulate::Question machine = question_of(a);
    StepFile file = step_of(a.step, machine.layout);
    const simulate::StepQuestion question{.step = std::move(file.step),
                                          .layout = machine.layout,
                                          .costs = machine.costs,
                                          .network = machine.network,
                                          .conditions = machine.conditions};
    ProgressLine line(a.step);
    const simulate::StepAnswer answer =
        simulate::answer(question, [&](const simulate::Reached& reached) { line(reached); });
    fmt::print("{}, {}, between {}\n{}", a.step, file.words, machine_in_words(a, machine),
               details_of(answer, question.step));
    if (!a.json.empty()) write_output("--json", a.json, json_of(answer, question));
    if (!a.svg.empty())
        write_output("--svg", a.svg,
                     simulate::picture_of(answer, question.step,
                                          fmt::format("{} between {} ranks on {} hosts, {}", a.step, a.ranks,
                                                      question.layout.host_of.back() + 1, question.network.name)));
    return 0;
}

int run_simulate(const SimulateArguments& a) {
    if (!a.step.empty()) return run_step(a);
    if (a.collective.empty())
        throw InvalidArgument("no collective given: tutti simulate all_reduce --ranks 1024 --hosts 128 --bytes 64M");
    if (a.root < 0 || a.root >= a.ranks)
        throw InvalidArgument(fmt::format("--root {}: expected 0 to {}", a.root, a.ranks - 1));
    simulate::Question question = question_of(a);
    const std::vector<std::uint64_t> sizes = sizes_of(a.bytes, "--bytes");
    if (!a.goal.empty() && (sizes.size() > 1 || a.algorithm == "all"))
        throw InvalidArgument(fmt::format("--goal {}: expected one size and one algorithm", a.goal));
    std::vector<Simulated> plays;
    std::string refused;
    for (const std::uint64_t bytes : sizes) {
        std::vector<std::string> names{a.algorithm};
        set_request(question, a, bytes, a.algorithm == "all" ? "" : a.algorithm);
        if (a.algorithm == "all") names = algorithm::applicable(question.layout, question.request);
        for (const std::string& name : names) {
            set_request(question, a, bytes, name);
            try {
                plays.push_back(simulated(question, question.request.collective == Collective::barrier ? 0 : bytes));
            } catch (const InvalidArgument& error) {
                if (a.algorithm != "all") throw;
                refused += fmt::format("  {}: {}\n", name, error.what());
            }
        }
    }
    if (plays.empty()) throw InvalidArgument(fmt::format("--algorithm all: none can be played\n{}", refused));
    const int hosts = question.layout.host_of.back() + 1;
    fmt::print("{} between {}\n{}", a.collective, machine_in_words(a, question), table_of(plays));
    if (plays.size() == 1) std::fputs(details_of(plays.front(), question).c_str(), stdout);
    if (!refused.empty()) fmt::print("not played:\n{}", refused);
    if (!a.json.empty()) write_output("--json", a.json, json_of(plays, question));
    if (!a.svg.empty())
        write_output("--svg", a.svg,
                     simulate::picture_of(plays.back().answer,
                                          fmt::format("{} of {} between {} ranks on {} hosts, {}: {}", a.collective,
                                                      size_in_words(plays.back().bytes), a.ranks, hosts,
                                                      question.network.name, plays.back().answer.algorithm)));
    if (!a.goal.empty()) write_output("--goal", a.goal, simulate::goal_of(question));
    return 0;
}

}  // namespace

Command add_simulate(CLI::App& app) {
    auto a = std::make_shared<SimulateArguments>();
    CLI::App* sub = app.add_subcommand(
        "simulate", "Play the schedules of a collective on a model of a machine, up to 100,000 ranks and more");
    sub->add_option("collective", a->collective, "which one")->check(one_of(planned_collectives()));
    sub->add_option(
           "--step", a->step,
           "in place of a collective: a step of computing and collectives, from a JSON file, a folder of dumps "
           "(TUTTI_TRACE_DIR of a job), or a graph (Graph::to_text)")
        ->type_name("FILE");
    sub->add_option("-n,--np,--ranks", a->ranks, "number of ranks")
        ->check(CLI::Range(1, simulated_ranks_max))
        ->capture_default_str();
    sub->add_option("--hosts", a->hosts, "equal hosts that the ranks are spread over (default 1)")
        ->check(CLI::Range(1, simulated_ranks_max));
    sub->add_option(both_spellings("--ranks-per-host"), a->ranks_per_host, "in place of --hosts")
        ->check(CLI::Range(1, simulated_ranks_max));
    sub->add_option("-b,--bytes", a->bytes, "size of the whole buffer: 8, 64K, 1M; or 8:64M, each four times the last")
        ->type_name("SIZE")
        ->capture_default_str();
    sub->add_option("--dtype", a->dtype, "element type")
        ->check(shows(dtype_names(), Form::word))
        ->capture_default_str();
    auto algorithms = algorithm::algorithm_names();
    algorithms.emplace_back("all");
    sub->add_option("--algorithm", a->algorithm, "this one instead of the choice; all: one after the other")
        ->check(one_of(algorithms));
    sub->add_option("--root", a->root, "broadcast, reduce, gather, scatter")->capture_default_str();
    sub->add_option("--transport", a->transport, "tcp: no shared memory inside a host")
        ->check(one_of({"auto", "shm", "tcp"}));
    sub->add_option("--network", a->network,
                    "the network between the hosts, or a JSON file that describes one, InfraGraph's too")
        ->check(shows(simulate::network_names(), Form::word));
    sub->add_option("--calls", a->calls,
                    "calls one behind the other, as tutti bench makes them; times are those of one of them")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    sub->add_option("--cores", a->cores, "cores of a host (default: one for each rank)")
        ->check(CLI::PositiveNumber.description(""));
    sub->add_option("--delay", a->conditions.delays, "this rank begins later: 3=5ms; may be repeated")
        ->type_name("RANK=TIME");
    sub->add_option(both_spellings("--slow-link"), a->conditions.slow_links,
                    "two hosts, and the share of their capacity that is left: 0-1=0.5; may be repeated")
        ->type_name("HOST-HOST=SHARE");
    sub->add_option("--jitter", a->conditions.jitter, "each step's work takes up to that much longer: 10%")
        ->type_name("PERCENT");
    sub->add_option("--seed", a->conditions.seed, "of --jitter")->capture_default_str();
    sub->add_option("--kill", a->conditions.kill, "this rank dies: 3@5ms")->type_name("RANK@TIME");
    sub->add_option("--json", a->json, "write the results to this file")->type_name("FILE");
    sub->add_option("--svg", a->svg,
                    "draw the last play: ranks that are done, busy links, the last rank's path; of a step, its times")
        ->type_name("FILE");
    sub->add_option("--goal", a->goal, "write the schedules as GOAL, for LogGOPSim and ATLAHS")->type_name("FILE");
    sub->footer(
        "Examples:\n"
        "  tutti simulate all_reduce --ranks 100000 --hosts 12500 --bytes 64M --network ethernet-100\n"
        "  tutti simulate all_reduce -n 64 --hosts 8 --bytes 8:64M --algorithm all\n"
        "  tutti simulate broadcast -n 1024 --hosts 128 --delay 512=5ms --network fat-tree\n"
        "  tutti simulate barrier -n 1024 --hosts 128 --kill 7@20us\n"
        "  tutti simulate --step ./ddp.json -n 1024 --hosts 128 --network fat-tree --svg step.svg\n\n"
        "Times are predictions: numbers of this host (tutti explain prints them) behind the network's.");
    return [a] { return run_simulate(*a); };
}

}  // namespace tutti::cli
