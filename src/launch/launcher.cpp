#include "launch/launcher.hpp"

#include "core/assert.hpp"
#include "core/descriptors.hpp"
#include "core/env.hpp"
#include "core/names.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "launch/attempt.hpp"
#include "launch/guard.hpp"
#include "launch/held_port.hpp"
#include "launch/init_process.hpp"
#include "launch/nodes.hpp"
#include "launch/signals.hpp"
#include "launch/taken_signals.hpp"
#include "security/local_secret.hpp"
#include "store/tcp_server.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Of "rank 2": "[rank 2] ", in the second colour.
std::string prefix_of(const std::string& name, int number, const Options& options) {
    TUTTI_ASSERT(number >= 0);
    if (!options.prefix) return {};
    static constexpr std::array<int, 6> colours = {36, 33, 35, 32, 34, 31};
    const std::string text = fmt::format("[{}]", name);
    if (!options.colour) return text + " ";
    return fmt::format("\033[{}m{}\033[0m ", colours[static_cast<std::size_t>(number) % colours.size()], text);
}

bool is_first(const Options& o) {
    return o.node_rank == 0 && !o.join;
}

void check(const Options& o) {
    if (o.command.empty()) throw InvalidArgument("tutti run: no program given: tutti run -n 4 ./program");
    if (o.ranks < 1 || o.ranks > 65536)
        throw InvalidArgument(fmt::format("tutti run: -n {}: expected 1 to 65536 ranks", o.ranks));
    if (o.nodes < 1 || o.nodes > 65536)
        throw InvalidArgument(fmt::format("tutti run: --nnodes {}: expected 1 to 65536", o.nodes));
    if (o.least_nodes < 0 || o.least_nodes > o.nodes)
        throw InvalidArgument(
            fmt::format("tutti run: --nnodes {}:{}: expected the smaller number first", o.least_nodes, o.nodes));
    TUTTI_ASSERT(o.replace || (!o.join && o.least_nodes == 0 && !o.standby));
    if (o.standby && o.nodes == 1)
        throw InvalidArgument(
            "tutti run: --standby with one node: expected --nnodes 2 or more, or MIN:MAX, as a second node keeps the "
            "store for the case that the first one is lost");
    if (o.node_rank < 0 || o.node_rank >= o.nodes)
        throw InvalidArgument(fmt::format("tutti run: --node-rank {}: expected 0 to {}", o.node_rank, o.nodes - 1));
    if (o.nodes > 1 && (o.master_addr.empty() || o.master_port == 0)) {
        throw InvalidArgument(fmt::format(
            "tutti run: --nnodes {} needs --master-addr and --master-port: node 0's address and a free port there",
            o.nodes));
    }
    if (o.nodes > 1 && !net::can_be_host(o.master_addr)) {
        throw InvalidArgument(
            fmt::format("tutti run: --master-addr {}: expected an address or the name of a host", o.master_addr));
    }
    if (o.max_restarts < 0)
        throw InvalidArgument(fmt::format("tutti run: --max-restarts {}: expected zero or more", o.max_restarts));
    if (o.spares < 0 || o.spares > 65536)
        throw InvalidArgument(fmt::format("tutti run: --spares {}: expected 0 to 65536", o.spares));
    if ((o.replace || o.spares > 0) && o.max_restarts == 0)
        throw InvalidArgument(
            "tutti run: --max-restarts 0: expected 1 or more with --replace or --spares: as often ranks are replaced");
    if (o.log_dir.empty() && o.redirects.any())
        throw InvalidArgument("tutti run: --redirects needs --log-dir: the folder where the files are to be");
    // A name that means this machine only here (Debian gives the host's own name 127.0.1.1) is of no use to others.
    // With a secret the store listens on every address, and the name may mean something else there.
    const bool meant = o.master_addr == "localhost" || o.master_addr.starts_with("127.") || o.master_addr == "::1";
    if (o.nodes > 1 && is_first(o) && !meant && !security::Secret::from_environment()) {
        const bool listens_there = env::get_bool("TUTTI_INSECURE", false);
        const tutti::Patience waiting([&] {
            return fmt::format("the address of --master-addr {}: {}", o.master_addr, net::why_unknown(o.master_addr));
        });
        net::await_name(o.master_addr, listens_there ? Deadline::after(o.join_timeout) : net::one_question());
        if (!net::is_loopback(o.master_addr)) return;
        throw InvalidArgument(
            fmt::format("tutti run: --master-addr {}: that is a loopback address here: expected one "
                        "by which the other nodes reach this one",
                        o.master_addr));
    }
}

