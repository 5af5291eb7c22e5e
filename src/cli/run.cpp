// tutti run: starts the ranks of a job, here, on this node of several, or on other hosts over ssh. Its flags are those
// of torchrun and DeepSpeed's launcher; tutti launch is the same with the defaults of torch.distributed.launch.
#include "cli/commands.hpp"
#include "core/assert.hpp"
#include "core/text.hpp"
#include "core/this_host.hpp"
#include "launch/launcher.hpp"
#include "launch/placement.hpp"
#include "launch/torchrun_variables.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

extern char** environ;

namespace tutti::cli {
namespace {

constexpr int most_nodes = 65536;
constexpr int most_restarts = 1'000'000'000;
constexpr int restarts_of_replacing = 3;  // torchrun's in its library; its program's, 0, would replace nobody
constexpr std::uint16_t default_master_port = 29500;  // torchrun's and DeepSpeed's

constexpr double usual_join_timeout_s = 600;  // torchrun's

struct RunArguments {
    std::string ranks;  // as given
    std::string nodes, node_rank, master_addr, master_port, endpoint, join;
    std::string hostfile, include, exclude, launcher_args;
    int ssh_port = 0;
    bool standalone = false, use_env = true, module = false, no_python = false, lifeline = false;
    std::string max_restarts, run_id, log_dir, redirects, tee;
    std::string transport;
    std::string colour = "auto";
    bool no_prefix = false, replace = false, standby = false;
    int spares = 0;
    std::vector<std::string> program;  // for help alone: take_command() takes it
    double timeout_s = 0, grace_s = 3, join_timeout_s = usual_join_timeout_s, last_call_s = 30;  // torchrun's
};

int count_gpus() {
    int count = 0;
    while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count))) ++count;
    if (count == 0) throw InvalidArgument("tutti run: --nproc-per-node gpu: there is no GPU here; give a number");
    return count;
}

int ranks_of(const launch::Given& given) {
    const std::string& text = given.value;
    if (text.empty()) return 1;
    if (text == "cpu" || text == "auto") return this_host::cpus();
    if (text == "gpu") return count_gpus();
    const auto value = number_in<int>(text);
    if (!value || *value < 1 || *value > 65536) {
        throw InvalidArgument(fmt::format("tutti run: {}: expected 1 to 65536 ranks, cpu, gpu or auto", given.text()));
    }
    return *value;
}

struct NodeCount {
    int least = 1, most = 1;
};

// A range is for jobs that change their size.
NodeCount nodes_of(const launch::Given& given) {
    const std::string& text = given.value;
    if (text.empty()) return {};
    const std::size_t colon = text.find(':');
    const auto least = number_in<int>(text.substr(0, colon));
    const auto most = colon == std::string::npos ? least : number_in<int>(text.substr(colon + 1));
    if (!least || !most || *least > *most || *least < 1 || *most > most_nodes)
        throw InvalidArgument(fmt::format("tutti run: {}: expected 1 to {}, or MIN:MAX", given.text(), most_nodes));
    return {*least, *most};
}

int number_of(const launch::Given& given, int otherwise, int least, int most) {
    TUTTI_ASSERT(least <= most);
    if (!given) return otherwise;
    const auto value = number_in<int>(given.value);
    if (!value || *value < least || *value > most)
        throw InvalidArgument(fmt::format("tutti run: {}: expected {} to {}", given.text(), least, most));
    return *value;
}

