#include "tune/measures.hpp"

#include "core/assert.hpp"
#include "core/huge_pages.hpp"
#include "core/log.hpp"
#include "core/pause.hpp"
#include "core/socket.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>

namespace tutti::tune {
namespace {

double us_since(Instant start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void stay_on(int cpu) {
    TUTTI_ASSERT(cpu >= 0 && cpu < CPU_SETSIZE);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);
}

struct alignas(128) Line {
    std::atomic<std::uint32_t> value{0};
};

// False: time is up, or the other thread has ended.
bool spin_until(const Line& line, std::uint32_t value, const std::atomic<bool>& over, const Deadline& limit) {
    for (std::uint32_t looks = 1; line.value.load(std::memory_order_acquire) != value; ++looks) {
        if (looks % 256 == 0 && (over || limit.expired())) return false;
        pause_cpu();
    }
    return true;
}

// Two threads, which end when `over` is set or their time is up. False: the machine has none for them, and nothing was
// measured.
bool both(std::atomic<bool>& over, const std::function<void()>& first, const std::function<void()>& second) {
    TUTTI_ASSERT(first != nullptr && second != nullptr);
    const thread::Options options{"tutti-measure", "measuring this machine"};
    try {
        const thread::Joined one(thread::start(options, first));
        try {
            const thread::Joined two(thread::start(options, second));
        } catch (const DistBackendError&) {
            over = true;
            throw;
        }
        return true;
    } catch (const DistBackendError& error) {
        TUTTI_DEBUG("{}", error.what());
        return false;
    }
}

// Two threads pass a counter to and fro. `wait` returns false when time is up. Returns how long one way took in each
// round for which there was time.
template <class Wait, class Set>
std::vector<double> one_way_us(const Deadline& limit, std::uint32_t turns, const std::vector<int>& cpus, Wait wait,
                               Set set) {
    Line there, back;
    TUTTI_ASSERT(turns > 0);
    std::atomic<bool> over{false};
    std::vector<double> rounds;
    const auto echo = [&] {
        if (cpus.size() > 1) stay_on(cpus[1]);
        for (std::uint32_t i = 1; wait(there, i, over, limit); ++i) set(back, i);
        over = true;
    };
    const auto lead = [&] {
        if (cpus.size() > 1) stay_on(cpus[0]);
        for (std::uint32_t i = 1; !over && !limit.expired();) {
            const Instant start = Clock::now();
            const std::uint32_t end = i + turns;
            for (; i < end; ++i) {
                set(there, i);
                if (!wait(back, i, over, limit)) break;
            }
            if (i < end) break;
            rounds.push_back(us_since(start) / turns / 2);
        }
        over = true;
        set(there, 0);  // a thread that sleeps there has another look
    };
    if (!both(over, echo, lead)) rounds.clear();
    return rounds;
}

double middle_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

// The quickest of as many calls as there is time for; `call` returns false where it cannot.
template <class Call>
double quickest_us(const Deadline& limit, Call call) {
    double best = 0;
    while (!limit.expired()) {
        const Instant start = Clock::now();
        if (!call()) return 0;
        const double us = us_since(start);
        if (best == 0 || us < best) best = us;
    }
    return best;
}

// Two buffers of `bytes`, in memory already.
class Buffers {
 public:
    explicit Buffers(std::size_t bytes) : bytes_(bytes) {
        TUTTI_ASSERT(bytes > 0);
        void* memory =
            ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory != MAP_FAILED) from = static_cast<std::byte*>(memory), to = from + bytes;
    }
    ~Buffers() {
        if (from != nullptr) ::munmap(from, 2 * bytes_);
    }
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    std::byte* from = nullptr;
    std::byte* to = nullptr;

