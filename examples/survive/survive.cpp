// A rank dies; the others go on without it, in the same processes.
//
//   build/examples/survive
//
// The program starts its four ranks itself: a launcher would end the job when a rank dies. Its parent keeps the store,
// so that it outlives the ranks. Each step sums a value of every rank that is left; rank 1 is killed in step 30, and
// the survivors do the step again.
#include <tutti/tutti.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

namespace {

constexpr int ranks = 4, steps = 60, victim = 1, last_step_of_victim = 30;

// Returns the step with which all survivors go on: some may have finished one that others have not.
int go_on_without_the_dead(int step) {
    tutti::set_default_group(tutti::default_group().shrink());
    std::vector<int> lowest(1, step);
    tutti::all_reduce(lowest, {.op = tutti::ReduceOp::min});
    std::printf("now rank %d of %d (%s), step %d\n", tutti::get_rank(), tutti::get_world_size(),
                tutti::default_group().description().c_str(), lowest[0]);
    return lowest[0];
}

int work(const tutti::Store& store, int rank) {
    tutti::init_process_group({.world_size = ranks, .rank = rank, .store = store});
    double sum = 0;
    for (int step = 0; step < steps;) {
        if (rank == victim && step == last_step_of_victim) (void)::raise(SIGKILL);
        try {
            std::vector<double> x(1000, 1 << rank);
            tutti::all_reduce(x);
            sum = x[0];
            ++step;
        } catch (const tutti::PeerLost& error) {
            std::printf("rank %d: %s\n", tutti::get_rank(), error.what());
            step = go_on_without_the_dead(step);
        }
    }
    const bool good = tutti::get_world_size() == ranks - 1 && sum == 1 + 4 + 8;  // all but rank 1
    tutti::destroy_process_group();
    return good ? 0 : 1;
}

}  // namespace

int main() {
    int ports[2];
    if (::pipe(ports) != 0) return 1;
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = ::fork();
        if (child == 0) {
            std::uint16_t port = 0;
            if (::read(ports[0], &port, sizeof port) != sizeof port) ::_exit(2);
            const int status = work(tutti::TCPStore({.port = port}), rank);
            std::fflush(nullptr);
            ::_exit(status);
        }
        children.push_back(child);
    }
    const tutti::TCPStore store({.is_master = true});
    const std::uint16_t port = store.port();
    for (int rank = 0; rank < ranks; ++rank) {
        if (::write(ports[1], &port, sizeof port) != sizeof port) return 1;
    }
    int survivors = 0;
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++survivors;
    }
    std::printf("%d of %d ranks finished\n", survivors, ranks);
    return survivors == ranks - 1 ? 0 : 1;
}