// The placement as flags give it; the platform gives the rest.
launch::Placement placement_of(const RunArguments& a) {
    launch::Placement placement{.nodes = {a.nodes, "--nnodes"},
                                .node_rank = {a.node_rank, "--node-rank"},
                                .ranks = {a.ranks, "--nproc-per-node"},
                                .master_addr = {a.master_addr, "--master-addr"},
                                .master_port = {a.master_port, "--master-port"}};
    if (!a.endpoint.empty()) {
        if (placement.master_addr || placement.master_port)
            throw InvalidArgument(
                "tutti run: --rdzv-endpoint says what --master-addr and --master-port say: expected "
                "one of both ways");
        launch::set_endpoint(placement, {a.endpoint, "--rdzv-endpoint"});
    }
    if (!a.join.empty()) {
        if (placement.nodes || placement.node_rank || placement.master_addr || placement.master_port ||
            !a.hostfile.empty() || a.standalone)
            throw InvalidArgument(
                "tutti run: --join takes the place of --nnodes, --node-rank, --master-addr, --master-port, "
                "--rdzv-endpoint, --hostfile and --standalone: expected none of them beside it");
        launch::set_endpoint(placement, {a.join, "--join"});
        if (!placement.master_port)
            throw InvalidArgument(fmt::format("tutti run: --join {}: expected HOST:PORT of node 0", a.join));
        return placement;
    }
    if (a.standalone || !a.hostfile.empty()) return placement;
    if (const std::string taken = launch::complete(placement, launch::this_pod()); !taken.empty())
        fmt::print(stderr, "{}\n", taken);
    return placement;
}

// Ten years are as good as no end, and can be added to any clock.
std::chrono::milliseconds from_seconds(double seconds) {
    TUTTI_ASSERT(seconds >= 0);
    constexpr double longest_ms = 10 * 365.25 * 86400 * 1000;
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(std::min(seconds * 1000, longest_ms))));
}

void add_options(CLI::App& sub, RunArguments& a) {
    const auto option = [&](const std::string& names, auto& value, const char* text, const char* group) {
        return sub.add_option(both_spellings(names), value, text)->group(group);
    };
    const auto flag = [&](const std::string& names, bool& value, const char* text, const char* group) {
        return sub.add_flag(both_spellings(names), value, text)->group(group);
    };
    const char *job = "The job", *nodes = "Several nodes, one command on each", *hosts = "Several hosts, over ssh",
               *program = "The program", *output = "Output";
    option("-n,-N,--np,--nproc-per-node,--num-gpus", a.ranks, "ranks on each node: a number, cpu, gpu or auto [1]", job)
        ->type_name("N");
    option("--max-restarts", a.max_restarts,
           "start all ranks again when one fails, so many times at most [0; 3 with --replace]", job)
        ->type_name("N");
    flag("--replace", a.replace, "replace a rank that fails by a new process, which joins the others", job);
    option("--spares", a.spares, "so many processes more on each node, which wait to take a place (--replace)", job)
        ->check(CLI::Range(0, 65536))
        ->type_name("N");
    option("--transport", a.transport, "what carries the data (sets TUTTI_TRANSPORT)", job)
        ->check(one_of({"auto", "shm", "tcp"}));
    option("--timeout", a.timeout_s, "end the job after so many seconds, with exit status 124", job)
        ->check(is_duration(Zero::refused));
    option("--grace", a.grace_s, "seconds between SIGTERM and SIGKILL when the job is stopped", job)
        ->check(is_duration(Zero::allowed))
        ->capture_default_str();
    option("--run-id,--rdzv-id", a.run_id, "TORCHELASTIC_RUN_ID [random]", job);
    flag("--standalone", a.standalone, "one node, any free port (as without any flag of several nodes)", job);

    option("--nnodes,--num-nodes", a.nodes,
           "number of nodes; of the hostfile: the first so many; MIN:MAX: MIN are enough, others may come and go",
           nodes)
        ->type_name("N");
    option("--last-call", a.last_call_s, "with MIN:MAX: how long to wait for more than MIN, in seconds", nodes)
        ->check(is_duration(Zero::allowed))
        ->capture_default_str();
    flag("--standby", a.standby, "a second node keeps the store too, so that node 0 may be lost (--replace)", nodes);
    option("--join", a.join, "add this node to a job that runs (--nnodes MIN:MAX, --replace): node 0's", nodes)
        ->type_name("HOST:PORT");
    option("--node-rank", a.node_rank, "which of them this is, from 0 [0]", nodes)->type_name("N");
    option("--master-addr", a.master_addr, "address of node 0, by which the others reach it", nodes)->type_name("HOST");
    option("--rdzv-endpoint", a.endpoint, "both in one word", nodes)->type_name("HOST:PORT");
    option("--join-timeout", a.join_timeout_s, "how long to wait for the other nodes, in seconds", nodes)
        ->check(is_duration(Zero::refused))
        ->capture_default_str();
    option("--master-port", a.master_port, "free port there [29500]; on one node: the ranks' MASTER_PORT [any]", nodes)
        ->check(CLI::Range(1, 65535));
    flag("--lifeline", a.lifeline, "end the job when standard input ends", nodes);

    option("-H,--hostfile", a.hostfile, "start the job on these hosts: lines HOST slots=RANKS", hosts)
        ->type_name("FILE");
    option("--include", a.include, "only these: HOST[:SLOT,SLOT...][@HOST...]", hosts)->type_name("HOSTS");
    option("--exclude", a.exclude, "all but these", hosts)->type_name("HOSTS");
    option("--launcher-args", a.launcher_args, "arguments for ssh, in one word: \"-i key -o User=me\"", hosts)
        ->type_name("WORDS");
    option("--ssh-port", a.ssh_port, "where the hosts' sshd listens", hosts)->check(CLI::Range(1, 65535));

    flag("--use-env", a.use_env, "the local rank comes by LOCAL_RANK only; --use-env=False: --local-rank=N as well",
         program);
    flag("-m,--module", a.module, "the program is a Python module", program);
    flag("--no-python", a.no_python, "a program whose name ends in .py is started as it is", program);

    option("--log-dir", a.log_dir, "write DIR/RUN_ID/attempt_A/RANK/{stdout,stderr}.log as well", output)
        ->type_name("FOLDER");
    option("-r,--redirects", a.redirects, "streams that go there only: 1 stdout, 2 stderr, 3 both; LOCAL_RANK:N,...",
           output)
        ->type_name("STREAMS");
    option("-t,--tee", a.tee, "streams that go there and here [3 without --redirects]", output)->type_name("STREAMS");
    option("--color", a.colour, "colour the names of the ranks", output)
        ->check(one_of({"auto", "always", "never"}))
        ->capture_default_str();
    flag("--no-prefix", a.no_prefix, "pass on every byte as it is", output);
}

