#include "rendezvous/job_environment.hpp"

#include "core/env.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"
#include "rendezvous/slurm.hpp"
#include "rendezvous/spawned.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <vector>

namespace tutti::rendezvous {
namespace {

// A launcher shows itself by `rank` together with `also`; the other names are looked at in order.
struct Launcher {
    std::string_view name, rank, also, size, other_size, local_rank, local_size;
};
constexpr Launcher open_mpi{
    "Open MPI (mpirun)",          "OMPI_COMM_WORLD_RANK",      "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher hydra{"Hydra (MPICH's mpirun)", "PMI_RANK",       "MPI_LOCALNRANKS", "PMI_SIZE", "",
                         "MPI_LOCALRANKID",        "MPI_LOCALNRANKS"};
// A batch script has SLURM_PROCID as well; only processes that srun started have a step.
constexpr Launcher of_slurm{
    "Slurm (srun)", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID", ""};
// flux run; its PMI variables say the same.
constexpr Launcher flux{
    "Flux (flux run)", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_JOB_SIZE", "", "FLUX_TASK_LOCAL_ID", ""};
// Cray's and HPE's mpiexec and aprun; the number of ranks comes by PMI.
constexpr Launcher pals{"PALS (Cray's mpiexec)", "PALS_RANKID",   "PALS_APID", "PMI_SIZE", "",
                        "PALS_LOCAL_RANKID",     "PMI_LOCAL_SIZE"};
constexpr Launcher pmi{"a PMI process manager", "PMI_RANK", "PMI_SIZE", "PMI_SIZE", "", "", ""};
constexpr Launcher pmix{"a PMIx process manager", "PMIX_RANK", "PMIX_NAMESPACE", "", "", "", ""};
// mpirun inside a Slurm job starts its helpers with srun, so it comes before Slurm.
constexpr std::array<const Launcher*, 7> launchers{&open_mpi, &hydra, &of_slurm, &flux, &pals, &pmi, &pmix};

class Reader {
 public:
    explicit Reader(const Surroundings& from) : from_(from) {
        for (const Launcher* candidate : launchers) {
            if (get(candidate->rank) && get(candidate->also)) {
                launcher_ = candidate;
                break;
            }
        }
    }

    JobEnvironment read() {
        JobEnvironment job;
        const Launcher none{};
        const Launcher& l = launcher_ != nullptr ? *launcher_ : none;
        job.rank = first_of({"RANK", l.rank});
        job.world_size = first_of({"WORLD_SIZE", l.size, l.other_size});
        job.local_rank = first_of({"LOCAL_RANK", l.local_rank});
        job.local_world_size = first_of({"LOCAL_WORLD_SIZE", l.local_size});
        if (launcher_ == &of_slurm && !job.local_world_size) job.local_world_size = tasks_of_this_node();
        if (launcher_ == &flux && get("FLUX_JOB_NNODES") == "1" && !job.local_world_size)
            job.local_world_size = {job.world_size.value, "FLUX_JOB_NNODES", true};
        if (launcher_ == &pmix && job.rank.source == l.rank && !(job.world_size && job.local_world_size))
            add_what_pmix_knows(job);
        for (const Fact* number : {&job.rank, &job.world_size, &job.local_rank, &job.local_world_size}) {
            if (*number) check_number(*number);
        }
        const bool torch_store = truth("TORCHELASTIC_USE_AGENT_STORE");
        // Another launcher below tutti run, or a program, has set a port of its own.
        const auto beside = get("TUTTI_LAUNCHER_MASTER_PORT");
        const Fact served = first_of({"TUTTI_STORE_PORT"});
        job.replaces = truth("TUTTI_REPLACES");
        job.is_newcomer = truth("TUTTI_NEWCOMER") && !job.rank;
        const bool is_beside = beside && beside == get("MASTER_PORT") && !torch_store;
        job.store_is_hosted = served && (is_beside || job.is_newcomer);
        job.attempt = get("TORCHELASTIC_RESTART_COUNT").value_or("");
        job.launcher = name(job);
        job.master_addr = torch_store ? Fact{} : first_of({"MASTER_ADDR"});
        if (!job.master_addr) job.master_addr = made_address(job);
        if (!job.master_addr) job.master_addr = first_of({"MASTER_ADDR"});
        job.master_port = torch_store ? torch_port() : job.store_is_hosted ? served : first_of({"MASTER_PORT"});
        if (!job.master_port) job.master_port = made_port();
        if (job.master_port.made) job.port_of_job = made_of_;
        return job;
    }

 private:
    std::optional<std::string> get(std::string_view variable) const {
        auto value = variable.empty() ? std::nullopt : from_.variable(variable);
        return value && value->empty() ? std::nullopt : value;
    }

    bool truth(std::string_view variable) const {
        const auto value = get(variable);
        return value && env::truth(variable, *value);
    }

    Fact first_of(std::initializer_list<std::string_view> variables) const {
        for (const std::string_view variable : variables) {
            if (auto value = get(variable)) return {*value, std::string(variable)};
        }
        return {};
    }

    static void check_number(const Fact& fact) {
        if (number_in<int>(fact.value)) return;
        throw InvalidArgument(fmt::format("environment variable {}={}: expected an integer", fact.source, fact.value));
    }

    std::string name(const JobEnvironment& job) const {
        if (job.store_is_hosted) return "tutti run";
        if (get("TORCHELASTIC_RUN_ID")) return "torchrun";
        const bool by_hand = job.rank.source == "RANK" && job.world_size.source == "WORLD_SIZE";
        if (launcher_ == nullptr || by_hand) return by_hand ? "by hand" : "none";
        return std::string(launcher_->name);
    }

    Fact tasks_of_this_node() const {
        const auto list = get("SLURM_STEP_TASKS_PER_NODE"), node = get("SLURM_NODEID");
        const auto tasks = list && node ? slurm::tasks_of_node(*list, *node) : std::nullopt;
        if (!tasks) return {};
        return {std::to_string(*tasks), "SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID", true};
    }

    static Fact by_pmix(const std::optional<int>& number, const char* key) {
        return number ? Fact{std::to_string(*number), std::string("the PMIx server's ") + key, true} : Fact{};
    }
    // PMIx's variables tell a process its rank and no more.
    void add_what_pmix_knows(JobEnvironment& job) {
        const auto facts = asked_pmix();
        if (!facts) return;
        if (!job.world_size) job.world_size = by_pmix(facts->size, "PMIX_JOB_SIZE");
        if (!job.local_rank) job.local_rank = by_pmix(facts->local_rank, "PMIX_LOCAL_RANK");
        if (!job.local_world_size) job.local_world_size = by_pmix(facts->local_size, "PMIX_LOCAL_SIZE");
    }
    const std::optional<PmixFacts>& asked_pmix() const {
        if (!asked_) pmix_ = from_.pmix();
        asked_ = true;
        return pmix_;
    }

    Fact made_address(const JobEnvironment& job) const {
        if (job.world_size.value == "1") return {"127.0.0.1", "there is one rank", true};
        if (job.local_world_size && job.local_world_size.value == job.world_size.value) {
            return {
                "127.0.0.1",
                fmt::format("all ranks are on this host: {} = {}", job.local_world_size.source, job.world_size.source),
                true};
        }
        if (launcher_ == &open_mpi) {
            const Fact host = address_of_open_mpi();
            return host ? host : host_by_pmix(job);  // Open MPI 5 has no such variable
        }
        if (launcher_ == &pmix) return host_by_pmix(job);
        if (launcher_ == &hydra) {
            const auto control = from_.hydra_control_port();
            if (!control) return {};
            return {control->substr(0, control->rfind(':')), "mpirun's host, from --control-port of Hydra's proxy",
                    true};
        }
        if (launcher_ == &of_slurm) {
            const Fact list = first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
            if (list) return {slurm::first_host(list.value), "first host of " + list.source, true};
        }
        return {};
    }

    Fact host_by_pmix(const JobEnvironment& job) const {
        if (job.rank.source != launcher_->rank) return {};  // another launcher's, below this one
        const auto& facts = asked_pmix();
        if (!facts || facts->host_of_rank_0.empty()) return {};
        return {facts->host_of_rank_0, "rank 0's host, from the PMIx server", true};
    }

    // "1231486976.0;tcp://192.0.2.2,10.0.0.2:43621;tcp6://[fd00::2]:38713"
    Fact address_of_open_mpi() const {
        const auto uri = get("OMPI_MCA_orte_hnp_uri");
        const std::size_t at = uri ? uri->find(";tcp://") : std::string::npos;
        if (at == std::string::npos) return {};
        const std::string_view hosts = std::string_view(*uri).substr(at + 7);
        const std::size_t end = hosts.find_first_of(",:;");
        return {std::string(hosts.substr(0, end)), "mpirun's host, from OMPI_MCA_orte_hnp_uri", true};
    }

    Fact torch_port() const { return port_from({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}); }

    Fact made_port() const {
        if (launcher_ == &open_mpi) return port_from({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
        if (launcher_ == &of_slurm) {
            const auto port = slurm::port(get("SLURM_JOB_ID").value_or(""), get("SLURM_STEP_ID").value_or(""));
            made_of_ = fmt::format("{}/{}/", get("SLURM_JOB_ID").value_or(""), get("SLURM_STEP_ID").value_or(""));
            if (port) return {std::to_string(*port), "made from SLURM_JOB_ID, SLURM_STEP_ID", true};
            return port_from({"SLURM_JOB_ID", "SLURM_STEP_ID"});
        }
        if (launcher_ == &flux) return port_from({"FLUX_JOB_ID"});
        if (launcher_ == &pals) return port_from({"PALS_APID"});
        if (launcher_ == &pmix) return port_from({"PMIX_NAMESPACE"});
        if (launcher_ == &hydra) {
            if (const auto control = from_.hydra_control_port()) {
                made_of_ = *control;
                return {port_of(*control), "made from --control-port of Hydra's proxy", true};
            }
        }
        return {};
    }

    Fact port_from(std::initializer_list<std::string_view> variables) const {
        std::string names, text;
        for (const std::string_view variable : variables) {
            const auto value = get(variable);
            if (!value) continue;
            names += fmt::format("{}{}", names.empty() ? "made from " : ", ", variable);
            text += *value + '/';
        }
        if (text.empty()) return {};
        made_of_ = text;
        return {port_of(text), names, true};
    }

    // Below the ports that systems give to clients (32768 and up).
    static std::string port_of(std::string_view text) {
        const std::uint64_t hash = fnv1a(text);
        return std::to_string(20000 + (hash ^ hash >> 32) % 10000);
    }

    const Surroundings& from_;
    const Launcher* launcher_ = nullptr;
    mutable std::string made_of_;  // the text of a port that was worked out
    mutable bool asked_ = false;
    mutable std::optional<PmixFacts> pmix_;
};

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

pid_t parent_process(pid_t process) {
    const std::string stat = contents(fmt::format("/proc/{}/stat", process));
    const std::size_t name_end = stat.rfind(')');  // "pid (name) state parent …"
    pid_t parent = 0;
    if (name_end != std::string::npos && name_end + 4 < stat.size())
        std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
    return parent;
}

// A program may be started through shells and scripts, so the proxy need not be the parent.
std::optional<std::string> control_port_of_proxy() {
    constexpr int generations = 32;
    pid_t process = ::getppid();
    for (int n = 0; n < generations && process > 1; ++n, process = parent_process(process)) {
        if (!contents(fmt::format("/proc/{}/comm", process)).starts_with("hydra_pmi_prox")) continue;
        const std::string command = contents(fmt::format("/proc/{}/cmdline", process));
        constexpr std::string_view option{"\0--control-port\0", 16};
        const std::size_t at = command.find(option);
        if (at == std::string::npos) return std::nullopt;
        return std::string(command.c_str() + at + option.size());
    }
    return std::nullopt;
}

}  // namespace

Surroundings surroundings() {
    const auto variable = [](std::string_view name) {
        auto value = env::get(name);
        return value && is_of_parents_job(name, *value) ? std::nullopt : value;
    };
    if (!spawned()) return {variable, control_port_of_proxy, ask_pmix};
    return {variable, [] { return std::optional<std::string>(); }, [] { return std::optional<PmixFacts>(); }};
}

JobEnvironment read_job_environment(const Surroundings& from) {
    return Reader(from).read();
}

}  // namespace tutti::rendezvous
