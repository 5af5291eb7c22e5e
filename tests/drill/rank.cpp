// One rank of the drill: random operations with checked results, the same on all ranks of a seed.
//
//   drill_rank SEED SECONDS TIMEOUT_MS [leave N | exit N | clone N]
//
// SECONDS: for how long rank 0 goes on. TIMEOUT_MS: of each operation. `leave N`, `exit N`: this rank destroys its
// groups, or exits with status 7, instead of its operation number N. Rank, world size and address come from the
// environment.
//
// It says "running" when all ranks are there, and at last "done", or "error CODE PEER TEXT" (on one line), or "wrong
// TEXT".
#include <tutti/tutti.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<std::int64_t>;

struct WrongValue : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Drill {
 public:
    Drill(std::uint64_t seed, std::chrono::milliseconds timeout)
        : random_(seed), world_(tutti::default_group()), rank_(world_.rank()), size_(world_.size()) {
        own_random_.seed(seed + static_cast<std::uint64_t>(rank_) + 1);
        std::vector<std::vector<int>> halves(2);
        for (int rank = 0; rank < size_; ++rank) halves[static_cast<std::size_t>(rank % 2)].push_back(rank);
        if (halves[1].empty()) halves.pop_back();
        parts_ = tutti::new_groups(halves, {.timeout = timeout});
    }