// Nodes join within the time of the whole job: without a word, and nothing else makes sense.
double join_timeout_of(const RunArguments& a) {
    if (a.timeout_s <= 0 || a.join_timeout_s <= a.timeout_s) return a.join_timeout_s;
    if (a.join_timeout_s != usual_join_timeout_s) {
        throw InvalidArgument(
            fmt::format("tutti run: --join-timeout {} is longer than --timeout {}: expected the job's "
                        "limit to be the longer one, as the nodes join within it",
                        a.join_timeout_s, a.timeout_s));
    }
    return a.timeout_s;
}

// `replaces`: also without a flag that says so.
launch::Options options_of(const RunArguments& a, const std::vector<std::string>& command, bool replaces) {
    launch::Options options;
    options.command = command;
    options.prefix = !a.no_prefix;
    const char* no_colour = std::getenv("NO_COLOR");  // counts when it is not empty (no-color.org)
    const bool plain = no_colour != nullptr && *no_colour != '\0';
    options.colour = a.colour == "always" || (a.colour == "auto" && ::isatty(1) != 0 && ::isatty(2) != 0 && !plain);
    if (!a.transport.empty()) options.environment.push_back("TUTTI_TRANSPORT=" + a.transport);
    if (a.timeout_s > 0) options.timeout = from_seconds(a.timeout_s);
    options.grace = from_seconds(a.grace_s);
    options.join_timeout = from_seconds(join_timeout_of(a));
    options.replace = a.replace || a.spares > 0 || a.standby || replaces;
    options.spares = a.spares;
    options.standby = a.standby;
    options.last_call = from_seconds(a.last_call_s);
    options.max_restarts =
        number_of({a.max_restarts, "--max-restarts"}, options.replace ? restarts_of_replacing : 0, 0, most_restarts);
    options.run_id = a.run_id;
    options.log_dir = a.log_dir;
    options.lifeline = a.lifeline;
    if (!a.redirects.empty()) options.redirects = launch::parse_streams(a.redirects, "--redirects");
    if (!a.tee.empty()) options.tee = launch::parse_streams(a.tee, "--tee");
    return options;
}

