// What DistributedDataParallel logs: the documentation's program, run by processes of their own in the documentation's
// environment, and compared with its lines.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <regex>
#include <sstream>

#ifndef TUTTI_THREADS_ONLY  // processes only

namespace tutti::test {
namespace {

using Environment = std::map<std::string, std::string>;
using Lines = std::vector<std::string>;

// Not by itself: the tests below run it as the ranks of a job. Linear(10, 10) and Linear(10, 1) without bias.
TEST(DdpChild, DISABLED_trains_two_linear_layers) {
    init_process_group();
    {
        std::vector<float> a(100), b(10), da(100, 1), db(10, 1);
        DistributedDataParallel ddp(
            {{"a.weight", view(a.data(), {10, 10}), view(da.data(), {10, 10})},
             {"b.weight", view(b.data(), {1, 10}), view(db.data(), {1, 10})}},
            {.find_unused_parameters = true, .module_name = "TwoLinLayerNet", .device_ids = {get_rank()}});
        for (int iteration = 1; iteration <= 20; ++iteration) {
            ddp.forward();
            ddp.prepare_for_backward();
            ddp.ready("b.weight");
            if (iteration != 10) ddp.ready("a.weight");
            ddp.finish();
        }
    }
    destroy_process_group();
}

struct Child {
    pid_t pid = 0;
    int output = -1;
};

Child start_rank(int rank, std::uint16_t port, const Environment& environment) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        for (const char* name : {"TUTTI_SPEC_DIR", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "TUTTI_LOG_LEVEL",
                                 "TUTTI_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES"})
            ::unsetenv(name);
        for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
        ::setenv("MASTER_ADDR", "localhost", 1);
        ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
        ::setenv("WORLD_SIZE", "2", 1);
        ::setenv("RANK", std::to_string(rank).c_str(), 1);
        ::execl("/proc/self/exe", "conformance", "--gtest_also_run_disabled_tests",
                "--gtest_filter=DdpChild.DISABLED_trains_two_linear_layers", static_cast<char*>(nullptr));
        ::_exit(127);
    }
    ::close(ends[1]);
    return {pid, ends[0]};
}

/// What each of two ranks has written to stderr.
std::array<Lines, 2> run_job(const Environment& environment) {
    const std::uint16_t port = free_port();
    std::array<Child, 2> children{start_rank(0, port, environment), start_rank(1, port, environment)};
    std::array<Lines, 2> all;
    for (std::size_t rank = 0; rank < 2; ++rank) {
        std::string text;
        std::array<char, 4096> part;
        for (ssize_t n = 0; (n = ::read(children[rank].output, part.data(), part.size())) > 0;)
            text.append(part.data(), static_cast<std::size_t>(n));
        ::close(children[rank].output);
        int status = 0;
        ::waitpid(children[rank].pid, &status, 0);
        EXPECT_EQ(status, 0) << text;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);) all[rank].push_back(line);
    }
    return all;
}

const std::string header = R"(^I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [a-z_]+\.cpp:\d+\] )";

/// Where the line stands that `pattern` describes, from `begin` on; the number of lines: nowhere.
std::size_t find(const Lines& lines, const std::string& pattern, std::size_t begin = 0) {
    const std::regex wanted(pattern);
    std::size_t i = begin;
    while (i < lines.size() && !std::regex_search(lines[i], wanted)) ++i;
    return i;
}

/// The block of a rank, of which it must have one.
Lines block_of(const Lines& lines, int rank) {
    const std::string first = header + R"(\[Rank )" + std::to_string(rank) + R"(\]: DDP Initialized with:$)";
    const std::size_t at = find(lines, first);
    EXPECT_LT(at, lines.size());
    EXPECT_EQ(find(lines, "DDP Initialized", at + 1), lines.size()) << "once";
    Lines block;
    for (std::size_t i = at + 1; i < std::min(at + 27, lines.size()); ++i) block.push_back(lines[i]);
    return block;
}

// 26 lines; those that differ from the documentation's have this job's values, and the level is the true one.
Lines expected_block(int rank, std::map<std::string, std::string> values) {
    const std::vector<std::pair<std::string, std::string>> documented{
        {"broadcast_buffers", "1"},
        {"bucket_cap_bytes", "26214400"},
        {"find_unused_parameters", "1"},
        {"gradient_as_bucket_view", "0"},
        {"is_multi_device_module", "0"},
        {"iteration", "0"},
        {"num_parameter_tensors", "2"},
        {"output_device", std::to_string(rank)},
        {"rank", std::to_string(rank)},
        {"total_parameter_size_bytes", "440"},
        {"world_size", "2"},
        {"backend_name", "native"},
        {"bucket_sizes", "440"},
        {"cuda_visible_devices", "N/A"},
        {"device_ids", std::to_string(rank)},
        {"dtypes", "float"},
        {"master_addr", "localhost"},
        {"master_port", ""},
        {"module_name", "TwoLinLayerNet"},
        {"nccl_async_error_handling", "N/A"},
        {"nccl_blocking_wait", "N/A"},
        {"nccl_debug", "N/A"},
        {"nccl_ib_timeout", "N/A"},
        {"nccl_nthreads", "N/A"},
        {"nccl_socket_ifname", "N/A"},
        {"torch_distributed_debug", "DETAIL"},
    };
    Lines lines;
    for (const auto& [key, value] : documented)
        lines.push_back(key + ": " + (values.contains(key) ? values[key] : value));
    return lines;
}

