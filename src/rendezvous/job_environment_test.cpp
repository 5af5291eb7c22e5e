#include "rendezvous/job_environment.hpp"

#include "support/covers.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tutti::rendezvous {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

JobEnvironment read(const Variables& variables, const std::optional<std::string>& hydra = {},
                    const std::optional<PmixFacts>& pmix = {}) {
    return read_job_environment({[&](std::string_view name) -> std::optional<std::string> {
                                     const auto found = variables.find(name);
                                     if (found == variables.end()) return std::nullopt;
                                     return found->second;
                                 },
                                 [&] { return hydra; }, [&] { return pmix; }});
}

void expect(const Fact& fact, const std::string& value, const std::string& source) {
    EXPECT_EQ(fact.value, value);
    EXPECT_NE(fact.source.find(source), std::string::npos) << fact.source;
}

const Variables of_open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "3"},
                            {"PMIX_NAMESPACE", "1231486977"},
                            {"OMPI_MCA_orte_hnp_uri", "1231486976.0;tcp://192.0.2.2,10.1.1.1:43621;tcp6://[fd00::2]:7"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_STEP_ID", "0"}};
const Variables of_slurm{{"SLURM_PROCID", "5"},          {"SLURM_STEP_ID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "7"},  {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "2"},          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_JOB_ID", "4711"},       {"SLURM_STEP_NODELIST", "gpu[03-05,9],login"},
                         {"SLURM_JOB_NODELIST", "other"}};

TEST(JobEnvironment, says_nothing_where_nobody_does) {
    const auto job = read({});
    EXPECT_EQ(job.launcher, "none");
    EXPECT_FALSE(job.rank || job.world_size || job.local_rank || job.master_addr || job.master_port);
}

TEST(JobEnvironment, a_newcomer_of_a_launcher_has_a_store_and_no_rank) {
    Variables newcomer{
        {"TUTTI_NEWCOMER", "1"}, {"TUTTI_REPLACES", "1"}, {"MASTER_ADDR", "10.0.0.2"}, {"TUTTI_STORE_PORT", "4711"}};
    const auto job = read(newcomer);
    EXPECT_TRUE(job.is_newcomer && job.replaces && job.store_is_hosted);
    expect(job.master_addr, "10.0.0.2", "MASTER_ADDR");
    expect(job.master_port, "4711", "TUTTI_STORE_PORT");
    newcomer["RANK"] = "0";  // a program that gives itself a place is none
    EXPECT_FALSE(read(newcomer).is_newcomer);
}

TEST(JobEnvironment, tells_jobs_apart_whose_ports_are_equal_by_chance) {
    Variables later = of_slurm;
    later["SLURM_JOB_ID"] = "14711";
    EXPECT_EQ(read(of_slurm).master_port.value, read(later).master_port.value);
    EXPECT_NE(read(of_slurm).port_of_job, read(later).port_of_job);
    EXPECT_NE(read(of_open_mpi).port_of_job, "");
    Variables with_a_port = of_slurm;
    with_a_port["MASTER_PORT"] = "29500";
    EXPECT_EQ(read(with_a_port).port_of_job, "");
}

TEST(JobEnvironment, of_flux_has_an_address_where_all_ranks_are_on_one_host) {
    Variables variables{{"FLUX_TASK_RANK", "3"},
                        {"FLUX_JOB_SIZE", "4"},
                        {"FLUX_TASK_LOCAL_ID", "1"},
                        {"FLUX_JOB_ID", "f2UhPNqp"},
                        {"FLUX_JOB_NNODES", "2"},
                        {"PMI_RANK", "3"},
                        {"PMI_SIZE", "4"}};
    const auto job = read(variables);
    EXPECT_EQ(job.launcher, "Flux (flux run)");
    expect(job.rank, "3", "FLUX_TASK_RANK");
    expect(job.world_size, "4", "FLUX_JOB_SIZE");
    expect(job.local_rank, "1", "FLUX_TASK_LOCAL_ID");
    expect(job.master_port, job.master_port.value, "FLUX_JOB_ID");
    EXPECT_TRUE(job.master_port);
    EXPECT_FALSE(job.master_addr || job.local_world_size);
    variables["FLUX_JOB_NNODES"] = "1";
    expect(read(variables).master_addr, "127.0.0.1", "FLUX_JOB_NNODES");
    expect(read(variables).local_world_size, "4", "FLUX_JOB_NNODES");
}

TEST(JobEnvironment, of_pals_has_the_number_of_ranks_by_pmi) {
    const auto job = read({{"PALS_RANKID", "5"},
                           {"PALS_APID", "8a1c"},
                           {"PALS_LOCAL_RANKID", "1"},
                           {"PMI_RANK", "5"},
                           {"PMI_SIZE", "8"},
                           {"PMI_LOCAL_SIZE", "4"}});
    EXPECT_EQ(job.launcher, "PALS (Cray's mpiexec)");
    expect(job.rank, "5", "PALS_RANKID");
    expect(job.world_size, "8", "PMI_SIZE");
    expect(job.local_rank, "1", "PALS_LOCAL_RANKID");
    expect(job.local_world_size, "4", "PMI_LOCAL_SIZE");
    EXPECT_TRUE(job.master_port);
}

TEST(JobEnvironment, of_the_user_wins_over_every_launcher) {
    Variables variables = of_open_mpi;
    variables.insert({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1234"}});
    const auto job = read(variables);
    EXPECT_EQ(job.launcher, "by hand");
    expect(job.rank, "0", "RANK");
    EXPECT_EQ(job.rank.source, "RANK");
    expect(job.world_size, "2", "WORLD_SIZE");
    expect(job.master_addr, "node1", "MASTER_ADDR");
    expect(job.master_port, "1234", "MASTER_PORT");
    EXPECT_FALSE(job.master_addr.made || job.master_port.made);
    // Each for itself.
    Variables address = of_open_mpi;
    address["MASTER_ADDR"] = "node7";
    expect(read(address).rank, "3", "OMPI_COMM_WORLD_RANK");
    expect(read(address).master_addr, "node7", "MASTER_ADDR");
    EXPECT_TRUE(read(address).master_port.made);
}

TEST(JobEnvironment, of_open_mpi_is_read_inside_a_slurm_job_too) {
    const auto job = read(of_open_mpi);
    EXPECT_EQ(job.launcher, "Open MPI (mpirun)");
    expect(job.rank, "3", "OMPI_COMM_WORLD_RANK");
    expect(job.world_size, "4", "OMPI_COMM_WORLD_SIZE");
    expect(job.local_rank, "1", "OMPI_COMM_WORLD_LOCAL_RANK");
    expect(job.master_addr, "192.0.2.2", "OMPI_MCA_orte_hnp_uri");
    Variables other = of_open_mpi, one_host = of_open_mpi;
    other["PMIX_NAMESPACE"] = "1231486978";
    EXPECT_NE(read(other).master_port.value, job.master_port.value) << "another job, another port";
    EXPECT_EQ(read(of_open_mpi).master_port.value, job.master_port.value);
    one_host["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
    expect(read(one_host).master_addr, "127.0.0.1", "on this host");
}

TEST(JobEnvironment, of_hydra_comes_from_its_proxy) {
    const Variables variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
    const auto job = read(variables, "10.1.2.3:44037");
    EXPECT_EQ(job.launcher, "Hydra (MPICH's mpirun)");
    expect(job.rank, "1", "PMI_RANK");
    expect(job.local_rank, "0", "MPI_LOCALRANKID");
    expect(job.master_addr, "10.1.2.3", "--control-port");
    const int port = std::stoi(job.master_port.value);
    EXPECT_TRUE(port >= 20000 && port < 30000) << port;
    EXPECT_FALSE(read(variables).master_addr) << "no proxy is found: nothing is guessed";
}

TEST(JobEnvironment, of_slurm_is_read_in_a_step) {
    const auto job = read(of_slurm);
    EXPECT_EQ(job.launcher, "Slurm (srun)");
    expect(job.rank, "5", "SLURM_PROCID");
    expect(job.world_size, "7", "SLURM_STEP_NUM_TASKS");
    expect(job.local_rank, "1", "SLURM_LOCALID");
    expect(job.local_world_size, "2", "SLURM_STEP_TASKS_PER_NODE");
    expect(job.master_addr, "gpu03", "SLURM_STEP_NODELIST");
    expect(job.master_port, job.master_port.value, "SLURM_JOB_ID, SLURM_STEP_ID");
    Variables last = of_slurm, one_host = of_slurm, batch = of_slurm, old = of_slurm;
    last["SLURM_NODEID"] = "3";
    EXPECT_EQ(read(last).local_world_size.value, "1");
    one_host["SLURM_STEP_TASKS_PER_NODE"] = "7";
    one_host["SLURM_NODEID"] = "0";
    expect(read(one_host).master_addr, "127.0.0.1", "on this host");
    old.erase("SLURM_STEP_NUM_TASKS");
    old["SLURM_NTASKS"] = "9";
    expect(read(old).world_size, "9", "SLURM_NTASKS");
    batch.erase("SLURM_STEP_ID");
    EXPECT_EQ(read(batch).launcher, "none") << "a batch script is not a rank";
}

// As Slurm 22.05 says it to a task of `salloc -n 2 : -n 3`, `srun --het-group=0,1`: sums of both components.
TEST(JobEnvironment, of_a_heterogeneous_step_of_slurm_is_that_of_all_components) {
    Variables variables{{"SLURM_HET_SIZE", "2"},
                        {"SLURM_JOB_ID", "2"},
                        {"SLURM_JOB_ID_HET_GROUP_1", "3"},
                        {"SLURM_NTASKS_HET_GROUP_0", "2"},
                        {"SLURM_NTASKS_HET_GROUP_1", "3"},
                        {"SLURM_PROCID", "4"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_LOCALID", "2"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "5"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2,3"},
                        {"SLURM_STEP_NODELIST", "n[0-1]"}};
    const auto job = read(variables);
    expect(job.rank, "4", "SLURM_PROCID");
    expect(job.world_size, "5", "SLURM_STEP_NUM_TASKS");
    expect(job.local_rank, "2", "SLURM_LOCALID");
    expect(job.local_world_size, "3", "SLURM_STEP_TASKS_PER_NODE");
    expect(job.master_addr, "n0", "SLURM_STEP_NODELIST");
    // A step of the second component alone, beside one of the first: the same job, another step.
    variables.insert_or_assign("SLURM_STEP_ID", "1");
    EXPECT_NE(read(variables).master_port.value, job.master_port.value);
}

TEST(JobEnvironment, of_a_pmix_process_manager_is_completed_by_its_server) {
    const Variables variables{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-node1-77@1"}};
    const auto none = read(variables);
    EXPECT_EQ(none.launcher, "a PMIx process manager");
    expect(none.rank, "3", "PMIX_RANK");
    EXPECT_FALSE(none.world_size || none.local_rank || none.master_addr);
    EXPECT_TRUE(none.master_port);
    const PmixFacts facts{.size = 4, .local_rank = 1, .local_size = 2, .host_of_rank_0 = "node1"};
    const auto job = read(variables, {}, facts);
    expect(job.world_size, "4", "PMIx server's PMIX_JOB_SIZE");
    expect(job.local_rank, "1", "PMIx server");
    expect(job.local_world_size, "2", "PMIx server");
    expect(job.master_addr, "node1", "rank 0's host, from the PMIx server");
    expect(read(variables, {}, PmixFacts{.size = 4, .local_size = 4}).master_addr, "127.0.0.1", "on this host");
    // It does not complete the values of the user, or of another launcher below this one.
    Variables other = variables;
    other.insert({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    EXPECT_FALSE(read(other, {}, facts).master_addr);
}

TEST(JobEnvironment, of_open_mpi_5_has_its_address_from_the_pmix_server) {
    Variables variables = of_open_mpi;
    variables.erase("OMPI_MCA_orte_hnp_uri");
    EXPECT_FALSE(read(variables).master_addr);
    expect(read(variables, {}, PmixFacts{.host_of_rank_0 = "node1"}).master_addr, "node1", "PMIx server");
}

TEST(JobEnvironment, of_torchrun_leaves_its_store_alone) {
    test::covers("S14-002", "S3-005");
    Variables variables{{"RANK", "1"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "node1"},
                        {"MASTER_PORT", "29500"},
                        {"TORCHELASTIC_RUN_ID", "none"},
                        {"TORCHELASTIC_RESTART_COUNT", "0"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    const auto job = read(variables);
    EXPECT_EQ(job.launcher, "torchrun");
    EXPECT_FALSE(job.store_is_hosted);
    expect(job.master_addr, "node1", "MASTER_ADDR");
    EXPECT_NE(job.master_port.value, "29500");
    expect(job.master_port, job.master_port.value, "MASTER_PORT");
    variables["LOCAL_WORLD_SIZE"] = "4";
    expect(read(variables).master_addr, "127.0.0.1", "on this host");
    variables["TUTTI_STORE_PORT"] = "1234";
    variables["TUTTI_LAUNCHER_MASTER_PORT"] = "29501";
    for (const char* port : {"29501", "29500"}) {
        variables["TUTTI_LAUNCHER_MASTER_PORT"] = port;
        EXPECT_EQ(read(variables).launcher, "torchrun") << "started by tutti run";
        EXPECT_FALSE(read(variables).store_is_hosted);
    }
}

TEST(JobEnvironment, of_tutti_run_has_a_store_beside_the_port_that_is_left_to_pytorch) {
    Variables variables{{"RANK", "1"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "node1"},
                        {"MASTER_PORT", "29500"},
                        {"TORCHELASTIC_RUN_ID", "none"},
                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                        {"TUTTI_STORE_PORT", "1234"},
                        {"TUTTI_LAUNCHER_MASTER_PORT", "29500"}};
    const auto job = read(variables);
    EXPECT_EQ(job.launcher, "tutti run");
    EXPECT_TRUE(job.store_is_hosted);
    EXPECT_EQ(job.attempt, "2");
    expect(job.master_addr, "node1", "MASTER_ADDR");
    expect(job.master_port, "1234", "TUTTI_STORE_PORT");
    variables["MASTER_PORT"] = "12355";  // as many programs for one host begin
    EXPECT_FALSE(read(variables).store_is_hosted);
    expect(read(variables).master_port, "12355", "MASTER_PORT");
}

TEST(JobEnvironment, that_makes_no_sense_is_refused_by_name) {
    for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK"}) {
        Variables variables = of_open_mpi;
        variables[variable] = "three";
        try {
            read(variables);
            ADD_FAILURE() << variable;
        } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(std::string(variable) + "=three: expected an integer"),
                      std::string::npos)
                << error.what();
        }
    }
    EXPECT_THROW(read({{"TORCHELASTIC_USE_AGENT_STORE", "perhaps"}}), InvalidArgument);
}

}  // namespace
}  // namespace tutti::rendezvous