// As torchrun does: a script gets an interpreter.
void find_interpreter(launch::Options& options, const RunArguments& a) {
    auto& command = options.command;
    if (command.empty() || (!a.module && (a.no_python || !command.front().ends_with(".py")))) return;
    std::vector<std::string> words{python_of_scripts(), "-u"};
    if (a.module) words.emplace_back("-m");
    options.program_words = words.size() + 1;
    command.insert(command.begin(), words.begin(), words.end());
    TUTTI_ASSERT(options.program_words <= command.size());
}

int run_on_hosts(const RunArguments& a, launch::Options options, const std::vector<launch::Host>& hosts) {
    TUTTI_ASSERT(!hosts.empty());
    launch::SshOptions ssh;
    if (a.ssh_port != 0) ssh.arguments = {"-p", std::to_string(a.ssh_port)};
    for (std::size_t start = 0; start < a.launcher_args.size();) {
        const std::size_t end = std::min(a.launcher_args.find(' ', start), a.launcher_args.size());
        if (end > start) ssh.arguments.push_back(a.launcher_args.substr(start, end - start));
        start = end + 1;
    }
    ssh.forwarded = {fmt::format("--max-restarts={}", options.max_restarts),
                     fmt::format("--use-env={}", a.use_env ? "true" : "false")};
    for (const auto& [name, value] : {std::pair("--run-id", &a.run_id), std::pair("--log-dir", &a.log_dir),
                                      std::pair("--redirects", &a.redirects), std::pair("--tee", &a.tee)}) {
        if (!value->empty()) ssh.forwarded.push_back(fmt::format("{}={}", name, *value));
    }
    if (a.module) ssh.forwarded.emplace_back("--module");
    if (a.no_python) ssh.forwarded.emplace_back("--no-python");
    if (options.replace) ssh.forwarded.push_back(fmt::format("--spares={}", options.spares));
    if (a.replace) ssh.forwarded.emplace_back("--replace");
    return launch::launch_on_hosts(options, hosts, ssh);
}

// Torchrun's variables, where no flag says otherwise; those of the placement are taken with it.
void take_torchrun_variables(RunArguments& a) {
    const launch::Pod pod = launch::this_pod();
    std::vector<std::string> taken;
    const auto take = [&](const std::string& flag, const std::string& value) {
        const launch::Given given = launch::flag_or_torchrun(value, flag, pod);
        if (given && value.empty()) taken.push_back(given.text());
        return given;
    };
    if (const auto given = take("--max-restarts", a.max_restarts))
        a.max_restarts = std::to_string(number_of(given, 0, 0, most_restarts));
    for (const auto& [flag, text] : {std::pair("--run-id", &a.run_id), std::pair("--log-dir", &a.log_dir),
                                     std::pair("--redirects", &a.redirects), std::pair("--tee", &a.tee)}) {
        *text = take(flag, *text).value;
    }
    for (const auto& [flag, value] : {std::pair("--standalone", &a.standalone), std::pair("--module", &a.module),
                                      std::pair("--no-python", &a.no_python)}) {
        if (*value) continue;
        if (const auto given = take(flag, "")) *value = number_of(given, 0, 0, 1) != 0;
    }
    if (!taken.empty()) fmt::print(stderr, "tutti run: taken from the environment: {}\n", fmt::join(taken, ", "));
    std::size_t count = 0;
    while (environ[count] != nullptr) ++count;
    const std::string unread = launch::unread_torchrun_variables({environ, count});
    if (!unread.empty()) fmt::print(stderr, "{}\n", unread);
}