// Two pipes for each rank, its files, and two descriptors of the store's, for its connection and its posts.
void check_descriptors(const Options& o) {
    constexpr std::uint64_t own = 32;
    const std::uint64_t of_each = o.log_dir.empty() ? 4 : 6, hard = descriptors::limits().hard;
    const std::uint64_t count = own + of_each * static_cast<std::uint64_t>(o.ranks + o.spares);
    if (count <= hard) return;
    throw DistBackendError(
        fmt::format("tutti run: {} ranks on this node need {} open files in the launcher, and this process may have "
                    "{}: raise the hard "
                    "limit (ulimit -Hn, LimitNOFILE= of systemd, limits.conf), or start fewer ranks on this node",
                    o.ranks, count, hard));
}

class Job {
 public:
    explicit Job(const Options& options) : options_(options) {
        if (options.run_id.empty()) run_id_ = guard_.id();
        if (is_first(options)) serve();
        if (options.nodes > 1) {
            nodes_.emplace(NodesOptions{.master_addr = address_,
                                        .master_port = port_,
                                        .secret = secret_,
                                        .nodes = options.nodes,
                                        .node_rank = options.join ? -1 : options.node_rank,
                                        .ranks = options.ranks,
                                        .max_restarts = options.max_restarts,
                                        .least = !options.replace           ? 0
                                                 : options.least_nodes == 0 ? options.nodes
                                                                            : options.least_nodes,
                                        .standby = options.standby,
                                        .server = server_.get(),
                                        .last_call = options.last_call,
                                        .id = guard_.id(),
                                        .run_id = run_id_,
                                        .ranks_port = ranks_port_ ? ranks_port_->number() : std::uint16_t{0},
                                        .patience = options.join_timeout});
        } else {
            TUTTI_ASSERT(secret_ && ranks_port_);
            layout_ = {.world_size = options.ranks,
                       .run_id = run_id_,
                       .secret = *secret_,
                       .ranks_port = ranks_port_->number()};
        }
    }

    /// The exit status for the shell. Nothing: the job runs elsewhere().
    std::optional<int> run() {
        for (int attempt = 0;; ++attempt) {
            std::optional<Nodes::Layout> next;
            if (nodes_ && !await([&] { return (next = nodes_->layout(attempt)).has_value(); }, attempt))
                return elsewhere_ ? std::nullopt : std::optional(end_);
            layout_ = next.value_or(layout_);
            attempt = nodes_ ? layout_.attempt : attempt;  // a launcher that takes a place comes to a later one
            const auto tasks = tasks_of(attempt);
            TUTTI_ASSERT(tasks.size() == static_cast<std::size_t>(options_.ranks + options_.spares));
            const int restarts = std::max(0, options_.max_restarts - attempt - repairs_);
            const Limits limits{started_,       options_.timeout,  options_.report_time,
                                options_.grace, options_.lifeline, restarts};
            const Replacements replacements{
                [&](int slot, int number) { return newcomer(attempt, slot, number); },
                [&](int rank) { return prefix_of(fmt::format("rank {}", rank), rank, options_); }};
            Outcome outcome;
            {
                Attempt current(tasks, limits, signals_, guard_, nodes_ ? &*nodes_ : nullptr, attempt,
                                options_.replace ? &replacements : nullptr);
                outcome = current.run();
                repairs_ += outcome.repairs;
                const bool again = outcome.again && attempt < options_.max_restarts;
                if (again && !outcome.report.empty())
                    outcome.report += fmt::format("tutti run: starting all ranks again ({} of {})\n",
                                                  attempt + 1 + repairs_, options_.max_restarts);
                say(outcome.report, current.patience());
                if (!again) return outcome.status;
            }
            if (nodes_) nodes_->stopped(attempt);
        }
    }
    const std::optional<net::Address>& elsewhere() const noexcept { return elsewhere_; }
    /// The server that this launcher serves, for those that look for the job here; null: none.
    std::unique_ptr<store::TcpServer> signpost() { return std::move(server_); }