 private:
    std::size_t bytes_;
};

// The best of as many copies as there is time for; `copy` returns false where it cannot.
double best_gbps(const Deadline& limit, std::byte* to, std::byte* from, std::size_t bytes, Copy copy) {
    TUTTI_ASSERT(to != nullptr && from != nullptr && bytes > 0 && copy != nullptr);
    double best = 0;
    while (!limit.expired()) {
        const Instant start = Clock::now();
        if (!copy(to, from, bytes)) return 0;
        asm volatile("" : : "r"(to) : "memory");  // so that each copy is made
        best = std::max(best, static_cast<double>(bytes) / us_since(start) / 1e3);
    }
    return best;
}

struct Pair {
    UniqueFd near, far;
};

Pair connected(const Deadline& limit) {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    Pair pair;
    pair.near = net::connect_tcp(net::local_address(listener.get()), limit, nullptr);
    pair.far = net::accept_one(listener.get(), limit, nullptr, "measuring TCP");
    TUTTI_ASSERT(pair.near && pair.far);
    for (const UniqueFd* fd : {&pair.near, &pair.far}) {
        ::fcntl(fd->get(), F_SETFL, 0);  // blocking calls, for a moment at most
        const timeval moment{0, 2000};
        ::setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
        ::setsockopt(fd->get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
    }
    return pair;
}

// Takes a byte as a waiting rank does: it looks again and again, and after the byte once more, as a stream is read
// until it is empty. A thread that sleeps in recv() would have to be woken, which takes several times as long as the
// message. Returns the microseconds from the look that found it; none came: 0.
double take_byte(const UniqueFd& from, bool alone, const Deadline& limit) {
    std::byte byte{};
    for (;;) {
        const Instant before = Clock::now();
        const ssize_t got = ::recv(from.get(), &byte, 1, MSG_DONTWAIT);
        if (got == 1) {
            std::byte more{};
            return ::recv(from.get(), &more, 1, MSG_DONTWAIT) < 0 ? us_since(before) : 0;
        }
        if (got == 0 || errno != EAGAIN || limit.expired(before)) return 0;
        if (!alone) ::sched_yield();
    }
}

}  // namespace

std::vector<int> allowed_cpus() {
    cpu_set_t set;
    std::vector<int> cpus;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
    return cpus;
}

Deadline piece_of(const Deadline& whole, std::chrono::microseconds share) {
    TUTTI_ASSERT(share.count() >= 0);
    const Deadline piece = Deadline::after(share);
    return piece.when() < whole.when() ? piece : whole;
}

double line_us(const Deadline& limit, const std::vector<int>& cpus) {
    if (cpus.size() < 2) return 0;
    const auto rounds = one_way_us(limit, 100, cpus, spin_until, [](Line& line, std::uint32_t value) {
        line.value.store(value, std::memory_order_release);
    });
    return rounds.empty() ? 0 : std::ranges::min(rounds);  // interruptions only ever add
}

double wake_us(const Deadline& limit, const std::vector<int>& cpus) {
    const auto wait = [](Line& line, std::uint32_t value, const std::atomic<bool>& over, const Deadline& until) {
        for (;;) {
            const std::uint32_t seen = line.value.load(std::memory_order_acquire);
            if (seen == value) return true;
            if (over || until.expired()) return false;
            const timespec nap{0, 1'000'000};
            ::syscall(SYS_futex, &line.value, FUTEX_WAIT_PRIVATE, seen, &nap, nullptr, 0);
        }
    };
    const auto rounds = one_way_us(limit, 10, cpus, wait, [](Line& line, std::uint32_t value) {
        line.value.store(value, std::memory_order_release);
        ::syscall(SYS_futex, &line.value, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    });
    return middle_of(rounds);  // in the best ones no thread slept: each came before the other had gone to sleep
}

double yield_us(const Deadline& limit) {
    return quickest_us(limit, [] { return ::sched_yield() == 0; });
}

double copy_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes, Copy copy) {
    const Buffers buffers(bytes);  // which takes time itself
    return buffers.from == nullptr ? 0 : best_gbps(piece_of(whole, share), buffers.to, buffers.from, bytes, copy);
}

bool copy_here(std::byte* to, std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    return true;
}

bool copy_by_kernel(std::byte* to, std::byte* from, std::size_t bytes) {
    TUTTI_ASSERT(to != nullptr && from != nullptr);
    const iovec local{to, bytes}, remote{from, bytes};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

double pull_us(const Deadline& limit) {
    std::array<std::byte, 2> bytes{};
    return quickest_us(limit, [&] { return copy_by_kernel(&bytes[0], &bytes[1], 1); });
}

double copy_huge_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes) {
    constexpr std::size_t page = HugePages::page_bytes;
    TUTTI_ASSERT(bytes > 0);
    const std::size_t one = (bytes + page - 1) / page * page, both = 2 * one + page;
    void* memory = ::mmap(nullptr, both, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    (void)!::madvise(memory, both, MADV_HUGEPAGE);
    auto* const from = static_cast<std::byte*>(memory) + (page - reinterpret_cast<std::uintptr_t>(memory) % page);
    TUTTI_ASSERT(reinterpret_cast<std::uintptr_t>(from) % page == 0);
    std::memset(from, 1, bytes);
    std::memset(from + one, 1, bytes);
    const double best = best_gbps(piece_of(whole, share), from + one, from, bytes, copy_by_kernel);
    ::munmap(memory, both);
    return best;
}

Handover handover(const Deadline& limit, const std::vector<int>& cpus, Copy copy) {
    constexpr std::size_t bytes = std::size_t{64} << 10;
    Handover best;
    constexpr std::uint32_t places = 16;
    TUTTI_ASSERT(copy != nullptr);
    const Buffers own(bytes), others(bytes), area(places * bytes / 2);
    if (own.from == nullptr || others.from == nullptr || area.from == nullptr || cpus.size() < 2) return best;
    const auto place = [&](std::uint32_t turn) { return area.from + turn % places * bytes; };
    Line written, taken;
    std::atomic<bool> over{false};
    double writing_us = 0, best_us = 0;
    const auto write = [&] {
        stay_on(cpus[1]);
        for (std::uint32_t i = 0; spin_until(taken, i, over, limit); ++i) {
            const Instant start = Clock::now();
            copy(place(i), others.from, bytes);
            writing_us = us_since(start);
            written.value.store(i + 1, std::memory_order_release);
        }
        over = true;
    };
    const auto read = [&] {
        stay_on(cpus[0]);
        for (std::uint32_t i = 1; spin_until(written, i, over, limit) && !limit.expired(); ++i) {
            const Instant start = Clock::now();
            std::memcpy(own.to, place(i - 1), bytes);
            asm volatile("" : : "r"(own.to) : "memory");
            const double reading_us = us_since(start);
            // The first turns bring the buffers into the caches.
            if (i > places && (best_us == 0 || writing_us + reading_us < best_us)) {
                best_us = writing_us + reading_us;
                best = {static_cast<double>(bytes) / best_us / 1e3, static_cast<double>(bytes) / reading_us / 1e3};
            }
            taken.value.store(i, std::memory_order_release);
        }
        over = true;
    };
    return both(over, write, read) ? best : Handover{};
}

Messages short_messages(const Deadline& limit, const std::vector<int>& cpus) {
    Messages best;
    const Pair pair = connected(limit);
    std::atomic<bool> over{false};
    const bool alone = cpus.size() > 1;
    const std::byte byte{};
    const auto echo = [&] {
        if (alone) stay_on(cpus[1]);
        while (take_byte(pair.far, alone, limit) > 0 && ::send(pair.far.get(), &byte, 1, MSG_NOSIGNAL) == 1) {
        }
    };
    const auto lead = [&] {
        if (alone) stay_on(cpus[0]);
        while (!limit.expired()) {
            constexpr int turns = 10;
            double sending_us = 0, receiving_us = 0;
            const Instant start = Clock::now();
            int turn = 0;
            for (; turn < turns && !limit.expired(); ++turn) {
                const Instant before = Clock::now();
                if (::send(pair.near.get(), &byte, 1, MSG_NOSIGNAL) != 1) break;
                sending_us += us_since(before);
                // Only the call that finds the byte counts: waiting for it is no work.
                const double taking_us = take_byte(pair.near, alone, limit);
                if (taking_us <= 0) break;
                receiving_us += taking_us;
            }
            if (turn < turns) break;
            const double us = us_since(start) / turns / 2;
            if (best.us == 0 || us < best.us) best = {us, sending_us / turns, receiving_us / turns};
        }
        ::shutdown(pair.near.get(), SHUT_RDWR);
    };
    return both(over, echo, lead) ? best : Messages{};
}

double tcp_gbps(const Deadline& limit, const std::vector<int>& cpus) {
    constexpr std::size_t chunk = std::size_t{64} << 10;
    const Pair pair = connected(limit);
    std::atomic<bool> over{false};
    const auto send = [&] {
        if (cpus.size() > 1) stay_on(cpus[1]);
        const std::vector<std::byte> data(chunk);
        while (!over && ::send(pair.far.get(), data.data(), chunk, MSG_NOSIGNAL) > 0) {
        }
    };
    std::vector<double> rounds;
    const auto receive = [&] {
        if (cpus.size() > 1) stay_on(cpus[0]);
        std::vector<std::byte> data(chunk);
        std::size_t got = 0;
        Instant start = Clock::now();
        while (!limit.expired()) {
            const ssize_t count = ::recv(pair.near.get(), data.data(), chunk, 0);
            if (count <= 0) break;
            got += static_cast<std::size_t>(count);
            if (got < 8 * chunk) continue;
            rounds.push_back(static_cast<double>(got) / us_since(start) / 1e3);
            got = 0;
            start = Clock::now();
        }
        over = true;
        ::shutdown(pair.near.get(), SHUT_RDWR);
    };
    if (!both(over, send, receive)) return 0;
    return middle_of(rounds);  // in the best ones the socket's buffer was full before
}

}  // namespace tutti::tune
