// Domains: how ranks find each other, several at once, the errors where they cannot.
#include "atb/ranks.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using atb::AllToAllVV2;
using atb::AllToAllVV2Param;
using Clock = std::chrono::steady_clock;

class Domains : public Atb {};

TEST_F(Domains, of_one_rank_need_nobody) {
    AllToAllVV2 operation({.rankSize = 1});
    EXPECT_EQ(sum_over(operation, 7), 7);
    AllToAllVV2 thread({.rank = 0, .rankSize = 1, .commMode = atb::COMM_MULTI_THREAD});
    EXPECT_EQ(sum_over(thread, 7), 7);
}

TEST_F(Domains, come_together_at_any_root_among_processes_that_one_has_started) {
    covers("S21-004", "S21-005", "S21-006", "S21-014");
    for (const int root : {0, 2}) {
        run_processes(3, [root](int rank) {
            if (rank == root) std::this_thread::sleep_for(200ms);  // the others are early
            AllToAllVV2 operation({.rank = rank, .rankSize = 3, .rankRoot = root});
            EXPECT_EQ(operation.group().rank(), rank);
            EXPECT_EQ(operation.group().size(), 3);
            EXPECT_EQ(sum_over(operation, rank + 1), 6);
        });
    }
}

TEST_F(Domains, come_together_between_a_process_and_its_children) {
    const pid_t parent = start_process(0, [](int) {  // the test's own process stays without threads
        const pid_t child = start_process(1, [](int rank) {
            AllToAllVV2 operation({.rank = rank, .rankSize = 2});
            EXPECT_EQ(sum_over(operation, 2), 3);
        });
        AllToAllVV2 operation({.rank = 0, .rankSize = 2});
        EXPECT_EQ(sum_over(operation, 1), 3);
        EXPECT_EQ(status_of(child), 0);
    });
    EXPECT_EQ(status_of(parent), 0);
}

TEST_F(Domains, come_together_by_the_master_of_the_environment_whoever_has_started_them) {
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
    run_processes(2, [](int rank) {
        const auto body = [](int me) {
            AllToAllVV2 operation({.rank = me, .rankSize = 2, .commDomain = "by master"});
            EXPECT_EQ(sum_over(operation, me + 1), 3);
        };
        EXPECT_EQ(status_of(start_process(rank, body)), 0);  // a grandchild: the ranks have different parents
    });
    ::unsetenv("MASTER_ADDR");
    ::unsetenv("MASTER_PORT");
}

TEST_F(Domains, come_together_by_the_secret_of_the_environment) {
    ::setenv("TUTTI_JOB_SECRET", ("a secret of process " + std::to_string(::getpid())).c_str(), 1);
    run_processes(2, [](int rank) {
        EXPECT_EQ(status_of(start_process(rank,
                                          [](int me) {
                                              AllToAllVV2 operation({.rank = me, .rankSize = 2});
                                              EXPECT_EQ(sum_over(operation, me + 1), 3);
                                          })),
                  0);
    });
    ::unsetenv("TUTTI_JOB_SECRET");
}

TEST_F(Domains, of_several_names_are_apart_and_operations_of_one_name_share_one) {
    covers("S21-011");
    run_processes(4, [](int rank) {
        AllToAllVV2 all({.rank = rank, .rankSize = 4, .commDomain = "all"});
        AllToAllVV2 half({.rank = rank % 2, .rankSize = 2, .commDomain = rank < 2 ? "low" : "high"});
        EXPECT_EQ(sum_over(all, rank), 6);
        EXPECT_EQ(sum_over(half, rank), rank < 2 ? 1 : 5);
        AllToAllVV2 again({.rank = rank, .rankSize = 4, .commDomain = "all"});
        EXPECT_EQ(again.group(), all.group());
        EXPECT_EQ(sum_over(again, rank), 6);
        const std::string text =
            message_of<atb::Error>([&] { AllToAllVV2({.rank = rank, .rankSize = 5, .commDomain = "all"}); });
        EXPECT_TRUE(has(text, "rankSize 4") && has(text, "rankSize 5") && has(text, "another commDomain")) << text;
    });
}

