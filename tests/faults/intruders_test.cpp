// PendingConnections at the doors: garbage and half-open connections to every port of a working world.
#include "core/unique_fd.hpp"
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <map>
#include <random>
#include <sstream>

namespace tutti::test {
namespace {

class Intruders : public LeftoverCheck {};

// The TCP ports on which a process listens: its sockets, looked up in the kernel's table.
std::set<std::uint16_t> listening_ports(pid_t pid) {
    std::set<std::string> inodes;
    std::error_code ignored;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
        const std::string target = std::filesystem::read_symlink(fd.path(), ignored).string();
        if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
    std::set<std::uint16_t> ports;
    std::ifstream table("/proc/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::istringstream fields(line);
        std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
        if (state == "0A" && inodes.contains(inode)) {
            EXPECT_TRUE(local.starts_with("0100007F:")) << "listens beyond loopback: " << local;
            ports.insert(static_cast<std::uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
        }
    }
    return ports;
}

std::size_t resident_bytes(pid_t pid) {
    std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
    std::size_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * 4096;
}
std::ptrdiff_t descriptors(pid_t pid) {
    std::error_code ignored;
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd", ignored);
    return std::distance(begin(all), end(all));
}

UniqueFd connect_to(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return fd;
}

// Works until a key appears in the store: sums that are checked, over connections that were there before the attack,
// and at the end one message between two ranks that never had a connection.
void work_until_told(const RankProcess& me, std::size_t count) {
    const ProcessGroup g = me.join(TransportKind::tcp);
    std::vector<float> x(count);
    std::vector<int> stop(1);
    me.report("working");
    Store store = me.store();
    me.report_end_of([&] {
        for (int round = 0;; ++round) {
            std::fill(x.begin(), x.end(), static_cast<float>(me.rank() + round % 100));
            all_reduce(x, {.group = g});
            const float expected = 3.0F + 3.0F * static_cast<float>(round % 100);
            for (const float value : x) {
                if (value != expected) throw std::runtime_error("a wrong sum");
            }
            if (me.rank() == 0) stop[0] = store.check({"stop"}) ? 1 : 0;
            broadcast(stop, {.src = 0, .group = g});
            if (stop[0] == 1) break;
        }
        const int other = 3 - me.rank();
        std::vector<int> hello(1, me.rank());
        if (me.rank() != 0) {
            Work sent = isend(hello, other, {.tag = 9, .group = g});
            std::vector<int> got(1);
            recv(got, {.src = other, .tag = 9, .group = g});
            sent.wait();
            if (got[0] != other) throw std::runtime_error("a wrong message");
        }
        barrier({.group = g});
    });
}

TEST_F(Intruders, with_ten_thousand_random_byte_strings_do_not_disturb_a_working_world) {
    Job job(3, [](const RankProcess& me) { work_until_told(me, 5000); });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::vector<std::uint16_t> doors;
    std::vector<std::size_t> memory;
    std::vector<std::ptrdiff_t> open;
    for (int rank = 0; rank < 3; ++rank) {
        const auto ports = listening_ports(job.pid(rank));
        EXPECT_EQ(ports.size(), 1U) << "rank " << rank << " listens for its peers, and for nobody else";
        doors.insert(doors.end(), ports.begin(), ports.end());
        memory.push_back(resident_bytes(job.pid(rank)));
        open.push_back(descriptors(job.pid(rank)));
    }
    std::mt19937 random(20);
    int connected = 0;
    for (int i = 0; i < 10'000; ++i) {
        const UniqueFd fd = connect_to(doors[static_cast<std::size_t>(i) % doors.size()]);
        if (!fd) continue;
        ++connected;
        std::string bytes(random() % 300, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        if (i % 4 == 0 && bytes.size() > 8) bytes.replace(0, 8, "tutti\1\0\0", 8);  // looks like one of ours
        (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (i % 16 == 0) (void)!::recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    }
    EXPECT_GT(connected, 9900);
    for (int rank = 0; rank < 3; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        EXPECT_LT(resident_bytes(job.pid(rank)), memory[r] + (16U << 20)) << "rank " << rank;
    }
    job.store().set("stop", "1");
    for (const Report& report : job.collect(3)) EXPECT_STREQ(report.text, "done") << "rank " << report.rank;
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.wait(rank), 0) << "rank " << rank;
}

TEST_F(Intruders, that_open_connections_and_say_nothing_are_thrown_out_and_hold_nobody_up) {
    rlimit descriptors_allowed{};
    ::getrlimit(RLIMIT_NOFILE, &descriptors_allowed);
    descriptors_allowed.rlim_cur = std::min<rlim_t>(descriptors_allowed.rlim_max, 4096);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &descriptors_allowed), 0);
    ::setenv("TUTTI_HANDSHAKE_TIMEOUT_MS", "1000", 1);
    Job job(3, [](const RankProcess& me) { work_until_told(me, 200); });
    ::unsetenv("TUTTI_HANDSHAKE_TIMEOUT_MS");
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::vector<UniqueFd> silent;
    std::map<int, std::ptrdiff_t> open;
    for (int rank = 0; rank < 3; ++rank) {
        open[rank] = descriptors(job.pid(rank));
        for (const std::uint16_t port : listening_ports(job.pid(rank))) {
            for (int i = 0; i < 400; ++i) {  // more than are kept: the oldest go
                silent.push_back(connect_to(port));
                if (i % 2 == 0) (void)!::send(silent.back().get(), "tutti", 5, MSG_NOSIGNAL);  // half a greeting
            }
        }
    }
    // The message between ranks 1 and 2 at the end needs a new connection while the silent ones are still there.
    job.store().set("stop", "1");
    const auto start = SteadyClock::now();
    for (const Report& report : job.collect(3)) {
        EXPECT_STREQ(report.text, "done") << "rank " << report.rank;
        EXPECT_LT(report.at - start, 800ms) << "it waited until the silent ones were gone";
    }
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.wait(rank), 0) << "rank " << rank;
}

TEST_F(Intruders, that_stay_silent_lose_their_connection_after_the_handshake_time) {
    ::setenv("TUTTI_HANDSHAKE_TIMEOUT_MS", "300", 1);
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(TransportKind::tcp);
        barrier({.group = g});
        me.report("idle");
        me.store().backend()->wait(std::vector<std::string>{"stop"}, 20s);
        barrier({.group = g});
    });
    ::unsetenv("TUTTI_HANDSHAKE_TIMEOUT_MS");
    ASSERT_EQ(job.collect(2).size(), 2U);
    const std::ptrdiff_t before = descriptors(job.pid(0));
    std::vector<UniqueFd> silent;
    for (const std::uint16_t port : listening_ports(job.pid(0))) {
        for (int i = 0; i < 50; ++i) silent.push_back(connect_to(port));
    }
    std::this_thread::sleep_for(900ms);
    // Of at least fifty none is left; the rank has perhaps opened a few of its own, to wait for the store.
    EXPECT_LT(descriptors(job.pid(0)), before + 10);
    for (const UniqueFd& fd : silent) {
        char byte = 0;
        EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), 0) << "still open";
    }
    job.store().set("stop", "1");
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job.wait(rank), 0) << "rank " << rank;
}

}  // namespace
}  // namespace tutti::test