int run(RunArguments a, const std::vector<std::string>& command) {
    if (!a.lifeline) take_torchrun_variables(a);  // the launcher that started this one over ssh has done so
    const launch::Placement placement = placement_of(a);
    const NodeCount count = nodes_of(placement.nodes);
    const bool is_range = launch::is_range(placement.nodes);
    if (is_range && !a.hostfile.empty())
        throw InvalidArgument(
            fmt::format("tutti run: {}: expected one number with --hostfile", placement.nodes.text()));
    launch::Options options = options_of(a, command, is_range || !a.join.empty());
    options.ranks = ranks_of(placement.ranks);
    // As torchrun does: the machine at whose address the job meets is node 0, and others come as they come.
    options.join = !a.join.empty() || (is_range && !placement.node_rank && placement.master_addr &&
                                       !launch::is_this_host(placement.master_addr.value));
    options.nodes = a.join.empty() ? count.most : most_nodes;
    if (is_range) options.least_nodes = count.least;
    const int last_node = a.hostfile.empty() ? options.nodes - 1 : 65535;  // with one it is refused below
    options.node_rank = number_of(placement.node_rank, 0, 0, last_node);
    options.master_addr = placement.master_addr.value;
    options.master_port = static_cast<std::uint16_t>(number_of(placement.master_port, 0, 1, 65535));
    options.local_rank_argument = !a.use_env;
    if (a.standalone && (options.nodes > 1 || placement.master_addr || placement.master_port || !a.hostfile.empty())) {
        throw InvalidArgument(
            "tutti run: --standalone is one node on a port of its own: expected no --nnodes, --master-addr, "
            "--master-port or --hostfile beside it");
    }
    if (a.hostfile.empty()) {
        for (const auto& [name, given] :
             {std::pair("--include", !a.include.empty()), std::pair("--exclude", !a.exclude.empty()),
              std::pair("--launcher-args", !a.launcher_args.empty()), std::pair("--ssh-port", a.ssh_port != 0)}) {
            if (given) throw InvalidArgument(fmt::format("tutti run: {} needs --hostfile", name));
        }
    } else {
        if (a.standby)
            throw InvalidArgument(
                "tutti run: --standby with --hostfile: expected one of them: a job that one launcher starts over ssh "
                "ends with its first lost node");
        if (!a.node_rank.empty() || a.lifeline)
            throw InvalidArgument("tutti run: --hostfile starts all nodes itself: expected no --node-rank beside it");
        const auto hosts = launch::select_hosts(
            launch::read_hostfile(a.hostfile),
            {a.include, a.exclude, a.nodes.empty() ? 0 : options.nodes, a.ranks.empty() ? 0 : options.ranks});
        if (hosts.size() > 1 || hosts.front().name != "localhost") return run_on_hosts(a, std::move(options), hosts);
        options.nodes = 1;
        options.ranks = static_cast<int>(hosts.front().slots.size());
    }
    if (options.nodes > 1 && options.master_port == 0) options.master_port = default_master_port;
    find_interpreter(options, a);
    return launch::launch(options);
}

Command add(CLI::App& app, const std::vector<std::string>& command, const char* name, const char* text, bool use_env) {
    auto a = std::make_shared<RunArguments>();
    a->use_env = use_env;
    CLI::App* sub = app.add_subcommand(name, text);
    add_options(*sub, *a);
    sub->add_option("program", a->program, "what is started, and its arguments")->type_name("COMMAND");
    sub->footer(fmt::format(
        "Everything after the program's name goes to the program. Flags may have underscores for dashes, as "
        "--nproc_per_node has. Rank 0 reads standard input. Ctrl-Z, SIGCONT, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH "
        "are passed on to the ranks.\n\n"
        "Examples:\n"
        "  tutti {0} -n 4 ./program\n"
        "  tutti {0} -n auto train.py --epochs 3\n"
        "  tutti {0} --nnodes 2 --node-rank 1 --master-addr node0 -n 8 train.py\n"
        "  tutti {0} --hostfile hosts.txt -n 8 train.py\n\n"
        "Exit status: that of the first rank that fails (128 + signal when it was killed), 0 when none does; 124 "
        "after --timeout, 1 when its output cannot be written, 126 when the program cannot be executed, 127 when it is "
        "not there, 2 for a command line that "
        "is wrong.",
        name));
    return [a, &command] { return run(*a, command); };
}

}  // namespace

Command add_run(CLI::App& app, const std::vector<std::string>& command) {
    return add(app, command, "run", "Start N ranks of a program: tutti run -n 4 [--] program args...", true);
}

Command add_launch(CLI::App& app, const std::vector<std::string>& command) {
    return add(app, command, "launch", "As run, but programs get --local-rank=N too (torch.distributed.launch)", false);
}

}  // namespace tutti::cli
