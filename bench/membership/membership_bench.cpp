// How long a change of the ranks takes, between processes of one host: a table for some numbers of ranks.
//
//   membership_bench [--rounds 5] N...
//
//   shrink    one rank is killed; from then until the last survivor has completed an all_reduce of the new group
//   grow      a newcomer waits, all ranks call grow; from the last one's call until all have completed an all_reduce
//   replace   one rank is killed while a newcomer waits, the others grow; until all have completed an all_reduce
//
// Each figure is the median of the rounds, in milliseconds, between the first and the last of them. Every round has
// processes of its own, which this program starts; they meet in a store that it serves.
#include <tutti/tutti.hpp>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A process of a round: one of `size` ranks that begin, or, as number `size`, the newcomer.
class Member {
 public:
    Member(const tutti::Store& round, std::string kind, int number, int size)
        : store_(round), kind_(std::move(kind)), number_(number), size_(size) {}

    void run() {
        tutti::ProcessGroup g = number_ == size_ ? tutti::join({.place = store_}) : changed(begin());
        std::int64_t one = 1;
        tutti::all_reduce(one, {.group = g});
        note("end");
        tutti::barrier({.group = g});
        g.destroy();
    }

 private:
    void note(const char* what) { store_.set(fmt::format("{}/{}", what, number_), fmt::format("{:.3f}", now_ms())); }
    tutti::ProcessGroup begin() {
        tutti::ProcessGroup g({.store = tutti::PrefixStore("world", store_), .rank = number_, .world_size = size_});
        while (kind_ != "shrink" && tutti::newcomers_waiting({.place = store_}) == 0)
            std::this_thread::sleep_for(milliseconds(5));
        tutti::barrier({.group = g});
        return g;
    }
    tutti::ProcessGroup changed(tutti::ProcessGroup g) {
        if (kind_ == "grow") {
            note("begin");
            return g.grow({.place = store_, .count = 1});
        }
        if (number_ == size_ - 1) {
            note("begin");
            std::raise(SIGKILL);
        }
        try {
            for (;;) {
                std::int64_t one = 1;
                tutti::all_reduce(one, {.group = g});
            }
        } catch (const tutti::PeerLost&) {
            return kind_ == "shrink" ? g.shrink() : g.grow({.place = store_});
        }
    }

    tutti::Store store_;
    std::string kind_;
    int number_, size_;
};

/// A round, from the start of its processes to the end of the last one; the time of the change.
double time_of_round(tutti::TCPStore& store, const std::string& kind, int size, int number) {
    const std::string round = fmt::format("{}/{}/{}", kind, size, number);
    const std::string port = std::to_string(store.port()), sizes = std::to_string(size);
    const int processes = kind == "shrink" ? size : size + 1;
    std::vector<pid_t> pids;
    for (int p = 0; p < processes; ++p) {
        std::string name = "membership_bench", role = "member", which = std::to_string(p), place = round, type = kind;
        std::string at = port, of = sizes;
        char* const arguments[] = {name.data(), role.data(),  at.data(), place.data(),
                                   type.data(), which.data(), of.data(), nullptr};
        pid_t pid = 0;
        if (const int error = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments, environ); error != 0)
            throw std::system_error(error, std::generic_category(), "posix_spawn");
        pids.push_back(pid);
    }
    bool right = true;
    for (const pid_t pid : pids) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        const bool is_victim = pid == pids[static_cast<std::size_t>(size) - 1] && kind != "grow";
        right &= is_victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    }
    if (!right) throw std::runtime_error(fmt::format("{} of {} ranks failed: see above", kind, size));
    tutti::PrefixStore notes(round, store);
    double first = 0, last = 0;
    for (int p = 0; p < processes; ++p) {
        const auto latest = [&](const char* what, double& time) {
            const std::string key = fmt::format("{}/{}", what, p);
            if (notes.check({key})) time = std::max(time, std::stod(notes.get(key)));
        };
        latest("begin", first);
        latest("end", last);
    }
    return last - first;
}

void measure(const std::vector<int>& sizes, int rounds) {
    tutti::TCPStore store({.is_master = true});
    fmt::print("ranks   shrink ms               grow by one ms          replace ms\n");
    for (const int size : sizes) {
        fmt::print("{:5}", size);
        for (const char* kind : {"shrink", "grow", "replace"}) {
            std::vector<double> times;
            for (int round = 0; round < rounds; ++round) times.push_back(time_of_round(store, kind, size, round));
            std::ranges::sort(times);
            fmt::print("   {:<21}",
                       fmt::format("{:.1f} ({:.1f} to {:.1f})", times[times.size() / 2], times.front(), times.back()));
            std::fflush(stdout);
        }
        fmt::print("\n");
    }
}

int run(const std::vector<std::string>& arguments) {
    if (arguments.size() == 6 && arguments[0] == "member") {
        const tutti::TCPStore store({.port = static_cast<std::uint16_t>(std::stoi(arguments[1]))});
        Member(tutti::PrefixStore(arguments[2], store), arguments[3], std::stoi(arguments[4]), std::stoi(arguments[5]))
            .run();
        return 0;
    }
    int rounds = 5;
    std::vector<int> sizes;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--rounds" && i + 1 < arguments.size())
            rounds = std::stoi(arguments[++i]);
        else
            sizes.push_back(std::stoi(arguments[i]));
    }
    if (sizes.empty() || rounds < 1 || std::ranges::min(sizes) < 2) {
        std::fprintf(stderr, "usage: membership_bench [--rounds 5] N...    numbers of ranks, 2 or more\n");
        return 2;
    }
    measure(sizes, rounds);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "membership_bench: %s\n", error.what());
        return 1;
    }
}
