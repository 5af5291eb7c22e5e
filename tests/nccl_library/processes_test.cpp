// Ranks as processes that have nothing in common but a unique id.
#include "children.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace tutti::test {
namespace {

struct Job {
    Handed first;
    std::atomic<int> done{0};
};

void reduce(const Library& library, ncclComm_t comm, int expected) {
    std::vector<float> values(1000, 1);
    EXPECT_EQ(NCCL_CALL(library, ncclAllReduce)(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm,
                                                nullptr),
              ncclSuccess)
        << NCCL_CALL(library, ncclGetLastError)(comm);
    EXPECT_EQ(values.back(), static_cast<float>(expected));
}

ncclComm_t join(const Library& library, int size, const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(NCCL_CALL(library, ncclCommInitRank)(&comm, size, id, rank), ncclSuccess)
        << NCCL_CALL(library, ncclGetLastError)(nullptr);
    return comm;
}

TEST(NcclProcesses, meet_by_an_id_that_rank_0_made) {
    const Shared<Job> job;
    std::vector<pid_t> children;
    for (int rank = 0; rank < 4; ++rank) {
        children.push_back(start_child({}, [&, rank](const Library& library) {
            ncclUniqueId id{};
            if (rank == 0) {
                EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
                job->first.give(id);
            }
            ncclComm_t comm = join(library, 4, job->first.wait(), rank);
            for (int i = 0; i < 20; ++i) reduce(library, comm, 4);
            EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
        }));
    }
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
}

TEST(NcclProcesses, meet_by_an_id_of_a_process_that_is_no_rank) {
    const Shared<Job> job;
    const pid_t maker = start_child({}, [&](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
        job->first.give(id);
        while (job->done < 3) ::usleep(1000);
    });
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
        children.push_back(start_child({}, [&, rank](const Library& library) {
            ncclComm_t comm = join(library, 3, job->first.wait(), rank);
            reduce(library, comm, 3);
            EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
            ++job->done;
        }));
    }
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    EXPECT_EQ(status_of(maker), 0);
}

TEST(NcclProcesses, meet_where_NCCL_COMM_ID_says) {
    const Environment environment{{"NCCL_COMM_ID", "127.0.0.1:" + std::to_string(20000 + ::getpid() % 20000)}};
    std::vector<pid_t> children;
    for (int rank = 0; rank < 2; ++rank) {
        children.push_back(start_child(environment, [rank](const Library& library) {
            ncclUniqueId id{};
            EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
            ncclComm_t comm = join(library, 2, id, rank), part = nullptr;
            reduce(library, comm, 2);
            EXPECT_EQ(NCCL_CALL(library, ncclCommSplit)(comm, 0, 0, &part, nullptr), ncclSuccess);
            reduce(library, part, 2);
            EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(part), ncclSuccess);
            EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
        }));
    }
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    in_child({{"NCCL_COMM_ID", "somewhere"}}, [](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclInvalidArgument);
        EXPECT_STREQ(NCCL_CALL(library, ncclGetLastError)(nullptr),
                     "ncclGetUniqueId: NCCL_COMM_ID=somewhere: expected ADDRESS:PORT");
    });
}

TEST(NcclProcesses, that_die_are_remote_errors_to_those_that_go_on_without_them) {
    const Shared<Job> job;
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
        children.push_back(start_child({}, [&, rank](const Library& library) {
            ncclUniqueId id{};
            if (rank == 0) {
                EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
                job->first.give(id);
            }
            ncclComm_t comm = join(library, 3, job->first.wait(), rank), rest = nullptr;
            reduce(library, comm, 3);
            if (rank == 1) ::raise(SIGKILL);
            int value = 1, excluded = 1;
            EXPECT_EQ(NCCL_CALL(library, ncclAllReduce)(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                      ncclRemoteError);
            const std::string said = NCCL_CALL(library, ncclGetLastError)(comm);
            EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
            EXPECT_EQ(NCCL_CALL(library, ncclCommShrink)(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
                      ncclSuccess)
                << NCCL_CALL(library, ncclGetLastError)(nullptr);
            if (rest == nullptr) return;
            reduce(library, rest, 2);
            EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(rest), ncclSuccess);
            EXPECT_EQ(NCCL_CALL(library, ncclCommAbort)(comm), ncclSuccess);
        }));
    }
    EXPECT_EQ(status_of(children[0]), 0);
    EXPECT_TRUE(WIFSIGNALED(status_of(children[1])));
    EXPECT_EQ(status_of(children[2]), 0);
}

