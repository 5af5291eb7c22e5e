#include "processes.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// The newest samples of a client.
constexpr std::size_t samples_max = 8192;
constexpr int clients_max = 64;
constexpr int warm_ups = 50;
constexpr auto settle_time = 500us;  // a waiter is asleep by then

struct Record {
    std::int64_t operations;
    std::int64_t start_ns;
    std::int64_t end_ns;
    std::uint32_t samples_ns[samples_max];
};

struct Board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<std::int64_t> armed;  ///< of wake: the round whose wait is about to begin
    std::atomic<std::int64_t> woken;  ///< the last round that is over
    std::atomic<std::int64_t> set_at_ns;
    std::atomic<bool> over;
    Record records[clients_max];
};

/// Shared with the children; their pages appear when they are used.
class SharedBoard {
 public:
    SharedBoard() {
        void* memory =
            ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        board_ = static_cast<Board*>(memory);  // all zero is its first state
    }
    ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    Board& operator*() const { return *board_; }

 private:
    Board* board_;
};

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

void note(Record& record, std::int64_t ns) {
    const auto at = static_cast<std::size_t>(record.operations++) % samples_max;
    record.samples_ns[at] = static_cast<std::uint32_t>(std::min<std::int64_t>(ns, UINT32_MAX));
}

void expect(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

/// One operation of a client, and its check that the server did it.
std::function<void()> operation(Work work, Client& client, int number) {
    const std::string key = "key" + std::to_string(number);
    const std::string value(value_bytes, static_cast<char>('a' + number % 26));
    client.set(key, value);
    switch (work) {
        case Work::get: return [=, &client] { expect(client.get(key) == value, "get: not the value that was set"); };
        case Work::set: return [=, &client] { client.set(key, value); };
        case Work::add:
            return [&client, last = std::int64_t{0}]() mutable {
                const std::int64_t sum = client.add("sum", 1);
                expect(std::exchange(last, sum) < sum, "add: a counter went back");
            };
        case Work::wake: break;
    }
    throw std::logic_error("no operation of one client");
}

void client_main(const Task& task, const Connect& connect, int number, Board& board) {
    const auto client = connect();
    const auto once = operation(task.work, *client, number);
    for (int i = 0; i < warm_ups; ++i) once();
    Record& record = board.records[number];
    ++board.ready;
    while (!board.go) std::this_thread::sleep_for(200us);
    const std::int64_t start = now_ns();
    const std::int64_t end = start + std::chrono::nanoseconds(task.time).count();
    std::int64_t before = start;
    while (before < end) {
        once();
        const std::int64_t after = now_ns();
        note(record, after - before);
        before = after;
    }
    if (task.work == Work::set) {
        // Some stores only send a set: the time ends when the server has done them all.
        const std::string key = "last" + std::to_string(number);
        const std::string last(value_bytes, 'z');
        client->set(key, last);
        expect(client->get(key) == last, "set: not the value that was set last");
    }
    record.start_ns = start;
    record.end_ns = now_ns();
}

std::string round_key(std::int64_t round) {
    return "wake" + std::to_string(::getppid()) + "/" + std::to_string(round);
}

void waiter_main(const Connect& connect, const std::string& prefix, Board& board) {
    const auto client = connect();
    ++board.ready;
    for (std::int64_t round = 1;; ++round) {
        const std::string key = prefix + round_key(round);
        board.armed = round;
        client->wait(key);
        const std::int64_t after = now_ns();
        if (round > 5) note(board.records[0], after - board.set_at_ns);
        board.woken = round;
        if (board.over) return;
    }
}

void setter_main(const Task& task, const Connect& connect, const std::string& prefix, Board& board) {
    const auto client = connect();
    ++board.ready;
    const auto end = Clock::now() + task.time;
    for (std::int64_t round = 1; !board.over; ++round) {
        while (board.armed < round) std::this_thread::sleep_for(50us);
        std::this_thread::sleep_for(settle_time);
        const std::string key = prefix + round_key(round);
        if (Clock::now() >= end && round > 10) board.over = true;
        board.set_at_ns = now_ns();
        client->wake(key);
        while (board.woken < round) std::this_thread::sleep_for(50us);
    }
}

Figures gather(const Board& board, int clients) {
    Figures figures;
    std::vector<double> samples;
    std::int64_t operations = 0;
    std::int64_t start = board.records[0].start_ns;
    std::int64_t end = 0;
    for (int i = 0; i < clients; ++i) {
        const Record& record = board.records[i];
        const auto count = std::min<std::size_t>(static_cast<std::size_t>(record.operations), samples_max);
        for (std::size_t at = 0; at < count; ++at) samples.push_back(record.samples_ns[at] * 1e-3);
        operations += record.operations;
        start = std::min(start, record.start_ns);
        end = std::max(end, record.end_ns);
    }
    figures.median_us = median(std::move(samples));
    if (end > start) figures.ops_per_s = static_cast<double>(operations) * 1e9 / static_cast<double>(end - start);
    return figures;
}

}  // namespace

Process::Process(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        work();
        ::_exit(0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "store_bench: %s\n", error.what());
        ::_exit(1);
    }
}

Process::~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)join();
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
Process& Process::operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
}

bool Process::join() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

std::uint16_t free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw std::runtime_error("no free port");
    }
    ::close(fd);
    return ntohs(address.sin_port);
}

Figures run_clients(const Task& task, const Connect& connect) {
    static std::int64_t runs = 0;
    const SharedBoard shared;
    Board& board = *shared;
    std::vector<Process> processes;
    if (task.work == Work::wake) {
        const std::string prefix = std::to_string(++runs) + "/";
        processes.emplace_back([&] { waiter_main(connect, prefix, board); });
        processes.emplace_back([&] { setter_main(task, connect, prefix, board); });
    } else {
        if (task.clients > clients_max) throw std::invalid_argument("too many clients");
        for (int i = 0; i < task.clients; ++i) processes.emplace_back([&, i] { client_main(task, connect, i, board); });
        const auto patience = Clock::now() + 20s;
        while (board.ready < task.clients) {
            if (Clock::now() > patience) throw std::runtime_error("not all clients could connect");
            std::this_thread::sleep_for(1ms);
        }
        board.go = true;
    }
    bool good = true;
    for (auto& process : processes) good = process.join() && good;
    if (!good) throw std::runtime_error("a client failed");
    Figures figures = gather(board, task.clients);
    if (task.work == Work::wake) figures.ops_per_s = figures.median_us > 0 ? 1e6 / figures.median_us : 0;
    return figures;
}

}  // namespace tutti::bench
