// Ranks that may not do what others may: read their neighbours' memory, or make shared memory. The job goes another
// way.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <fstream>
#include <map>
#include <stdexcept>

namespace tutti::test {
namespace {

using Sandboxes = LeftoverCheck;

constexpr int sandbox_ranks = 3;

/// What a rank does before it joins.
using Prepare = std::function<void(int rank)>;
/// This machine does not allow what the test needs.
struct NotHere : std::runtime_error {
    using std::runtime_error::runtime_error;
};
constexpr int not_here = -2, is_log = -3;  // codes of reports

void write_file(const char* path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    if (!file) throw NotHere(std::string("cannot write ") + path);
}

// Of its own, as a rootless container gives one to what it starts.
void enter_user_namespace() {
    const auto uid = ::geteuid(), gid = ::getegid();
    if (::unshare(CLONE_NEWUSER) != 0) throw NotHere("user namespaces are not allowed here");
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", fmt::format("{} {} 1", uid, uid));
    write_file("/proc/self/gid_map", fmt::format("{} {} 1", gid, gid));
}

// As a user's process, whom a process that may not be dumped is closed to.
void lose_privileges() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    if (::syscall(SYS_capset, &header, none) != 0) throw NotHere("capabilities cannot be given up here");
}

// The kernel refuses this call from now on.
void forbid(long call) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        throw NotHere("system calls cannot be filtered here");
}

void set_limit(__rlimit_resource what, rlim_t most) {
    const rlimit both{most, most};
    if (::setrlimit(what, &both) != 0) throw NotHere("this limit cannot be set here");
}

void expect_all(const std::vector<int>& values, int expected, const char* what, std::size_t count) {
    for (const int value : values) {
        if (value != expected)
            throw std::runtime_error(fmt::format("{} of {}: {}, expected {}", what, count, value, expected));
    }
}

// Every way of moving data, with short and long operands.
void check_every_collective(const RankProcess& me, const ProcessGroup& g) {
    const int n = me.size(), next = (me.rank() + 1) % n, before = (me.rank() + n - 1) % n;
    for (const std::size_t count : {10U, 50'000U, 300'000U}) {
        for (int root = 0; root < n; ++root) {
            std::vector<int> x(count, me.rank() == root ? 7 + root : 0);
            broadcast(x, {.src = root, .group = g});
            expect_all(x, 7 + root, "broadcast", count);
            std::vector<std::vector<int>> parts(static_cast<std::size_t>(n), std::vector<int>(count));
            TensorList into;
            ConstTensorList from;
            for (auto& part : parts) into.push_back(part);
            x.assign(count, me.rank());
            gather(x, me.rank() == root ? into : TensorList{}, {.dst = root, .group = g});
            for (int r = 0; r < n && me.rank() == root; ++r)
                expect_all(parts[static_cast<std::size_t>(r)], r, "gather", count);
            for (int r = 0; r < n; ++r) parts[static_cast<std::size_t>(r)].assign(count, 10 + r);
            for (auto& part : parts) from.push_back(part);
            scatter(x, me.rank() == root ? from : ConstTensorList{}, {.src = root, .group = g});
            expect_all(x, 10 + me.rank(), "scatter", count);
        }
        std::vector<int> x(count, me.rank() + 1), all(count * static_cast<std::size_t>(n));
        all_gather_into_tensor(all, x, {.group = g});
        for (int r = 0; r < n; ++r) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(count) * r;
            expect_all({begin, begin + static_cast<std::ptrdiff_t>(count)}, r + 1, "all_gather", count);
        }
        reduce_scatter_tensor(x, std::vector<int>(all.size(), me.rank()), {.group = g});
        expect_all(x, n * (n - 1) / 2, "reduce_scatter", count);
        all_reduce(x, {.group = g});
        expect_all(x, n * n * (n - 1) / 2, "all_reduce", count);
        std::vector<int> exchanged(all.size());
        all_to_all_single(exchanged, std::vector<int>(all.size(), me.rank()), {.group = g});
        expect_all({exchanged.begin(), exchanged.begin() + static_cast<std::ptrdiff_t>(count)}, 0, "all_to_all", count);
        const std::vector<int> sent(count, me.rank());
        Work send = isend(sent, next, {.group = g});
        recv(x, {.src = before, .group = g});
        send.wait();
        expect_all(x, before, "recv", count);
    }
}

struct Outcome {
    int code = -100;
    std::string text, log;
};

/// How each rank's job ends: 0 if every collective was right.
std::map<int, Outcome> outcomes_of(const Prepare& prepare, TransportKind transport = TransportKind::automatic) {
    Job job(sandbox_ranks, [&](const RankProcess& me) {
        int log[2];
        if (::pipe2(log, O_NONBLOCK | O_CLOEXEC) != 0 || ::dup2(log[1], STDERR_FILENO) < 0)
            throw std::runtime_error("no pipe for the log");
        try {
            prepare(me.rank());
        } catch (const NotHere& error) {
            me.report(error.what(), not_here);
            return;
        }
        me.report_end_of([&] {
            ProcessGroup g = me.join(transport);
            check_every_collective(me, g);
            g.destroy();
        });
        char said[sizeof(Report::text)] = {};
        (void)!::read(log[0], said, sizeof said - 1);
        me.report(said, is_log);
    });
    std::map<int, Outcome> ends;
    for (const Report& r : job.collect(2 * sandbox_ranks, 60s)) {
        Outcome& end = ends[r.rank];
        if (r.code == is_log) {
            end.log = r.text;
            continue;
        }
        end.code = r.code;
        end.text = r.text;
    }
    for (int rank = 0; rank < sandbox_ranks; ++rank) {
        const int status = job.wait(rank);
        EXPECT_FALSE(WIFSIGNALED(status)) << "rank " << rank << " was ended by signal " << WTERMSIG(status);
    }
    return ends;
}