TEST(NcclProcesses, end_while_a_call_is_under_way) {
    const auto begin = std::chrono::steady_clock::now();
    in_child({}, [](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
        ncclConfig_t config = initialised_config();
        config.blocking = 0;
        ncclComm_t comm = nullptr;
        EXPECT_EQ(NCCL_CALL(library, ncclCommInitRankConfig)(&comm, 2, id, 0, &config), ncclInProgress);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(NcclProcesses, find_the_interface_that_they_are_told) {
    in_child({{"NCCL_SOCKET_IFNAME", "=lo"}}, [](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSuccess);
        EXPECT_NE(std::string(id.internal, sizeof id.internal).find("127.0.0.1"), std::string::npos);
        ncclComm_t comm = join(library, 1, id, 0);
        EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
    });
    in_child({{"NCCL_SOCKET_IFNAME", "nosuch"}}, [](const Library& library) {
        ncclUniqueId id{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclInvalidUsage);
        EXPECT_STREQ(NCCL_CALL(library, ncclGetLastError)(nullptr),
                     "ncclGetUniqueId: NCCL_SOCKET_IFNAME=nosuch names no interface of this host that is up");
    });
}

// A communicator of one rank whose calls go on in the background, as ncclConfig_t's blocking = 0 asks for.
class InBackground {
 public:
    explicit InBackground(const Library& library) : library_(library) {
        ncclUniqueId id{};
        ncclConfig_t config = initialised_config();
        config.blocking = 0;
        EXPECT_EQ(NCCL_CALL(library_, ncclGetUniqueId)(&id), ncclSuccess);
        wait(NCCL_CALL(library_, ncclCommInitRankConfig)(&comm_, 1, id, 0, &config));
    }
    InBackground(const InBackground&) = delete;
    InBackground& operator=(const InBackground&) = delete;
    ~InBackground() { NCCL_CALL(library_, ncclCommAbort)(comm_); }

    void reduce() {
        NCCL_CALL(library_, ncclGroupStart)();
        NCCL_CALL(library_, ncclAllReduce)(&value_, &value_, 1, ncclInt32, ncclSum, comm_, nullptr);
        wait(NCCL_CALL(library_, ncclGroupEnd)());
    }

 private:
    void wait(ncclResult_t state) {
        while (state == ncclInProgress) NCCL_CALL(library_, ncclCommGetAsyncError)(comm_, &state);
        EXPECT_EQ(state, ncclSuccess) << NCCL_CALL(library_, ncclGetLastError)(comm_);
    }
    const Library& library_;
    ncclComm_t comm_ = nullptr;
    int value_ = 1;
};

// A child has none of the threads that may have held the library's locks. Those that work here call nothing of the
// system's that a child must not find locked, as getaddrinfo() is.
TEST(NcclProcesses, that_are_forked_while_threads_use_the_library_can_use_it) {
    in_child({}, [](const Library& library) {
        std::atomic<bool> over{false};
        std::vector<std::thread> threads;
        std::atomic<int> ready{0};
        for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] {
                InBackground busy(library);
                ++ready;
                while (!over) busy.reduce();
            });
        }
        while (ready < 2) ::usleep(1000);
        for (int i = 0; i < 100 && !testing::Test::HasFailure(); ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);
                InBackground(library).reduce();
                ::_exit(testing::Test::HasFailure() ? 1 : 0);
            }
            EXPECT_EQ(status_of(child), 0) << "child " << i;
        }
        over = true;
        for (std::thread& thread : threads) thread.join();
    });
}

/// A function of the library, and the sentence behind a code that is none of success.
ncclResult_t try_to_join(const Library& library, int size, const ncclUniqueId& id, int rank, std::string& said) {
    ncclComm_t comm = nullptr;
    const ncclResult_t code = NCCL_CALL(library, ncclCommInitRank)(&comm, size, id, rank);
    said = NCCL_CALL(library, ncclGetLastError)(nullptr);
    return code;
}

TEST(NcclProcesses, have_as_many_communicators_as_the_hard_limit_of_descriptors_allows) {
    for (const int open_beside : {0, 18, 20, 90}) {  // another system call is the first to find no descriptor each time
        constexpr int communicators = 60;
        struct Ids {
            Handed all[communicators];
        };
        const Shared<Ids> ids;
        std::vector<pid_t> children;
        for (int rank = 0; rank < 2; ++rank) {
            children.push_back(start_child({}, [&, rank](const Library& library) {
                rlimit limit{};
                ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
                limit.rlim_cur = 200;
                ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
                for (int i = 0; i < open_beside; ++i) ASSERT_GE(::open("/dev/null", O_RDONLY), 0);
                for (Handed& id : ids->all) {
                    ncclUniqueId made{};
                    if (rank == 0) {
                        ASSERT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&made), ncclSuccess);
                        id.give(made);
                    }
                    reduce(library, join(library, 2, id.wait(), rank), 2);
                }
            }));
        }
        for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    }
}

TEST(NcclProcesses, that_have_no_descriptors_say_so_with_the_code_of_their_own_system) {
    EXPECT_EQ(status_of(start_child({},
                                    [](const Library& library) {
                                        int version = 0;
                                        ASSERT_EQ(NCCL_CALL(library, ncclGetVersion)(&version), ncclSuccess);
                                        const rlimit none{8, 8};
                                        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
                                        while (::open("/dev/null", O_RDONLY) >= 0) continue;
                                        ncclUniqueId id{};
                                        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&id), ncclSystemError);
                                        const std::string said = NCCL_CALL(library, ncclGetLastError)(nullptr);
                                        EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
                                    })),
              0);
}

TEST(NcclProcesses, that_use_an_id_again_hear_of_it_within_seconds) {
    const Shared<Job> job;
    const pid_t maker = start_child({}, [&](const Library& library) {
        ncclUniqueId first{}, second{};
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&first), ncclSuccess);
        EXPECT_EQ(NCCL_CALL(library, ncclGetUniqueId)(&second), ncclSuccess);  // it keeps the server
        ncclComm_t comm = join(library, 1, first, 0);
        EXPECT_EQ(NCCL_CALL(library, ncclCommDestroy)(comm), ncclSuccess);
        std::string said;
        EXPECT_EQ(try_to_join(library, 1, first, 0, said), ncclInvalidUsage);
        EXPECT_NE(said.find("all ranks of this unique id have left"), std::string::npos) << said;
        job->first.give(second);
    });
    EXPECT_EQ(status_of(maker), 0);
    EXPECT_EQ(status_of(start_child(
                  {},
                  [&](const Library& library) {
                      const auto start = std::chrono::steady_clock::now();
                      std::string said;
                      EXPECT_EQ(try_to_join(library, 1, job->first.wait(), 0, said), ncclRemoteError);
                      EXPECT_NE(said.find("the process that made the unique id serves it no more"), std::string::npos)
                          << said;
                      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
                  })),
              0);
}

}  // namespace
}  // namespace tutti::test
