// A ten-line user of the installed library: a world of one.
#include <tutti/tutti.hpp>

#include <cstdio>

int main() {
    tutti::init_process_group({.world_size = 1, .rank = 0, .store = tutti::HashStore()});
    tutti::Tensor sum = tutti::zeros(tutti::DType::float32, {3});
    sum.span<float>()[1] = 42;
    tutti::all_reduce(sum);
    std::printf("tutti %s: %g\n", tutti::version(), sum.span<float>()[1]);
    tutti::destroy_process_group();
    return sum.span<float>()[1] == 42 ? 0 : 1;
}
