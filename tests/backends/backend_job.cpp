// backend_job BACKEND: one rank of a job (env://) on that backend: large and small collectives, messages. Says "good",
// or what is wrong, with exit status 1.
#include <tutti/tutti.hpp>

#include <cstdio>
#include <stdexcept>
#include <vector>

namespace {

void expect(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

void work() {
    const int me = tutti::get_rank(), n = tutti::get_world_size();
    for (int round = 0; round < 16; ++round) {
        std::vector<float> x(256 << 10, static_cast<float>(me + round));
        tutti::all_reduce(x);
        expect(x.back() == static_cast<float>(n * (n - 1) / 2 + n * round), "all_reduce is wrong");
        std::vector<tutti::BFloat16> y(100'000, tutti::BFloat16(2.0F));
        tutti::all_reduce(y, {.op = tutti::ReduceOp::avg});
        expect(y.back() == tutti::BFloat16(2.0F), "all_reduce of bfloat16 is wrong");
        std::vector<int> out(100'000, me), in(100'000);
        tutti::Work sent = tutti::isend(out, (me + 1) % n);
        tutti::recv(in, {.src = (me + n - 1) % n});
        sent.wait();
        expect(in.back() == (me + n - 1) % n, "a message is wrong");
        tutti::barrier();  // an odd number of collectives, so that each kind changes its interface
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    try {
        tutti::init_process_group({.backend = argv[1], .timeout = std::chrono::seconds(20)});
        work();
        tutti::destroy_process_group();
        std::puts("good");
        return 0;
    } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