TEST_F(Domains, can_be_made_and_left_again_and_again) {
    run_processes(3, [](int rank) {
        for (int time = 0; time < 20; ++time) {
            AllToAllVV2 operation({.rank = rank, .rankSize = 3, .rankRoot = time % 3});
            // Otherwise nobody waits for the root, so the others may be back before its door is closed.
            if (time % 2 == 0) {
                EXPECT_EQ(sum_over(operation, rank), 3);
            }
        }
    });
    run_threads(3, [](int rank) {
        for (int time = 0; time < 20; ++time) {
            AllToAllVV2 operation({.rank = rank, .rankSize = 3, .commMode = atb::COMM_MULTI_THREAD});
            if (time % 2 == 0) {
                EXPECT_EQ(sum_over(operation, rank), 3);
            }
        }
    });
}

TEST_F(Domains, of_threads_and_of_processes_are_apart) {
    covers("S21-009", "S21-015");
    run_threads(2, [](int rank) {
        AllToAllVV2 threads({.rank = rank, .rankSize = 2, .commMode = atb::COMM_MULTI_THREAD, .commDomain = "d"});
        AllToAllVV2 other({.rank = 1 - rank, .rankSize = 2, .commMode = atb::COMM_MULTI_THREAD, .commDomain = "e"});
        AllToAllVV2 ranks_of_one_process({.rank = rank, .rankSize = 2, .commDomain = "d"});
        EXPECT_EQ(sum_over(threads, rank + 1), 3);
        EXPECT_EQ(sum_over(other, rank + 1), 3);
        EXPECT_EQ(sum_over(ranks_of_one_process, rank + 1), 3);
        EXPECT_NE(threads.group(), ranks_of_one_process.group());
    });
}

// ---- Ranks that do not fit together: an error on all of them, soon

void expect_all_refused(int size, const std::function<AllToAllVV2Param(int rank)>& param_of,
                        const std::vector<std::string>& words) {
    run_processes(size, [&](int rank) {
        const auto began = Clock::now();
        const std::string text = message_of<DistError>([&] { AllToAllVV2 operation(param_of(rank)); });
        EXPECT_LT(Clock::now() - began, 8s);
        for (const std::string& word : words) EXPECT_TRUE(has(text, word)) << "rank " << rank << ": " << text;
    });
}

TEST_F(Domains, whose_ranks_say_different_sizes_are_refused_on_all) {
    expect_all_refused(2, [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2 + rank}; }, {"2", "3"});
}

TEST_F(Domains, in_which_a_rank_is_there_twice_are_refused_on_all) {
    expect_all_refused(3, [](int rank) { return AllToAllVV2Param{.rank = std::min(rank, 1), .rankSize = 3}; },
                       {"rank 1"});
}

TEST_F(Domains, whose_ranks_say_different_roots_are_refused_on_all) {
    expect_all_refused(
        3, [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 3, .rankRoot = rank == 2 ? 1 : 0}; },
        {"rankRoot"});
}

TEST_F(Domains, in_which_two_say_that_they_are_the_root_are_refused_on_all) {
    expect_all_refused(2, [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2, .rankRoot = rank}; },
                       {"root"});
}

TEST_F(Domains, are_refused_on_all_ranks_where_one_has_parameters_that_cannot_be) {
    expect_all_refused(
        2,
        [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2, .backend = rank == 1 ? "lccl" : "hccl"}; },
        {"\"lccl\""});
    expect_all_refused(
        2, [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2, .backend = rank == 0 ? "x" : "hccl"}; },
        {"\"x\""});
}