/// The port is the test's choice.
std::string port_in(const Lines& block) {
    return block.size() > 17 ? block[17].substr(block[17].find(": ") + 2) : "";
}

TEST(DdpLogs, are_torchs_at_the_level_detail) {
    covers("S16-012", "S16-013", "S16-026", "S16-027", "S16-028", "S3-016", "S3-017", "S3-019", "S3-020", "S23-001",
           "E-231", "A-33");
    const auto ranks =
        run_job({{"TORCH_CPP_LOG_LEVEL", "INFO"}, {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}, {"NCCL_DEBUG", "WARN"}});
    for (int rank = 0; rank < 2; ++rank) {
        const Lines& lines = ranks[static_cast<std::size_t>(rank)];
        const Lines block = block_of(lines, rank);
        EXPECT_TRUE(std::regex_match(port_in(block), std::regex(R"(\d+)"))) << port_in(block);
        EXPECT_EQ(block, expected_block(rank, {{"nccl_debug", "WARN"}, {"master_port", port_in(block)}}));

        // The first ten of twenty iterations; in the tenth nobody uses a.weight.
        const std::string first = header + R"(\[Rank )" + std::to_string(rank) +
                                  R"( / 2\] Training TwoLinLayerNet unused_parameter_size=(\d+)$)";
        int blocks = 0;
        for (std::size_t at = find(lines, first); at < lines.size(); at = find(lines, first, at + 1)) {
            std::smatch match;
            ASSERT_TRUE(std::regex_search(lines[at], match, std::regex(first)));
            EXPECT_EQ(match[1], ++blocks == 10 ? "400" : "0");
            ASSERT_LT(at + 4, lines.size());
            std::vector<long> times;
            for (const char* what :
                 {"forward compute", "backward compute", "backward comm.", "backward comm/comp overlap"}) {
                const std::string begin = std::string(" Avg ") + what + " time: ";
                const std::string& line = lines[at + 1 + times.size()];
                ASSERT_TRUE(line.starts_with(begin)) << line;
                ASSERT_TRUE(std::regex_match(line.substr(begin.size()), std::regex(R"(\d+)"))) << line;
                times.push_back(std::stol(line.substr(begin.size())));
                EXPECT_LT(times.back(), 10'000'000'000L) << "nanoseconds";
            }
            EXPECT_GT(times[2], 0) << "communication takes time";
            EXPECT_LE(times[3], times[2]);
        }
        EXPECT_EQ(blocks, 10);
    }
}

TEST(DdpLogs, have_the_block_alone_at_the_level_info_with_the_values_of_the_environment) {
    covers("S16-011", "S16-013", "S3-019", "S3-020");
    const auto ranks = run_job({{"TORCH_CPP_LOG_LEVEL", "INFO"},
                                {"TORCH_DISTRIBUTED_DEBUG", "INFO"},
                                {"CUDA_VISIBLE_DEVICES", "0,3"},
                                {"NCCL_ASYNC_ERROR_HANDLING", "1"},
                                {"NCCL_BLOCKING_WAIT", "2"},
                                {"TORCH_NCCL_BLOCKING_WAIT", "0"},
                                {"NCCL_DEBUG", "INFO"},
                                {"NCCL_IB_TIMEOUT", "22"},
                                {"NCCL_NTHREADS", "256"},
                                {"NCCL_SOCKET_IFNAME", "eth0"}});
    for (int rank = 0; rank < 2; ++rank) {
        const Lines& lines = ranks[static_cast<std::size_t>(rank)];
        const Lines block = block_of(lines, rank);
        EXPECT_EQ(block, expected_block(rank, {{"master_port", port_in(block)},
                                               {"cuda_visible_devices", "0,3"},
                                               {"nccl_async_error_handling", "1"},
                                               {"nccl_blocking_wait", "0"},
                                               {"nccl_debug", "INFO"},
                                               {"nccl_ib_timeout", "22"},
                                               {"nccl_nthreads", "256"},
                                               {"nccl_socket_ifname", "eth0"},
                                               {"torch_distributed_debug", "INFO"}}));
        EXPECT_EQ(find(lines, "Training"), lines.size());
    }
}

TEST(DdpLogs, need_both_levels) {
    covers("S16-010", "S16-013");
    for (const Environment& environment :
         {Environment{{"TORCH_CPP_LOG_LEVEL", "INFO"}, {"TORCH_DISTRIBUTED_DEBUG", "OFF"}},
          Environment{{"TORCH_CPP_LOG_LEVEL", "WARNING"}, {"TORCH_DISTRIBUTED_DEBUG", "INFO"}}}) {
        for (const Lines& lines : run_job(environment)) EXPECT_EQ(find(lines, "DDP|Training"), lines.size());
    }
}

}  // namespace
}  // namespace tutti::test

#endif
