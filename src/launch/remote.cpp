// launch_on_hosts(): the launcher of each node is started over ssh.
#include "core/assert.hpp"
#include "core/descriptors.hpp"
#include "launch/attempt.hpp"
#include "launch/guard.hpp"
#include "launch/init_process.hpp"
#include "launch/launcher.hpp"
#include "launch/signals.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

extern char** environ;

namespace tutti::launch {
namespace {

constexpr std::uint16_t default_port = 29500;

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

// The variables that belong to the whole job. The secret goes another way.
std::vector<std::string> travelling_variables() {
    static constexpr std::array<std::string_view, 3> beginnings = {"TUTTI_", "PYTHON", "LD_LIBRARY_PATH="};
    std::vector<std::string> result;
    for (char** v = environ; v != nullptr && *v != nullptr; ++v) {
        const std::string_view variable(*v);
        const bool travels = std::ranges::any_of(beginnings, [&](auto b) { return variable.starts_with(b); });
        if (travels && !variable.starts_with("TUTTI_JOB_SECRET")) result.emplace_back(variable);
    }
    return result;
}

class RemoteJob {
 public:
    RemoteJob(const Options& options, const std::vector<Host>& hosts, const SshOptions& ssh)
        : options_(options),
          hosts_(hosts),
          ssh_(ssh),
          secret_(security::Secret::from_environment().value_or(security::Secret::generate()).to_text()) {
        if (secret_.find('\n') != std::string::npos) {
            throw InvalidArgument("tutti run: --hostfile: TUTTI_JOB_SECRET has more than one line: expected one");
        }
    }

    int run() {
        std::vector<Task> tasks;
        for (std::size_t node = 0; node < hosts_.size(); ++node) tasks.push_back(task_of(node));
        // The nodes end each other when a rank fails; this is for a node that does not.
        const Limits limits{std::chrono::steady_clock::now(), options_.timeout,
                            2 * options_.report_time + options_.grace, options_.grace, false};
        Attempt attempt(tasks, limits, signals_, guard_, nullptr, 0);
        const Outcome outcome = attempt.run();
        say(outcome.report, attempt.patience());
        return outcome.status;
    }

 private:
    Task task_of(std::size_t node) const {
        TUTTI_ASSERT(node < hosts_.size());
        const Host& host = hosts_[node];
        std::vector<std::string> command{"ssh"};
        command.insert(command.end(), ssh_.arguments.begin(), ssh_.arguments.end());
        // Nobody is there to type a password.
        for (const char* word : {"-T", "-oBatchMode=yes", "-oConnectTimeout=20"}) command.emplace_back(word);
        command.push_back(host.name);
        command.push_back(fmt::format("exec sh -c {}", quoted(script(node))));
        return {.name = fmt::format("node {} ({})", node, host.name),
                .prefix = {},
                .command = std::move(command),
                .environment = environment_with({guard_.variable()}),
                .input = Task::Input::lifeline,
                .greeting = secret_ + "\n",
                .reports_itself = true};
    }

    std::string script(std::size_t node) const {
        const Host& host = hosts_[node];
        const std::string& first = hosts_.front().name;
        const std::string address =
            options_.master_addr.empty() ? first.substr(first.find('@') + 1) : options_.master_addr;
        const int port = options_.master_port == 0 ? default_port : options_.master_port;
        TUTTI_ASSERT(port >= 1 && port <= 65535 && !address.empty());
        std::vector<std::string> words{"env"};
        for (const std::string& variable : travelling_variables()) words.push_back(variable);
        for (const std::string& variable : options_.environment) words.push_back(variable);
        if (host.chosen) words.push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", fmt::join(host.slots, ",")));
        for (const std::string& word :
             {std::filesystem::read_symlink("/proc/self/exe").string(), std::string("run"),
              fmt::format("--nnodes={}", hosts_.size()), fmt::format("--node-rank={}", node),
              fmt::format("--nproc-per-node={}", host.slots.size()), "--master-addr=" + address,
              fmt::format("--master-port={}", port), std::string("--lifeline"),
              fmt::format("--color={}", options_.colour ? "always" : "never"),
              fmt::format("--grace={}", std::chrono::duration<double>(options_.grace).count())}) {
            words.push_back(word);
        }
        if (!options_.prefix) words.emplace_back("--no-prefix");
        words.insert(words.end(), ssh_.forwarded.begin(), ssh_.forwarded.end());
        words.emplace_back("--");
        words.insert(words.end(), options_.command.begin(), options_.command.end());
        std::string script = fmt::format("IFS= read -r TUTTI_JOB_SECRET; export TUTTI_JOB_SECRET; cd {} && exec",
                                         quoted(std::filesystem::current_path().string()));
        for (const std::string& word : words) script += fmt::format(" {}", quoted(word));
        return script;
    }

    const Options& options_;
    const std::vector<Host>& hosts_;
    const SshOptions& ssh_;
    const std::string secret_;
    Signals signals_;
    Guard guard_;
};

}  // namespace

int launch_on_hosts(const Options& options, const std::vector<Host>& hosts, const SshOptions& ssh) {
    if (options.command.empty())
        throw InvalidArgument("tutti run: no program given: tutti run --hostfile hosts ./program");
    if (hosts.empty()) throw InvalidArgument("tutti run: no hosts given: expected at least one");
    descriptors::raise();
    prepare_process();
    RemoteJob job(options, hosts, ssh);
    return job.run();
}

}  // namespace tutti::launch