TEST_F(Domains, of_threads_that_do_not_fit_are_refused) {
    const auto mode = atb::COMM_MULTI_THREAD;
    const std::vector<std::function<AllToAllVV2Param(int)>> ways{
        [&](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2 + rank, .commMode = mode}; },
        [&](int) { return AllToAllVV2Param{.rank = 0, .rankSize = 2, .commMode = mode}; },
        [&](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = 2, .rankRoot = rank, .commMode = mode}; }};
    for (const auto& way : ways) {
        run_threads(2, [&](int rank) {
            if (rank == 1) std::this_thread::sleep_for(100ms);
            EXPECT_NE(message_of<DistError>([&] { AllToAllVV2 operation(way(rank)); }), "");
        });
    }
    run_threads(2, [&](int rank) {  // and the next ones do
        AllToAllVV2 operation({.rank = rank, .rankSize = 2, .commMode = mode});
        EXPECT_EQ(sum_over(operation, rank + 1), 3);
    });
}

TEST_F(Domains, that_span_hosts_need_more_than_this_host_can_tell) {
    ::setenv("WORLD_SIZE", "4", 1);
    ::setenv("LOCAL_WORLD_SIZE", "2", 1);
    const std::string text = message_of<atb::Error>([] { AllToAllVV2({.rank = 0, .rankSize = 4}); });
    EXPECT_TRUE(has(text, "this host has 2 of the job's 4 ranks") && has(text, "rankTableFile")) << text;
    ::unsetenv("WORLD_SIZE");
    ::unsetenv("LOCAL_WORLD_SIZE");
}

TEST_F(Domains, wait_for_a_rank_that_does_not_come_and_say_for_which) {
    ::setenv("TUTTI_TIMEOUT_MS", "1200", 1);
    const auto missing = [](int rank, const std::string& words) {
        const std::string text = message_of<DistError>([&] { AllToAllVV2({.rank = rank, .rankSize = 2}); });
        EXPECT_TRUE(has(text, words)) << text;
    };
    EXPECT_EQ(status_of(start_process(0, [&](int rank) { missing(rank, "missing: rank 1"); })), 0);
    EXPECT_EQ(status_of(start_process(1, [&](int rank) { missing(rank, "rank 0 (rankRoot) of domain"); })), 0);
    ::unsetenv("TUTTI_TIMEOUT_MS");
}

// ---- Rank tables

class Tables : public Atb {
 protected:
    Tables() : path_(std::filesystem::temp_directory_path() / ("atb_table_" + std::to_string(::getpid()) + ".json")) {}
    ~Tables() override { std::filesystem::remove(path_); }

