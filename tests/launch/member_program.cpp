// A job whose ranks change, for replace_test.py, standby_test.py, members_test.sh and engines/slurm_test.py.
//
//   member_program STEPS MODE [RANK@STEP...]   kills itself with SIGKILL where it is this rank in this step of the
//   first
//                                              attempt, unless it came later
//   MODE   repair: after an error all ranks take newcomers in; never: they end with the error; leave: the others end
//          well; take: the others go on, and take in those that wait between two steps, until the file STOP_FILE
//          exists; train: a tutti::resilient of which any number of ranks makes the same weight, until STOP_FILE exists
#include <tutti/newcomers.hpp>
#include <tutti/tutti.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

void say(const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
}

// Among those that wait may be some that have just died.
tutti::ProcessGroup grown(tutti::ProcessGroup& g, const tutti::Store& store) {
    for (int turn = 0;; ++turn) {
        try {
            return g.grow({.place = store});
        } catch (const tutti::DistError&) {
            if (turn == 2) throw;
        }
    }
}

bool is_told_to_stop() {
    return ::access(variable("STOP_FILE").c_str(), F_OK) == 0;
}

// The ranks share 24 samples out among them. Without STOP_FILE the steps take no time.
void train(const tutti::ProcessGroup& group, const tutti::Store& store, std::int64_t steps) {
    std::array<std::int64_t, 2> state{1, 0};  // the weight, and how many steps have made it
    const auto last = tutti::resilient(
        {.state = {state}, .steps = steps, .group = group, .place = store, .wait = 500ms}, [&](tutti::Resilience& r) {
            if (r.is_new_group())
                say(fmt::format("trains as rank {} of {} from step {}", r.group().rank(), r.group().size(), r.step()));
            std::array<std::int64_t, 1> sum{0};
            for (std::int64_t sample = r.group().rank(); sample < 24; sample += r.group().size())
                sum[0] += (state[0] + sample) * (r.step() + sample) % 1009;
            tutti::all_reduce(sum, {.group = r.group()});
            state = {(state[0] * 31 + sum[0]) % 1'000'003, r.step() + 1};
            if (variable("STOP_FILE").empty()) return;
            if (is_told_to_stop()) r.stop();
            std::this_thread::sleep_for(10ms);
        });
    say(fmt::format("trained {} steps to {} as rank {} of {}", state[1], state[0], last.rank(), last.size()));
}

}  // namespace

int main(int argc, char** argv) {
    const std::int64_t steps = std::atoi(argv[1]);
    const std::string mode = argv[2];
    const bool is_newcomer = variable("TUTTI_NEWCOMER") == "1";
    const bool is_first = variable("TORCHELASTIC_RESTART_COUNT") == "0";
    tutti::Store store =
        tutti::TCPStore({.host = variable("MASTER_ADDR"),
                         .port = static_cast<std::uint16_t>(std::atoi(variable("TUTTI_STORE_PORT").c_str()))});
    store = tutti::PrefixStore("attempt/" + variable("TORCHELASTIC_RESTART_COUNT"), store);
    const auto say_who = [] {
        say(fmt::format("pid {} slot {} rank '{}' of '{}' replaces '{}'", ::getpid(), variable("LOCAL_RANK"),
                        variable("RANK"), variable("WORLD_SIZE"), variable("TUTTI_REPLACES")));
    };
    tutti::ProcessGroup g;
    std::array<std::int64_t, 1> step{0};
    if (is_newcomer) {
        say_who();
        g = tutti::join({.place = store});
        if (mode == "train") return train(g, store, steps), 0;
        g.adopt({step});
        say(fmt::format("joined as rank {} of {} at step {}", g.rank(), g.size(), step[0]));
    } else {
        g = tutti::ProcessGroup({.store = store,
                                 .rank = std::atoi(variable("RANK").c_str()),
                                 .world_size = std::atoi(variable("WORLD_SIZE").c_str()),
                                 .timeout = 10s});
        say_who();
        if (mode == "train") return train(g, store, steps), 0;
    }
    while (step[0] < steps) {
        for (int death = 3; death < argc; ++death) {
            const bool now = argv[death] == fmt::format("{}@{}", g.rank(), step[0]);
            if (now && !is_newcomer && is_first) std::raise(SIGKILL);
        }
        try {
            std::array<std::int64_t, 3> sums{1, 0, 0};
            if (mode == "take" && g.rank() == 0) {
                sums[1] = tutti::newcomers_waiting({.place = store});
                sums[2] = is_told_to_stop() ? 1 : 0;
            }
            tutti::all_reduce(sums, {.group = g});
            if (sums[0] != g.size()) return 9;
            ++step[0];
            if (sums[2] > 0) break;
            if (sums[1] > 0) {
                g = g.grow({.place = store});
                g.adopt({step});
                say(fmt::format("goes on as rank {} of {}", g.rank(), g.size()));
            }
        } catch (const tutti::DistError& error) {
            if (mode == "never") throw;
            if (mode == "leave") break;
            g = mode == "take" ? g.shrink() : grown(g, store);
            g.adopt({step});
            say(fmt::format("goes on as rank {} of {}", g.rank(), g.size()));
        }
        std::this_thread::sleep_for(10ms);
    }
    if (mode != "leave") tutti::barrier({.group = g});
    say(fmt::format("done as rank {} of {} at step {}", g.rank(), g.size(), step[0]));
}
