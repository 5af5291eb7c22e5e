// Short calls between two ranks, driven by one thread, for counting their instructions: each measured call finds what
// it needs in place, so that nothing waits and the count does not vary. See short_path_test.py.
#include <tutti/tutti.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace {

struct Ranks {
    tutti::ProcessGroup zero, one;
};

Ranks join() {
    const tutti::HashStore store;
    const auto rank = [&store](int r) {
        return tutti::ProcessGroup(
            {.store = store, .rank = r, .world_size = 2, .transport = tutti::TransportKind::shm});
    };
    Ranks ranks;
    std::thread other([&] { ranks.one = rank(1); });
    ranks.zero = rank(0);
    other.join();
    return ranks;
}

bool expect(bool right, const char* what) {
    if (!right) std::fprintf(stderr, "short_path: wrong result of %s\n", what);
    return right;
}

}  // namespace

// Callgrind counts what happens inside of these.
extern "C" {
[[gnu::noipa]] void measured_plan(tutti::Plan& plan) {
    plan.run();
}
[[gnu::noipa]] void measured_all_reduce(std::span<float> values, const tutti::AllReduceOptions& options) {
    tutti::all_reduce(values, options);
}
[[gnu::noipa]] void measured_barrier(const tutti::BarrierOptions& options) {
    tutti::barrier(options);
}
[[gnu::noipa]] void measured_send(std::span<const float> values, const tutti::SendOptions& options) {
    tutti::send(values, 1, options);
}
[[gnu::noipa]] void measured_recv(std::span<float> values, const tutti::RecvOptions& options) {
    tutti::recv(values, options);
}
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s plan|all_reduce|barrier|message CALLS\n", argv[0]);
        return 2;
    }
    const int calls = std::atoi(argv[2]);
    Ranks ranks = join();
    std::vector<float> a(2), b(2);
    bool good = true;
    tutti::Plan first = tutti::plan::all_reduce(a, {.group = ranks.zero});
    tutti::Plan second = tutti::plan::all_reduce(b, {.group = ranks.one});
    const tutti::AllReduceOptions options{.group = ranks.one};
    const tutti::BarrierOptions barrier_options{.group = ranks.one};
    for (int i = 0; i < calls; ++i) {
        const auto value = static_cast<float>(i);
        a = {value, 1};
        b = {2, value};
        if (std::strcmp(argv[1], "message") == 0) {
            measured_send(a, {.group = ranks.zero});
            measured_recv(b, {.src = 0, .group = ranks.one});
            good &= expect(b == std::vector<float>{value, 1}, "send and recv");
            continue;
        }
        if (std::strcmp(argv[1], "barrier") == 0) {
            tutti::Work begun = tutti::async::barrier({.group = ranks.zero});
            measured_barrier(barrier_options);
            begun.wait();
            continue;
        }
        tutti::Work begun = first.start();  // its contribution is there from here on
        if (std::strcmp(argv[1], "plan") == 0)
            measured_plan(second);
        else
            measured_all_reduce(b, options);
        begun.wait();
        good &= expect(a == b && b == std::vector<float>{value + 2, value + 1}, argv[1]);
    }
    ranks.zero.destroy();
    ranks.one.destroy();
    return good ? 0 : 1;
}
