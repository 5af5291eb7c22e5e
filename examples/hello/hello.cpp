// The smallest program: everyone contributes a gradient, everyone gets the sum.
//
//   g++ -std=c++20 hello.cpp $(pkg-config --cflags --libs tutti) -o hello && tutti run -n 4 ./hello
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

int main() {
    tutti::init_process_group();  // env://, as set by tutti run, torchrun, srun or mpirun
    std::vector<float> gradient(1 << 20, static_cast<float>(tutti::get_rank()));
    tutti::all_reduce(gradient);  // in place; sum; the same bits on every rank
    std::printf("rank %d of %d: %g\n", tutti::get_rank(), tutti::get_world_size(), gradient[0]);
    tutti::destroy_process_group();
}