 private:
    // The launchers' store and MASTER_PORT, where programs that are not tutti's (PyTorch's) have rank 0 serve a store
    // of their own, are two ports. --master-port is the one that others have to know beforehand: the launchers of other
    // nodes, or, on one node, the processes that look at the ranks.
    void serve() {
        TUTTI_ASSERT(options_.node_rank == 0 && !server_);
        const bool one_node = options_.nodes == 1;
        // All ranks of one node are here, whatever others call it, and its name need not be known yet.
        if (one_node && !net::numeric_address({.host = address_})) address_ = "127.0.0.1";
        ranks_port_.emplace(one_node ? options_.master_port : std::uint16_t{0});
        auto own = security::Secret::from_environment();
        // A process that knows the secret may come by any address, so that this node's name need not be known here yet.
        const bool everywhere = !one_node && own;
        UniqueFd listener =
            net::listen_tcp(everywhere ? "" : address_, one_node ? std::uint16_t{0} : options_.master_port);
        port_ = net::local_address(listener.get()).port;
        TUTTI_ASSERT(port_ != 0);
        const bool alone = one_node && net::is_loopback(address_);
        security::JobSecret job = alone ? security::JobSecret{own ? std::move(*own) : security::Secret::generate()}
                                        : security::resolve_secret({.host = address_, .port = port_, .is_master = true},
                                                                   Deadline::after(milliseconds(5000)));
        secret_ = job.secret.to_text();
        server_ = std::make_unique<store::TcpServer>(
            std::move(listener), job.secret, job.serve_locally,
            options_.standby ? store::ServerKind::with_standby : store::ServerKind::plain);
    }

    // False: the job ends before that, with end_, or is elsewhere_.
    template <class Condition>
    bool await(Condition condition, int attempt) {
        TUTTI_ASSERT(nodes_ && attempt >= 0);
        for (;;) {
            nodes_->clear();
            if (condition()) return true;
            if ((elsewhere_ = nodes_->elsewhere())) return false;
            if (const auto lost = nodes_->outcome(attempt)) {
                end_ = lost->status;
                const bool says_who = lost->text.starts_with("tutti run: ");
                const std::string who = says_who ? ""
                                        : lost->node == nodes_->node_rank()
                                            ? "tutti run: "
                                            : fmt::format("tutti run: node {} failed: ", lost->node);
                say(who + lost->text + "\n");
                return false;
            }
            const bool late = options_.timeout && Clock::now() >= started_ + *options_.timeout;
            pollfd polled[] = {{signals_.fd(), POLLIN, 0}, {nodes_->fd(), POLLIN, 0}, {0, POLLIN, 0}};
            ::poll(polled, lifeline_.open() ? 3 : 2, 100);
            int signal = signals_.next();
            if (signal == SIGTSTP) stop_this_process();
            if (signal == 0) signal = lifeline_.next();
            if (!late && !ends_job(signal) && signal != SIGQUIT) continue;
            end_ = late ? 124 : 128 + signal;
            const std::string why =
                late ? "did not end in time (--timeout)" : fmt::format("ended by signal {}", signal);
            const bool leaves = options_.replace && nodes_->may_leave() && signal == SIGTERM;
            if (!leaves) nodes_->failed(attempt, {.status = end_, .text = why});
            say(fmt::format("tutti run: the job {} while waiting for the other nodes\n", why));
            return false;
        }
    }

    // What ranks and newcomers have in common.
    Task task_of(int attempt, int slot, int number) {
        const auto text = [](int value) { return std::to_string(value); };
        const auto store = nodes_ ? nodes_->servers() : StoreHosts::Servers{.primary = {address_, port_}};
        Environment variables = options_.environment;
        for (const std::string& variable :
             {"LOCAL_RANK=" + text(slot), "LOCAL_WORLD_SIZE=" + text(options_.ranks),
              "GROUP_RANK=" + text(layout_.group_rank), "GROUP_WORLD_SIZE=" + text(layout_.group_size),
              std::string("ROLE_NAME=default"), "MASTER_ADDR=" + store.primary.host,
              "MASTER_PORT=" + text(layout_.ranks_port), "TORCHELASTIC_RUN_ID=" + layout_.run_id,
              "TORCHELASTIC_RESTART_COUNT=" + text(attempt), "TORCHELASTIC_MAX_RESTARTS=" + text(options_.max_restarts),
              std::string("TORCHELASTIC_USE_AGENT_STORE=False"), "TUTTI_STORE_PORT=" + text(store.primary.port),
              store.standby.empty() ? std::string("TUTTI_STORE_STANDBY") : "TUTTI_STORE_STANDBY=" + store.standby,
              "TUTTI_LAUNCHER_MASTER_PORT=" + text(layout_.ranks_port), guard_.variable(),
              "TUTTI_LAUNCH_NUMBER=" + text(number),
              std::string(options_.replace ? "TUTTI_REPLACES=1" : "TUTTI_REPLACES"),
              "TUTTI_JOB_SECRET=" + layout_.secret}) {
            variables.push_back(variable);
        }
        Task task{.number = number, .slot = slot, .command = options_.command, .environment = std::move(variables)};
        TUTTI_ASSERT(options_.program_words >= 1 && options_.program_words <= options_.command.size());
        if (options_.local_rank_argument)
            task.command.insert(task.command.begin() + static_cast<std::ptrdiff_t>(options_.program_words),
                                fmt::format("--local-rank={}", slot));
        return task;
    }

