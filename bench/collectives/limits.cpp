#include "bench/collectives/bench.hpp"
#include "bench/collectives/sampling.hpp"
#include "core/pause.hpp"

#include "core/socket.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

const thread::Options limits_thread{"tutti-limits", "measuring the machine's limits"};

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// The best of several rounds: a limit is the machine's best, not its average.
double way_of_a_line() {
    if (std::thread::hardware_concurrency() < 2) return 0;
    struct alignas(128) Line {
        std::atomic<std::uint64_t> value{0};
    };
    Line there, back;
    // With and without a pause between two looks: either may be the quicker one.
    constexpr std::uint64_t turns = 20'000, rounds = 6;
    const auto await = [](const Line& line, std::uint64_t value, bool pausing) {
        while (line.value.load(std::memory_order_acquire) < value) {
            if (pausing) pause_cpu();
        }
    };
    thread::Joined other(thread::start(limits_thread, [&] {
        for (std::uint64_t i = 1; i <= turns * rounds; ++i) {
            await(there, i, (i - 1) / turns % 2 == 0);
            back.value.store(i, std::memory_order_release);
        }
    }));
    double best = 1e9;
    for (std::uint64_t round = 0, i = 1; round < rounds; ++round) {
        const auto start = Clock::now();
        for (std::uint64_t turn = 0; turn < turns; ++turn, ++i) {
            there.value.store(i, std::memory_order_release);
            await(back, i, round % 2 == 0);
        }
        best = std::min(best, seconds_since(start) * 1e9 / static_cast<double>(turns) / 2);
    }
    return best;
}

/// Of one of `cores` that all copy at once, each its own memory.
double copy_gbps(std::size_t bytes, int cores) {
    std::atomic<int> ready{0};
    std::vector<double> best(static_cast<std::size_t>(cores));
    const auto copy = [&](int core) {
        const auto from = std::make_unique<std::byte[]>(bytes), to = std::make_unique<std::byte[]>(bytes);
        std::memset(from.get(), 1, bytes);
        std::memset(to.get(), 2, bytes);
        const int turns = static_cast<int>(std::max<std::size_t>(1, (std::size_t{4} << 20) / bytes));
        ++ready;
        while (ready < cores) pause_cpu();
        for (int round = 0; round < 5; ++round) {
            const auto start = Clock::now();
            for (int turn = 0; turn < turns; ++turn) {
                std::memcpy(to.get(), from.get(), bytes);
                asm volatile("" : : "r"(to.get()) : "memory");  // so that each turn is made
            }
            double& mine = best[static_cast<std::size_t>(core)];
            mine = std::max(mine, static_cast<double>(bytes) * turns / seconds_since(start) / 1e9);
        }
    };
    std::list<thread::Joined> others;
    try {
        for (int core = 1; core < cores; ++core)
            others.emplace_back(thread::start(limits_thread, [&copy, core] { copy(core); }));
    } catch (const DistError&) {
        ready = cores;  // threads that wait for the others end
        throw;
    }
    copy(0);
    others.clear();
    return *std::ranges::min_element(best);
}

struct Pair {
    UniqueFd near, far;
};
Pair connected() {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const auto limit = Deadline::after(std::chrono::seconds(10));
    Pair pair;
    pair.near = net::connect_tcp(net::local_address(listener.get()), limit, nullptr);
    pair.far = net::accept_one(listener.get(), limit, nullptr, "measuring TCP");
    for (const UniqueFd* fd : {&pair.near, &pair.far}) ::fcntl(fd->get(), F_SETFL, 0);  // blocking calls
    return pair;
}

