// One process of the drill of memberships: a training that outlives its ranks (tutti/resilient.hpp), with values that
// anyone can compute anew from the sizes that the group has had.
//
//   drill_member store PORT                             serves the store in which all meet, until it is killed
//   drill_member HOST PORT END_MS TIMEOUT_MS MOST       a rank, if RANK and WORLD_SIZE are there, else a newcomer
//
// END_MS: when the training is to end, in milliseconds of the system's clock. TIMEOUT_MS: of each operation. MOST:
// ranks. It says "member STEP SIZE" when it is a member of a group, for the first time and again after each change;
// "out TEXT" when the others go on without it, upon which it joins anew; at last "done STEPS DIGEST", or "idle" if no
// group has taken it in, or "wrong TEXT".
#include <tutti/tutti.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using Values = std::vector<std::uint64_t>;

void say(const std::string& text) {
    std::string line = text;
    std::ranges::replace(line, '\n', '|');
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

/// What all ranks add up in a step, and what becomes of the weights.
std::uint64_t share(std::uint64_t weight, std::int64_t step, int rank, std::size_t i) {
    return weight * 31 + static_cast<std::uint64_t>(step) * 1009 + static_cast<std::uint64_t>(rank) * 7 + i;
}
void update(Values& weights, const Values& sum) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] * 6364136223846793005ULL + sum[i];
}

/// The state of the training: the weights, and since which step the group has had which size.
class Training {
 public:
    std::vector<tutti::TensorView> state() { return {weights_, since_, sizes_, changes_}; }

    void step(tutti::Resilience& r) {
        const int size = r.group().size(), rank = r.group().rank();
        if (r.is_new_group()) say("member " + std::to_string(r.step()) + " " + std::to_string(size));
        if (changes_ == 0 || sizes_[at(changes_ - 1)] != size) {
            if (at(changes_) == since_.size())
                throw std::runtime_error("the group has changed too often for this drill");
            since_[at(changes_)] = r.step();
            sizes_[at(changes_)] = size;
            ++changes_;
        }
        Values sum(weights_.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = share(weights_[i], r.step(), rank, i);
        if (r.step() % 7 == 0) {
            Values all(sum.size() * static_cast<std::size_t>(size));
            tutti::all_gather_into_tensor(all, sum, {.group = r.group()});
            for (std::size_t i = 0; i < sum.size(); ++i) {
                sum[i] = 0;
                for (std::size_t k = i; k < all.size(); k += sum.size()) sum[i] += all[k];
            }
        } else {
            tutti::async::all_reduce(sum, {.group = r.group()}).wait();
        }
        update(weights_, sum);
        std::this_thread::sleep_for(milliseconds(1));
    }

    /// "done STEPS DIGEST". Throws std::runtime_error for wrong weights.
    std::string verdict(std::int64_t steps) const {
        Values expected(weights_.size(), 1), sum(expected.size());
        std::int64_t change = 0;
        for (std::int64_t step = 0; step < steps; ++step) {
            while (change + 1 < changes_ && since_[at(change + 1)] <= step) ++change;
            for (std::size_t i = 0; i < sum.size(); ++i) {
                sum[i] = 0;
                for (int rank = 0; rank < sizes_[at(change)]; ++rank) sum[i] += share(expected[i], step, rank, i);
            }
            update(expected, sum);
        }
        if (expected != weights_) throw std::runtime_error("weights after " + std::to_string(steps) + " steps");
        return "done " + std::to_string(steps) + " " + std::to_string(weights_.back());
    }

 private:
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

    Values weights_ = Values(300, 1);
    std::vector<std::int64_t> since_ = std::vector<std::int64_t>(500), sizes_ = since_;
    std::int64_t changes_ = 0;
};

class Process {
 public:
    Process(const char* host, const char* port, const char* end, const char* timeout, const char* most)
        : store_(tutti::TCPStore({.host = host, .port = static_cast<std::uint16_t>(std::atoi(port))})),
          end_(milliseconds(std::atoll(end))),
          timeout_(std::atoi(timeout)),
          most_(std::atoi(most)) {}

    int run() {
        tutti::ProcessGroup group;
        if (const char* rank = std::getenv("RANK")) {
            group = tutti::ProcessGroup({.store = tutti::PrefixStore("world", store_),
                                         .rank = std::atoi(rank),
                                         .world_size = std::atoi(std::getenv("WORLD_SIZE")),
                                         .timeout = timeout_});
        }
        while (group || join(group)) {
            if (train(group)) return 0;
            group = {};
            if (left() < milliseconds(500)) break;  // too late to come back
        }
        say("idle");
        return 0;
    }

 private:
    milliseconds left() const {
        return std::chrono::duration_cast<milliseconds>(end_ - std::chrono::system_clock::now().time_since_epoch());
    }
    // False: no group has taken this process in.
    bool join(tutti::ProcessGroup& group) {
        say("waits");
        while (left() > milliseconds(0)) {
            try {
                group = tutti::join({.place = store_, .timeout = std::max(left(), milliseconds(1))});
                return true;
            } catch (const tutti::InvalidArgument&) {
                throw;
            } catch (const tutti::DistStoreError& error) {
                say(std::string("lost the store: ") + error.what());
                return false;
            } catch (const tutti::DistError& error) {
                say(std::string("again: ") + error.what());  // the group that took it in could not be made
            }
        }
        return false;
    }
    // False: the others go on without this process.
    bool train(const tutti::ProcessGroup& group) {
        Training training;
        std::int64_t steps = 0;
        try {
            tutti::resilient({.state = training.state(),
                              .steps = 1'000'000,
                              .group = group,
                              .place = store_,
                              .wait = milliseconds(700),
                              .max_size = most_,
                              .max_failures = 20,
                              .patience = milliseconds(1500)},
                             [&](tutti::Resilience& r) {
                                 training.step(r);
                                 steps = r.step() + 1;
                                 if (left() <= milliseconds(0)) r.stop();
                             });
        } catch (const tutti::InvalidArgument&) {
            throw;
        } catch (const tutti::CollectiveMismatch&) {
            throw;
        } catch (const tutti::DistError& error) {
            say(std::string("out ") + error.what());
            return false;
        }
        say(training.verdict(steps));
        return true;
    }

    tutti::Store store_;
    milliseconds end_, timeout_;
    int most_;
};

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv, argv + argc);
    try {
        if (argc == 3 && arguments[1] == "store") {
            const tutti::TCPStore store({.host = "0.0.0.0",
                                         .port = static_cast<std::uint16_t>(std::atoi(argv[2])),
                                         .is_master = true,
                                         .wait_for_workers = false});
            say("serves");
            for (;;) ::pause();
        }
        if (argc == 6) return Process(argv[1], argv[2], argv[3], argv[4], argv[5]).run();
        std::fprintf(stderr, "usage: drill_member store PORT | drill_member HOST PORT END_MS TIMEOUT_MS MOST\n");
        return 2;
    } catch (const std::exception& error) {
        say("wrong " + std::string(error.what()));
        return 9;
    }
}