std::string reason_to_skip(const std::map<int, Outcome>& ends) {
    for (const auto& [rank, end] : ends) {
        if (end.code == not_here) return end.text;
    }
    return {};
}

#define EXPECT_RIGHT(ends)                                                                                  \
    do {                                                                                                    \
        if (const std::string why = reason_to_skip(ends); !why.empty()) GTEST_SKIP() << why;                \
        EXPECT_EQ((ends).size(), std::size_t{sandbox_ranks});                                               \
        for (const auto& [rank, end] : ends) EXPECT_EQ(end.code, 0) << "rank " << rank << ": " << end.text; \
    } while (false)

// ---- Memory that may not be read

TEST_F(Sandboxes, ranks_in_user_namespaces_of_their_own_are_right) {
    EXPECT_RIGHT(outcomes_of([](int) { enter_user_namespace(); }));
}

TEST_F(Sandboxes, one_rank_in_a_user_namespace_of_its_own_is_right) {
    for (const int other : {0, 1}) {
        EXPECT_RIGHT(outcomes_of([other](int rank) {
            if (rank == other) enter_user_namespace();
            lose_privileges();
        }));
    }
}

TEST_F(Sandboxes, one_rank_that_may_not_be_dumped_is_right) {
    for (const int closed : {0, 2}) {
        EXPECT_RIGHT(outcomes_of([closed](int rank) {
            lose_privileges();
            ::prctl(PR_SET_DUMPABLE, rank == closed ? 0 : 1);
        }));
    }
}

TEST_F(Sandboxes, a_rank_that_may_not_read_write_or_watch_others_is_right) {
    const std::pair<int, long> bounds[] = {
        {0, SYS_process_vm_readv}, {1, SYS_process_vm_readv}, {1, SYS_process_vm_writev}, {2, SYS_pidfd_open}};
    for (const auto& [bound, call] : bounds) {
        EXPECT_RIGHT(outcomes_of([bound, call](int rank) {
            if (rank == bound) forbid(call);
        }));
    }
}

// ---- Shared memory that cannot be had

void expect_one_line(const std::map<int, Outcome>& ends, const std::string& reason) {
    for (const auto& [rank, end] : ends) {
        const auto line = end.log.find("exchange everything over TCP");
        EXPECT_EQ(line != std::string::npos, rank == 0) << "rank " << rank << " says: " << end.log;
        if (rank != 0) continue;
        EXPECT_NE(end.log.find(reason), std::string::npos) << end.log;
        EXPECT_EQ(end.log.find("over TCP", line + 30), std::string::npos) << "more than one line: " << end.log;
    }
}

void expect_it_goes_on_over_tcp(const Prepare& prepare, const std::string& reason) {
    const auto ends = outcomes_of(prepare);
    EXPECT_RIGHT(ends);
    expect_one_line(ends, reason);
}

TEST_F(Sandboxes, under_a_limit_for_files_a_job_goes_on_over_tcp) {
    const auto limited = [](int) { set_limit(RLIMIT_FSIZE, 1'024'000'000); };
    expect_it_goes_on_over_tcp(limited, "limit for the size of files (ulimit -f) is 1024000000 bytes");
}

TEST_F(Sandboxes, a_limit_of_one_rank_leads_all_over_tcp) {
    for (const int limited : {0, 2}) {
        const auto prepare = [limited](int rank) {
            if (rank == limited) set_limit(RLIMIT_FSIZE, 0);
        };
        expect_it_goes_on_over_tcp(prepare, fmt::format("rank {} (", limited));
    }
}

TEST_F(Sandboxes, where_no_memory_can_be_shared_a_job_goes_on_over_tcp) {
    for (const int bound : {0, 1}) {
        const auto prepare = [bound](int rank) {
            if (rank == bound) forbid(SYS_memfd_create);
        };
        expect_it_goes_on_over_tcp(prepare, "memfd_create: Operation not permitted");
    }
    const auto no_length = [](int rank) {
        if (rank == 0) forbid(SYS_ftruncate);
    };
    expect_it_goes_on_over_tcp(no_length, "Operation not permitted");
}

TEST_F(Sandboxes, a_rank_that_is_asked_for_tcp_leads_all_over_tcp) {
    const auto asked = [](int rank) {
        if (rank == 1) ::setenv("TUTTI_TRANSPORT", "tcp", 1);
    };
    expect_it_goes_on_over_tcp(asked, "its transport is tcp");
}

TEST_F(Sandboxes, who_asks_for_shared_memory_is_told_why_there_is_none) {
    for (const int limited : {0, 2}) {
        const auto ends = outcomes_of(
            [limited](int rank) {
                if (rank == limited) set_limit(RLIMIT_FSIZE, 1'024'000'000);
            },
            TransportKind::shm);
        EXPECT_EQ(ends.size(), std::size_t{sandbox_ranks});
        for (const auto& [rank, end] : ends) {
            EXPECT_EQ(end.code, static_cast<int>(ErrorCode::backend)) << "rank " << rank << ": " << end.text;
            for (const std::string& part : {std::string("transport shm"), fmt::format("rank {} (", limited),
                                            std::string("(ulimit -f) is 1024000000 bytes")})
                EXPECT_NE(end.text.find(part), std::string::npos) << "rank " << rank << ": " << end.text;
        }
    }
}

}  // namespace
}  // namespace tutti::test
