// Options, time limits, asynchronous calls; what errors look like.
//
//   tutti run -n 4 build/examples/options
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

using namespace std::chrono_literals;

namespace {

// Something to do while the values travel.
double backward_of_next_layer() {
    std::vector<double> layer(200'000);
    std::iota(layer.begin(), layer.end(), 1.0);
    return std::accumulate(layer.begin(), layer.end(), 0.0);
}

// A coroutine: what comes after co_await runs when the values are there, and nobody blocks.
tutti::Future<float> doubled_twice(std::vector<float>& values) {
    const tutti::Work sum = tutti::async::all_reduce(values);
    co_await sum;
    const tutti::Work again = tutti::async::all_reduce(values);
    co_await again;
    co_return 2 * values[0];
}

bool check(const char* what, double got, double expected) {
    if (got == expected) return true;
    std::printf("rank %d: %s is %g, expected %g\n", tutti::get_rank(), what, got, expected);
    return false;
}

}  // namespace

int main() {
    tutti::init_process_group({.timeout = 60s});
    const tutti::ProcessGroup dp = tutti::default_group();
    const double n = dp.size();
    bool good = true;

    std::vector<float> gradient(1 << 16, static_cast<float>(dp.rank()));
    tutti::all_reduce(gradient, {.op = tutti::ReduceOp::avg, .group = dp, .timeout = 5s});  // blocks
    good &= check("the average", gradient.back(), (n - 1) / 2);

    std::vector<float> next(1 << 16, 1.0F);
    tutti::Work work = tutti::async::all_reduce(next, {.group = dp});  // [[nodiscard]]
    const double computed = backward_of_next_layer();
    work.wait();
    good &= check("the sum", next.front(), n);

    // Work that continues when the values are there.
    std::vector<float> third(8, 2.0F);
    tutti::Work last = tutti::async::all_reduce(third, {.group = dp});
    const float doubled = last.get_future().then([&third](const auto&) { return 2 * third[0]; }).wait();
    good &= check("twice the sum", doubled, 4 * n);
    std::vector<float> fourth(8, 1.0F);
    good &= check("twice the sum of sums", doubled_twice(fourth).wait(), 2 * n * n);

    // Bad input is an error that names the argument, before anything is sent: the group works on.
    try {
        tutti::broadcast(gradient, {.src = 99});
        good = false;
    } catch (const tutti::InvalidArgument& error) {
        if (dp.rank() == 0) std::printf("as it should: %s\n", error.what());
    }
    tutti::barrier();
    if (dp.rank() == 0) std::printf("average %g, sum %g, computed %g meanwhile\n", gradient[0], next[0], computed);
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
