#include "launch/placement.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tutti::launch {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Pod pod_with(const Variables& variables, const std::string& name = "host") {
    return {[variables](std::string_view variable) -> std::optional<std::string> {
                const auto found = variables.find(variable);
                return found == variables.end() ? std::nullopt : std::optional(found->second);
            },
            [name] { return name; }};
}

void expect(const Given& given, const std::string& value, const std::string& source) {
    EXPECT_EQ(given.value, value);
    EXPECT_EQ(given.source, source);
}

void expect_refused(Placement placement, const Pod& pod, const std::vector<const char*>& words) {
    try {
        complete(placement, pod);
        ADD_FAILURE() << "not refused: " << words.front();
    } catch (const InvalidArgument& error) {
        for (const char* word : words)
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << "\nlacks " << word;
    }
}

const Variables of_trainer{{"PET_NNODES", "4"},
                           {"PET_NPROC_PER_NODE", "2"},
                           {"PET_NODE_RANK", "1"},
                           {"PET_MASTER_ADDR", "job-node-0-0.job"},
                           {"PET_MASTER_PORT", "29400"}};

TEST(Placement, is_left_as_it_is_where_no_platform_says_anything) {
    Placement placement{.nodes = {"2", "--nnodes"}};
    EXPECT_EQ(complete(placement, pod_with({})), "");
    expect(placement.nodes, "2", "--nnodes");
    EXPECT_FALSE(placement.node_rank || placement.ranks || placement.master_addr || placement.master_port);
}

TEST(Placement, comes_from_torchruns_variables_and_the_sentence_names_them) {
    Placement placement;
    EXPECT_EQ(complete(placement, pod_with(of_trainer)),
              "tutti run: node 1 of 4, node 0 is job-node-0-0.job, port 29400 (PET_NNODES, PET_NPROC_PER_NODE, "
              "PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT)");
    expect(placement.nodes, "4", "PET_NNODES");
    expect(placement.node_rank, "1", "PET_NODE_RANK");
    expect(placement.ranks, "2", "PET_NPROC_PER_NODE");
    EXPECT_EQ(placement.nodes.text(), "PET_NNODES=4");
}

TEST(Placement, flags_win_each_for_itself) {
    Placement placement{.node_rank = {"3", "--node-rank"}, .ranks = {"8", "--nproc-per-node"}};
    complete(placement, pod_with(of_trainer));
    expect(placement.nodes, "4", "PET_NNODES");
    expect(placement.node_rank, "3", "--node-rank");
    expect(placement.ranks, "8", "--nproc-per-node");
    EXPECT_EQ(placement.node_rank.text(), "--node-rank 3");
}

TEST(Placement, an_endpoint_stands_for_address_and_port_that_are_not_set) {
    Variables variables = of_trainer;
    variables["PET_RDZV_ENDPOINT"] = "other:1";
    Placement both;
    complete(both, pod_with(variables));
    expect(both.master_addr, "job-node-0-0.job", "PET_MASTER_ADDR");
    variables.erase("PET_MASTER_ADDR");
    variables.erase("PET_MASTER_PORT");
    Placement placement;
    complete(placement, pod_with(variables));
    expect(placement.master_addr, "other", "PET_RDZV_ENDPOINT");
    expect(placement.master_port, "1", "PET_RDZV_ENDPOINT");
}

TEST(Placement, an_endpoint_may_have_no_port_or_be_an_address_of_version_6) {
    for (const auto& [text, host, port] :
         {std::tuple("node7", "node7", ""), std::tuple("node7:80", "node7", "80"),
          std::tuple("[fd00::2]:80", "fd00::2", "80"), std::tuple("[fd00::2]", "fd00::2", "")}) {
        Placement placement;
        set_endpoint(placement, {text, "--rdzv-endpoint"});
        EXPECT_EQ(placement.master_addr.value, host);
        EXPECT_EQ(placement.master_port.value, port);
    }
    for (const char* text : {":80", "fd00::2:80", "[fd00::2", "node7:", "[fd00::2]80", "[]:80"}) {
        Placement placement;
        EXPECT_THROW(set_endpoint(placement, {text, "--rdzv-endpoint"}), InvalidArgument) << text;
    }
}