    std::string of(int ranks, const std::string& status = "completed", int port = 0) const {
        std::string devices;
        for (int rank = 0; rank < ranks; ++rank) {
            devices += (rank > 0 ? ", " : "") + std::string(R"({"device_id": ")") + std::to_string(rank) +
                       R"(", "device_ip": "192.0.2.1)" + std::to_string(rank) + R"(", "rank_id": ")" +
                       std::to_string(rank) + "\"" +
                       (port > 0 ? R"(, "host_port": ")" + std::to_string(port + rank) + "\"" : "") + "}";
        }
        return R"({"status": ")" + status + R"(", "version": "1.0", "server_count": "1",
                  "server_list": [{"server_id": "node_0", "device": [)" +
               devices + "]}]}";
    }
    void write(const std::string& text) const {
        const std::filesystem::path part = path_.string() + ".part";
        std::ofstream(part) << text;
        std::filesystem::rename(part, path_);
    }
    AllToAllVV2Param param(int rank, const std::string& domain = {}) const {
        return {.rank = rank, .rankTableFile = path_.string(), .commDomain = domain};
    }
    std::filesystem::path path_;
};

TEST_F(Tables, make_a_domain_of_the_ranks_that_they_list) {
    covers("S21-010");
    for (const int port : {0, static_cast<int>(free_port())}) {
        write(of(3, "completed", port));
        run_processes(3, [&](int rank) {
            AllToAllVV2 operation(param(rank));
            EXPECT_EQ(operation.group().size(), 3);
            EXPECT_EQ(sum_over(operation, rank + 1), 6);
            AllToAllVV2 named(param(rank, "second"));
            EXPECT_EQ(sum_over(named, rank + 1), 6);
        });
    }
    write(of(2));
    run_threads(2, [&](int rank) {
        for (int time = 0; time < 5; ++time) {  // left and made again, at the same port
            AllToAllVV2 operation(param(rank));
            EXPECT_EQ(sum_over(operation, rank + 1), 3);
        }
    });
}

TEST_F(Tables, that_are_not_complete_are_waited_for) {
    write(of(2, "initializing"));
    const pid_t first = start_process(0, [&](int rank) {
        AllToAllVV2 operation(param(rank));
        EXPECT_EQ(sum_over(operation, rank + 1), 3);
    });
    const pid_t second = start_process(1, [&](int rank) {
        std::this_thread::sleep_for(300ms);
        write(of(2));
        AllToAllVV2 operation(param(rank));
        EXPECT_EQ(sum_over(operation, rank + 1), 3);
    });
    EXPECT_EQ(status_of(first), 0);
    EXPECT_EQ(status_of(second), 0);
}

TEST_F(Tables, and_doors_are_not_waited_for_in_silence) {
    write(of(2, "initializing"));
    ::setenv("TUTTI_TIMEOUT_MS", "6000", 1);
    const auto log_of = [&](const char* name) { return path_.string() + name; };
    const auto wait = [&](const char* name, const AllToAllVV2Param& p) {
        return start_process(0, [&](int) {
            ASSERT_NE(std::freopen(log_of(name).c_str(), "w", stderr), nullptr);
            EXPECT_THROW(AllToAllVV2 operation(p), Timeout);
        });
    };
    const std::pair<const char*, std::vector<std::string>> waits[]{
        {".table", {"still waiting after 5 s for rank table", path_.string(), "initializing"}},
        {".door", {"still waiting after 5 s for rank 0 (rankRoot) of domain \"nobody's\"", "MASTER_ADDR"}}};
    const pid_t table = wait(".table", param(0));
    const pid_t door = wait(".door", {.rank = 1, .rankSize = 2, .commDomain = "nobody's"});
    EXPECT_EQ(status_of(table), 0);
    EXPECT_EQ(status_of(door), 0);
    for (const auto& [name, words] : waits) {
        std::ifstream log(log_of(name));
        const std::string text(std::istreambuf_iterator<char>(log), {});
        for (const std::string& word : words) EXPECT_TRUE(has(text, word)) << text;
        std::filesystem::remove(log_of(name));
    }
    ::unsetenv("TUTTI_TIMEOUT_MS");
}

TEST_F(Tables, refuse_what_does_not_fit_to_them) {
    write(of(2));
    const auto refused = [&](AllToAllVV2Param p, const std::string& words) {
        const std::string text = message_of<atb::Error>([&] { AllToAllVV2 operation(p); });
        EXPECT_TRUE(has(text, words) && has(text, path_.string())) << text;
    };
    refused(param(2), "lists ranks 0 to 1");
    refused(param(-1), "lists ranks 0 to 1");
    AllToAllVV2Param other_size = param(0);
    other_size.rankSize = 3;
    refused(other_size, "rankSize is 3");
    write(R"({"server_list": [{"server_id": "a.invalid", "device": [{"device_id": 0, "rank_id": 0}]},
                              {"server_id": "b.invalid", "device": [{"device_id": 0, "rank_id": 1}]}]})");
    refused(param(0), "/server_list/0/server_id: \"a.invalid\" is no address");
    write(R"({"server_list": [{"server_id": "a", "host_ip": "192.0.2.77", "device": [{"device_id": 0, "rank_id": 0}]},
                              {"server_id": "b", "host_ip": "192.0.2.78", "device": [{"device_id": 0, "rank_id": 1}]}]})");
    refused(param(0), "/server_list/0/host_ip: rank 0 runs here, and \"192.0.2.77\" is no address of this host");
}

}  // namespace
}  // namespace tutti::test