bool would_wait() {
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

bool move(int fd, std::byte* data, std::size_t bytes, bool send, int flags = 0) {
    while (bytes > 0) {
        const ssize_t done = send ? ::send(fd, data, bytes, MSG_NOSIGNAL) : ::recv(fd, data, bytes, flags);
        if (done < 0 && flags != 0 && would_wait()) continue;
        if (done <= 0) return false;
        data += done;
        bytes -= static_cast<std::size_t>(done);
    }
    return true;
}

// Both look for the byte again and again, or both sleep until it is there: either may be quicker.
double tcp_us() {
    const Pair pair = connected();
    constexpr int turns = 1000, rounds = 6;
    const auto flags = [](int round) { return round % 2 == 0 ? MSG_DONTWAIT : 0; };
    thread::Joined echo(thread::start(limits_thread, [&] {
        std::byte byte{};
        for (int i = 0; i < turns * rounds; ++i) {
            if (!move(pair.far.get(), &byte, 1, false, flags(i / turns)) || !move(pair.far.get(), &byte, 1, true))
                return;
        }
    }));
    double best = 1e9;
    std::byte byte{};
    for (int round = 0; round < rounds; ++round) {
        const auto start = Clock::now();
        for (int i = 0; i < turns; ++i) {
            if (!move(pair.near.get(), &byte, 1, true) || !move(pair.near.get(), &byte, 1, false, flags(round))) break;
        }
        best = std::min(best, seconds_since(start) * 1e6 / turns / 2);
    }
    return best;
}

double tcp_gbps() {
    const Pair pair = connected();
    constexpr std::size_t chunk = 1 << 20, chunks = 64, rounds = 4;
    thread::Joined sender(thread::start(limits_thread, [&] {
        const auto data = std::make_unique<std::byte[]>(chunk);
        for (std::size_t i = 0; i < chunks * rounds && move(pair.near.get(), data.get(), chunk, true); ++i) {
        }
    }));
    const auto data = std::make_unique<std::byte[]>(chunk);
    double best = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        const auto start = Clock::now();
        for (std::size_t i = 0; i < chunks && move(pair.far.get(), data.get(), chunk, false); ++i) {
        }
        best = std::max(best, static_cast<double>(chunk * chunks) / seconds_since(start) / 1e9);
    }
    return best;
}

int cores_of(int ranks) {
    return std::min(ranks, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

Limits measure_limits(bool tcp, int ranks) {
    Limits limits;
    limits.line_ns = way_of_a_line();
    const int cores = cores_of(ranks);
    for (const std::size_t kib : {16, 256, 512, 2048, 4096, 8192, 32768, 65536}) {
        limits.copies.push_back({kib << 10, copy_gbps(kib << 10, 1), copy_gbps(kib << 10, std::max(cores, 1))});
    }
    if (tcp) {
        limits.tcp_us = tcp_us();
        limits.tcp_gbps = tcp_gbps();
    }
    return limits;
}

// A limit is the best: the lesser of the times right before and right after the row, on its ranks' CPUs.
double line_ns(const Row& row, const Limits& limits) {
    if (row.line_before_ns > 0 && row.line_after_ns > 0) return std::min(row.line_before_ns, row.line_after_ns);
    return std::max(row.line_before_ns, row.line_after_ns) > 0 ? std::max(row.line_before_ns, row.line_after_ns)
                                                               : limits.line_ns;
}

std::optional<double> bound_us(const Row& row, const Limits& limits) {
    if (row.ranks < 2 || limits.copies.empty()) return std::nullopt;
    const bool tcp = row.transport == "tcp";
    const double first = tcp ? limits.tcp_us : line_ns(row, limits) / 1000;
    double gbps = tcp ? limits.tcp_gbps : 0;
    // More bytes are never copied quicker than fewer: where they were, the fewer were disturbed.
    const auto* const next = std::ranges::upper_bound(limits.copies.data(), limits.copies.data() + limits.copies.size(),
                                                      row.bytes, {}, &Limits::Copy::bytes);
    for (const auto* copy = std::max(next - 1, limits.copies.data()); !tcp && copy < &limits.copies.back() + 1; ++copy)
        gbps = std::max(gbps, copy->gbps);
    const double bound = first + (gbps > 0 ? static_cast<double>(row.bytes) * row.bus_factor / gbps / 1000 : 0);
    return bound <= row.median_us ? std::optional(bound) : std::nullopt;
}

std::optional<double> traffic_bound_us(const Row& row, const Limits& limits) {
    if (row.transport == "tcp" || limits.copies.empty()) return std::nullopt;
    // A buffer of each rank is read and written in place; a copy has two buffers on each core. The total in the caches
    // counts.
    const std::uint64_t buffers = row.bytes * static_cast<std::uint64_t>(row.ranks);
    double gbps = limits.copies.front().together_gbps;
    for (const auto& copy : limits.copies) {
        if (2 * copy.bytes * static_cast<std::uint64_t>(cores_of(row.ranks)) <= buffers) gbps = copy.together_gbps;
    }
    return static_cast<double>(row.bytes) / gbps / 1000;
}

std::string to_text(const Limits& limits) {
    std::ostringstream out;
    out << limits.line_ns << ' ' << limits.tcp_us << ' ' << limits.tcp_gbps;
    for (const auto& copy : limits.copies) out << ' ' << copy.bytes << ' ' << copy.gbps << ' ' << copy.together_gbps;
    return out.str();
}

Limits limits_from_text(const std::string& text) {
    std::istringstream in(text);
    Limits limits;
    in >> limits.line_ns >> limits.tcp_us >> limits.tcp_gbps;
    for (Limits::Copy copy; in >> copy.bytes >> copy.gbps >> copy.together_gbps;) limits.copies.push_back(copy);
    return limits;
}

}  // namespace tutti::bench