TEST(Placement, half_set_variables_are_refused_by_the_name_of_the_one_that_is_missing) {
    for (const auto& [missing, words] :
         {std::pair("PET_NNODES", std::vector<const char*>{"PET_NODE_RANK=1", "PET_NNODES is not", "--nnodes"}),
          std::pair("PET_NODE_RANK", std::vector<const char*>{"PET_NNODES=4", "PET_NODE_RANK is not", "--node-rank"}),
          std::pair("PET_MASTER_ADDR",
                    std::vector<const char*>{"PET_NNODES=4", "PET_MASTER_ADDR is not", "--master-addr"})}) {
        Variables variables = of_trainer;
        variables.erase(missing);
        expect_refused({}, pod_with(variables), words);
        variables[missing] = "";  // as where a template leaves it empty
        expect_refused({}, pod_with(variables), words);
    }
    expect_refused({.nodes = {"2", "--nnodes"}}, pod_with({{"PET_MASTER_ADDR", "a"}}), {"PET_NODE_RANK is not"});
}

TEST(Placement, a_node_of_a_job_that_changes_needs_no_rank) {
    Placement placement;
    EXPECT_EQ(complete(placement, pod_with({{"PET_NNODES", "1:4"}, {"PET_RDZV_ENDPOINT", "job-0:29400"}})),
              "tutti run: a node of 1:4, node 0 is job-0, port 29400 (PET_NNODES, PET_RDZV_ENDPOINT)");
    EXPECT_FALSE(placement.node_rank);
    EXPECT_TRUE(is_range(placement.nodes));
    for (const char* one : {"", "4", "4:4"}) EXPECT_FALSE(is_range({one, "--nnodes"})) << one;
    EXPECT_TRUE(is_this_host("127.0.0.1"));
    for (const char* other : {"192.0.2.1", "no-such-host.invalid"}) EXPECT_FALSE(is_this_host(other)) << other;
}

TEST(Placement, one_node_of_torchruns_needs_nothing_else) {
    Placement alone;
    EXPECT_EQ(complete(alone, pod_with({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "auto"}})),
              "tutti run: one node (PET_NNODES, PET_NPROC_PER_NODE)");
    Placement ranks;
    complete(ranks, pod_with({{"PET_NPROC_PER_NODE", "2"}}));
    expect(ranks.ranks, "2", "PET_NPROC_PER_NODE");
    EXPECT_FALSE(ranks.nodes);
}

TEST(Placement, a_pod_of_an_indexed_job_is_the_node_of_its_index_and_finds_node_0_by_its_own_name) {
    const Pod pod =
        pod_with({{"JOB_COMPLETION_INDEX", "2"}, {"TUTTI_NNODES", "3"}}, "train-2.workers.ml.svc.cluster.local");
    Placement placement;
    EXPECT_EQ(complete(placement, pod),
              "tutti run: node 2 of 3, node 0 is train-0.workers.ml.svc.cluster.local (TUTTI_NNODES, "
              "JOB_COMPLETION_INDEX, this pod's name)");
    expect(placement.node_rank, "2", "JOB_COMPLETION_INDEX");
    Placement flags{.nodes = {"3", "--nnodes"}, .master_addr = {"elsewhere", "--master-addr"}};
    complete(flags, pod);
    expect(flags.node_rank, "2", "JOB_COMPLETION_INDEX");
    expect(flags.master_addr, "elsewhere", "--master-addr");
}

TEST(Placement, torchruns_variables_win_over_an_index) {
    Variables variables = of_trainer;
    variables.insert({{"JOB_COMPLETION_INDEX", "7"}, {"TUTTI_NNODES", "9"}});
    Placement placement;
    complete(placement, pod_with(variables, "job-node-0-7.job.ml.svc"));
    expect(placement.nodes, "4", "PET_NNODES");
    expect(placement.node_rank, "1", "PET_NODE_RANK");
    expect(placement.master_addr, "job-node-0-0.job", "PET_MASTER_ADDR");
}