    /// Operation number `number`, on all ranks.
    void operate(int number) {
        number_ = number;
        // Some are late, as ranks are.
        if (own_random_() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(own_random_() % 300));
        const bool in_part = random_() % 4 == 0;
        group_ = in_part ? parts_[static_cast<std::size_t>(rank_ % 2)] : world_;
        ranks_ = tutti::get_process_group_ranks(group_);
        const double exponent = static_cast<double>(random_() % 1000) / 1000;
        count_ = static_cast<std::size_t>(std::pow(200'000.0, exponent));
        root_ = static_cast<int>(random_() % ranks_.size());
        static constexpr std::array operations{&Drill::all_reduce,     &Drill::broadcast,      &Drill::all_gather,
                                               &Drill::reduce_scatter, &Drill::all_to_all,     &Drill::reduce,
                                               &Drill::neighbours,     &Drill::asynchronously, &Drill::barrier};
        (this->*operations[random_() % operations.size()])();
    }

    /// Whether rank 0 wants to go on.
    bool goes_on(bool wanted) {
        Values answer{wanted ? 1 : 0};
        tutti::broadcast(answer, {.src = 0});
        return answer.front() == 1;
    }

 private:
    std::int64_t value(int rank, std::size_t i) const {
        return (static_cast<std::int64_t>(i) * 31 + rank * 1009 + number_ * 7) % 10'007;
    }
    Values values(int rank, std::size_t begin, std::size_t count) const {
        Values all(count);
        for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, begin + i);
        return all;
    }
    Values sums(std::size_t begin, std::size_t count) const {
        Values all(count);
        for (const int rank : ranks_) {
            for (std::size_t i = 0; i < count; ++i) all[i] += value(rank, begin + i);
        }
        return all;
    }
    void expect(const char* what, const Values& got, const Values& expected) const {
        const auto [at, other] = std::ranges::mismatch(got, expected);
        if (at == got.end()) return;
        throw WrongValue(std::string(what) + ", operation " + std::to_string(number_) + ", element " +
                         std::to_string(at - got.begin()) + " of " + std::to_string(got.size()) + ": " +
                         std::to_string(*at) + ", not " + std::to_string(*other));
    }
    int index() const { return static_cast<int>(std::ranges::find(ranks_, rank_) - ranks_.begin()); }
    int root() const { return ranks_[static_cast<std::size_t>(root_)]; }

    void all_reduce() {
        Values x = values(rank_, 0, count_);
        tutti::all_reduce(x, {.group = group_});
        expect("all_reduce", x, sums(0, count_));
    }
    void asynchronously() {
        Values x = values(rank_, 0, count_), y = values(rank_, 5, count_);
        tutti::Work first = tutti::async::all_reduce(x, {.group = group_});
        tutti::Work second = tutti::async::all_reduce(y, {.group = group_});
        second.wait();
        first.wait();
        expect("all_reduce", x, sums(0, count_));
        expect("all_reduce", y, sums(5, count_));
    }
    void broadcast() {
        Values x = values(rank_, 0, count_);
        tutti::broadcast(x, {.src = root(), .group = group_});
        expect("broadcast", x, values(root(), 0, count_));
    }
    void reduce() {
        Values x = values(rank_, 0, count_);
        tutti::reduce(x, {.dst = root(), .group = group_});
        if (rank_ == root()) expect("reduce", x, sums(0, count_));
    }
    void all_gather() {
        const Values x = values(rank_, 0, count_);
        Values all(count_ * ranks_.size()), expected;
        tutti::all_gather_into_tensor(all, x, {.group = group_});
        for (const int rank : ranks_) std::ranges::copy(values(rank, 0, count_), std::back_inserter(expected));
        expect("all_gather", all, expected);
    }
    void reduce_scatter() {
        const Values x = values(rank_, 0, count_ * ranks_.size());
        Values part(count_);
        tutti::reduce_scatter_tensor(part, x, {.group = group_});
        expect("reduce_scatter", part, sums(static_cast<std::size_t>(index()) * count_, count_));
    }
    void all_to_all() {
        const std::size_t count = count_ / ranks_.size() + 1;
        const Values x = values(rank_, 0, count * ranks_.size());
        Values all(x.size()), expected;
        tutti::all_to_all_single(all, x, {.group = group_});
        const std::size_t begin = static_cast<std::size_t>(index()) * count;
        for (const int rank : ranks_) std::ranges::copy(values(rank, begin, count), std::back_inserter(expected));
        expect("all_to_all", all, expected);
    }
    void neighbours() {
        const std::size_t size = ranks_.size(), own = static_cast<std::size_t>(index());
        const int next = ranks_[(own + 1) % size], previous = ranks_[(own + size - 1) % size];
        if (next == rank_) return;
        Values in(count_);
        const Values out = values(rank_, 0, count_);
        tutti::Work receive = tutti::irecv(in, {.src = previous, .tag = number_, .group = group_});
        tutti::Work send = tutti::isend(out, next, {.tag = number_, .group = group_});
        receive.wait();
        send.wait();
        expect("message", in, values(previous, 0, count_));
    }
    void barrier() { tutti::barrier({.group = group_}); }

    std::mt19937_64 random_, own_random_;
    tutti::ProcessGroup world_, group_;
    std::vector<tutti::ProcessGroup> parts_;
    int rank_, size_, number_ = 0, root_ = 0;
    std::vector<int> ranks_;
    std::size_t count_ = 0;
};

void say(const std::string& text) {
    std::string line = text;
    std::ranges::replace(line, '\n', '|');
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

void run(std::uint64_t seed, double seconds, std::chrono::milliseconds timeout, const std::string& end, int end_at) {
    Drill drill(seed, timeout);
    tutti::barrier();
    say("running");
    const auto start = Clock::now();
    for (int number = 0;; ++number) {
        if (number == end_at && end == "exit") {
            say("exits");
            ::_exit(7);
        }
        if (number == end_at && end == "leave") {
            say("leaves");
            tutti::destroy_process_group();
            return;
        }
        if (number == end_at && end == "clone") {
            if (::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
                const timespec length{6, 0};
                ::syscall(SYS_nanosleep, &length, nullptr);
                ::syscall(SYS_exit_group, 0);
            }
            say("clones");
        }
        drill.operate(number);
        const std::chrono::duration<double> elapsed = Clock::now() - start;
        if (number % 8 == 7 && !drill.goes_on(elapsed.count() < seconds)) break;
    }
    tutti::destroy_process_group();
    say("done");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4 && argc != 6) {
        std::fprintf(stderr, "usage: drill_rank SEED SECONDS TIMEOUT_MS [leave N | exit N | clone N]\n");
        return 2;
    }
    try {
        const std::chrono::milliseconds timeout(std::atoi(argv[3]));
        tutti::init_process_group({.timeout = timeout});
        run(std::strtoull(argv[1], nullptr, 10), std::atof(argv[2]), timeout, argc > 4 ? argv[4] : "",
            argc > 5 ? std::atoi(argv[5]) : -1);
    } catch (const WrongValue& error) {
        say("wrong " + std::string(error.what()));
        return 9;
    } catch (const tutti::DistError& error) {
        say("error " + std::string(tutti::to_string(error.code())) + " " + std::to_string(error.context().peer) + " " +
            error.what());
        return 3;
    } catch (const std::exception& error) {
        say("wrong " + std::string(error.what()));
        return 9;
    }
}