    // It has no number in the job yet, also where this launcher is itself a rank of another one.
    Task newcomer(int attempt, int slot, int number) {
        const int spare = number - (layout_.newcomers ? 0 : options_.ranks);
        Task task = task_of(attempt, slot, number);
        task.is_newcomer = true;
        task.name = options_.nodes == 1 ? fmt::format("spare {}", spare)
                                        : fmt::format("spare {}.{}", nodes_->node_rank(), spare);
        task.prefix = prefix_of(task.name, number, options_);
        for (const char* change : {"TUTTI_NEWCOMER=1", "RANK", "WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"})
            task.environment.emplace_back(change);
        task.environment = environment_with(task.environment);
        set_logs(task, attempt, fmt::format("spare_{}", task.name.substr(std::string("spare ").size())));
        return task;
    }

    std::vector<Task> tasks_of(int attempt) {
        TUTTI_ASSERT(layout_.newcomers || layout_.world_size - layout_.first_rank >= options_.ranks);
        std::vector<Task> tasks;
        const int ranks = layout_.newcomers ? 0 : options_.ranks;
        for (int local = 0; local < ranks; ++local) {
            const int rank = layout_.first_rank + local;
            Task& task = tasks.emplace_back(task_of(attempt, local, local));
            task.name = fmt::format("rank {}", rank);
            task.rank = rank;
            task.prefix = prefix_of(task.name, rank, options_);
            for (const char* name : {"RANK", "ROLE_RANK"}) task.environment.push_back(fmt::format("{}={}", name, rank));
            for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"})
                task.environment.push_back(fmt::format("{}={}", name, layout_.world_size));
            task.environment.emplace_back("TUTTI_NEWCOMER");  // not that of another job, in which this one runs
            task.environment = environment_with(task.environment);
            if (rank == 0 && !options_.lifeline)
                task.input = ::isatty(0) != 0 ? Task::Input::terminal : Task::Input::ours;
            set_logs(task, attempt, std::to_string(rank));
        }
        for (int slot = ranks; slot < options_.ranks + options_.spares; ++slot)
            tasks.push_back(newcomer(attempt, slot, slot));
        return tasks;
    }

    void set_logs(Task& task, int attempt, const std::string& name) const {
        const int local = task.slot;
        if (options_.log_dir.empty()) return;
        const bool all = !options_.redirects.any() && !options_.tee.any();
        const int hidden = options_.redirects.of(local) & ~options_.tee.of(local);
        TUTTI_ASSERT(hidden >= 0 && hidden <= 3);
        const int logged = all ? 3 : options_.redirects.of(local) | options_.tee.of(local);
        const std::string folder = fmt::format("{}/{}/attempt_{}/{}", options_.log_dir, layout_.run_id, attempt, name);
        if ((logged & 1) != 0) task.out_log = folder + "/stdout.log";
        if ((logged & 2) != 0) task.err_log = folder + "/stderr.log";
        task.shows_out = (hidden & 1) == 0;
        task.shows_err = (hidden & 2) == 0;
    }

    const Options& options_;
    const Clock::time_point started_ = Clock::now();
    Signals signals_;
    Lifeline lifeline_{options_.lifeline};
    Guard guard_;
    std::string run_id_ = options_.run_id, address_ = options_.master_addr;
    std::uint16_t port_ = options_.master_port;
    std::optional<std::string> secret_;  // node 0's
    std::optional<HeldPort> ranks_port_;
    std::unique_ptr<store::TcpServer> server_;
    std::optional<net::Address> elsewhere_;
    std::optional<Nodes> nodes_;
    Nodes::Layout layout_;
    int repairs_ = 0;  // restarts that replaced ranks, in all attempts
    int end_ = 1;
};

}  // namespace

int launch(const Options& options) {
    check(options);
    descriptors::raise();
    check_descriptors(options);
    prepare_process();
    Options here = options;
    std::unique_ptr<store::TcpServer> signpost;  // at node 0's place, for launchers that come there
    for (;;) {
        net::Address elsewhere;
        {
            Job job(here);
            if (const auto status = job.run()) return *status;
            elsewhere = *job.elsewhere();
            if (auto own = job.signpost()) signpost = std::move(own);
        }
        here.join = true;
        here.master_addr = elsewhere.host;
        here.master_port = elsewhere.port;
    }
}

}  // namespace tutti::launch
