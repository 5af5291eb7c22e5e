// A training that outlives its ranks: rank 1 is killed in step 30, a spare takes its place, and all end with the bits
// of an undisturbed run.
//
//   build/examples/resilient
//
// The program starts four ranks and a spare itself, twice: first undisturbed. Its parent keeps the store, so that it
// outlives the ranks.
#include <tutti/tutti.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int ranks = 4, steps = 60, victim = 1, last_step_of_victim = 30;

float train(const tutti::Store& store, int process, bool killed) {
    const bool is_spare = process >= ranks;
    if (is_spare)
        tutti::set_default_group(tutti::join({.place = store}));
    else
        tutti::init_process_group({.world_size = ranks, .rank = process, .store = store});
    std::vector<float> weights(1000, 1);
    tutti::resilient({.state = {weights}, .steps = steps, .place = store}, [&](tutti::Resilience& r) {
        if (killed && process == victim && r.step() == last_step_of_victim) (void)::raise(SIGKILL);
        std::vector<float> gradient = weights;
        for (float& g : gradient) g *= 0.1F * static_cast<float>(r.group().rank() + 1);
        tutti::all_reduce(gradient, {.group = r.group()});
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.01F * gradient[i];
        if (r.recoveries() > 0 && r.is_new_group() && r.group().rank() == 0)
            std::printf("step %d is done again\n", static_cast<int>(r.step()));
    });
    if (is_spare) std::printf("the spare ends as rank %d\n", tutti::get_rank());
    tutti::destroy_process_group();
    return weights[0];
}

// The result of the ranks, which is equal on all of them; -1: it is not.
float run(bool killed) {
    int ports[2], results[2];
    if (::pipe(ports) != 0 || ::pipe(results) != 0) return -1;
    std::vector<pid_t> children;
    for (int process = 0; process < (killed ? ranks + 1 : ranks); ++process) {
        const pid_t child = ::fork();
        if (child == 0) {
            std::uint16_t port = 0;
            if (::read(ports[0], &port, sizeof port) != sizeof port) ::_exit(2);
            const float result = train(tutti::TCPStore({.port = port}), process, killed);
            std::fflush(nullptr);
            ::_exit(::write(results[1], &result, sizeof result) == sizeof result ? 0 : 2);
        }
        children.push_back(child);
    }
    const tutti::TCPStore store({.is_master = true});
    const std::uint16_t port = store.port();
    for (std::size_t i = 0; i < children.size(); ++i) {
        if (::write(ports[1], &port, sizeof port) != sizeof port) return -1;
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    std::vector<float> all(ranks);
    const auto bytes = static_cast<ssize_t>(all.size() * sizeof(float));
    if (::read(results[0], all.data(), static_cast<std::size_t>(bytes)) != bytes) return -1;
    return std::memcmp(&all[0], &all[1], sizeof(float) * (ranks - 1)) == 0 ? all[0] : -1;
}

}  // namespace

int main() {
    const float undisturbed = run(false), with_a_death = run(true);
    const bool good = undisturbed > 0 && std::memcmp(&undisturbed, &with_a_death, sizeof(float)) == 0;
    std::printf("%.9g undisturbed, %.9g with a death: %s\n", undisturbed, with_a_death, good ? "equal" : "wrong");
    return good ? 0 : 1;
}
