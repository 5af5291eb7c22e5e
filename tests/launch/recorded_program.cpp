// Ranks whose records, verdicts and stacks records_test.py reads. It has debug information. Lines that the test looks
// for have marks.
//
//   recorded_program returns|survives|tags|hangs|groups     with two ranks; `survives` with three
#include <tutti/tutti.hpp>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

namespace {

std::vector<float> x(100, 1.0F);

// main() returns with a group that nobody has destroyed.
int return_with_group() {
    for (int i = 0; i < 30; ++i) tutti::broadcast(x, {.src = 0});
    tutti::dump_flight_recorder("flight");
    return 4;
}

int outlive_rank_0() {
    for (int k = 0;; ++k) {
        tutti::broadcast(x, {.src = 0});
        if (tutti::get_rank() == 0 && k == 300) ::kill(::getpid(), SIGKILL);
    }
}

void mix_up_tags() {
    if (tutti::get_rank() == 0)
        tutti::send(x, 1, {.tag = 1});
    else
        tutti::recv(x, {.src = 0, .tag = 2});  // mark: receive
    tutti::barrier();
}

[[gnu::noinline]] void hang_in_here() {
    for (;;) ::pause();  // mark: hang
}

[[gnu::noinline]] void train_step() {
    tutti::all_reduce(x);  // mark: step
    x[0] = 0;              // so that the call is not the last one
}

[[gnu::noinline]] void make_groups() {
    const tutti::ProcessGroup pair = tutti::new_group({0, 1});  // mark: group
    tutti::DeviceMesh mesh = tutti::init_device_mesh("cpu", {1, 2}, {.dim_names = {"a", "b"}});
    const tutti::ProcessGroup row = mesh.get_group("b");  // mark: mesh
    tutti::all_reduce(x, {.group = pair});
    tutti::dump_trace(".");
}

}  // namespace

int main(int, char** argv) {
    const std::string what = argv[1];
    try {
        const auto timeout = what == "tags" ? std::chrono::seconds(1) : std::chrono::seconds(60);
        tutti::init_process_group({.timeout = timeout});  // mark: world
        if (what == "returns") return return_with_group();
        if (what == "survives") return outlive_rank_0();
        if (what == "tags") mix_up_tags();
        if (what == "groups") make_groups();
        if (what == "hangs" && tutti::get_rank() == 1) hang_in_here();
        if (what == "hangs") train_step();
    } catch (const tutti::DistError& error) {
        std::printf("%s\n", error.what());
        return 3;
    }
}