TEST(Placement, a_pod_without_a_headless_service_or_of_another_name_is_told_what_to_do) {
    const Variables variables{{"JOB_COMPLETION_INDEX", "2"}, {"TUTTI_NNODES", "3"}};
    expect_refused({}, pod_with(variables, "train-2"), {"headless service", "spec.subdomain", "--master-addr"});
    expect_refused({}, pod_with(variables, "train-1.workers"), {"train-1.workers", "does not end with -2"});
    expect_refused({}, pod_with({{"TUTTI_NNODES", "3"}}), {"TUTTI_NNODES=3", "JOB_COMPLETION_INDEX is not"});
}

TEST(Placement, a_pod_that_does_not_know_the_number_of_pods_says_that_it_is_a_job_of_its_own) {
    Placement placement;
    const std::string sentence = complete(placement, pod_with({{"JOB_COMPLETION_INDEX", "2"}}, "train-2.workers"));
    EXPECT_NE(sentence.find("a job of its own"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("TUTTI_NNODES"), std::string::npos) << sentence;
    EXPECT_FALSE(placement.nodes || placement.node_rank);
}

// One launcher on each node, as `srun --ntasks-per-node=1 tutti run` starts them.
const Variables of_step{{"SLURM_STEP_NUM_NODES", "3"},         {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NODEID", "1"},
                        {"SLURM_STEP_NODELIST", "gpu[03-05]"}, {"SLURM_STEP_ID", "0"},        {"SLURM_JOB_ID", "4711"}};

TEST(Placement, comes_from_a_step_of_slurm_with_one_launcher_on_each_node) {
    Placement placement;
    EXPECT_EQ(complete(placement, pod_with(of_step)),
              "tutti run: node 1 of 3, node 0 is gpu03, port 24711 (SLURM_STEP_NUM_NODES, SLURM_NODEID, "
              "SLURM_STEP_NODELIST, SLURM_JOB_ID)");
    EXPECT_FALSE(placement.ranks) << "the flag's, or all cores";
    Placement changing{.nodes = {"1:3", "--nnodes"}};
    EXPECT_EQ(
        complete(changing, pod_with(of_step)),
        "tutti run: node 1 of 1:3, node 0 is gpu03, port 24711 (SLURM_NODEID, SLURM_STEP_NODELIST, SLURM_JOB_ID)");
    Placement with_room{.nodes = {"2:4", "--nnodes"}};
    complete(with_room, pod_with(of_step));
    expect(with_room.node_rank, "1", "SLURM_NODEID");
    for (const char* others : {"4:5", "1:2", "2", "4"}) {
        Placement other{.nodes = {others, "--nnodes"}};
        EXPECT_EQ(complete(other, pod_with(of_step)), "") << others;
    }
    Placement flags{.nodes = {"3", "--nnodes"},
                    .node_rank = {"2", "--node-rank"},
                    .master_addr = {"x", "--master-addr"},
                    .master_port = {"7", "--master-port"}};
    EXPECT_EQ(complete(flags, pod_with(of_step)), "") << "flags win, each for itself";
}

TEST(Placement, of_launchers_that_share_a_node_of_slurm_is_a_node_of_its_own) {
    for (const auto& [variable, value] : Variables{{"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_NUM_NODES", "1"}}) {
        Variables variables = of_step;
        variables[variable] = value;
        Placement placement;
        EXPECT_EQ(complete(placement, pod_with(variables)), "") << variable;
        EXPECT_FALSE(placement.nodes || placement.master_addr);
    }
    Placement one{.nodes = {"1", "--nnodes"}};
    EXPECT_EQ(complete(one, pod_with(of_step)), "");
    EXPECT_FALSE(one.master_addr || one.node_rank);
}

}  // namespace
}  // namespace tutti::launch
