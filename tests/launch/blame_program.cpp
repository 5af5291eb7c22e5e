// Ranks of which one does wrong in the fifth step, for blame_test.py.
//
//   blame_program MODE    hang|spin|kill|segv|throw|exit|leave   of rank 2; size: of rank 1; late: rank 2 does not join
//   blame_program deadlock   rank 2 calls the collectives of two groups in another order
//   blame_program again      rank 2 is late, all catch the error and make another world; then rank 1 ends with status 7
#include <tutti/tutti.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

void do_wrong(const std::string& mode) {
    if (mode == "hang") std::this_thread::sleep_for(1h);
    for (std::atomic<int> turns{0}; mode == "spin"; ++turns) continue;
    if (mode == "kill") std::raise(SIGKILL);
    if (mode == "segv") std::raise(SIGSEGV);
    if (mode == "throw") throw std::runtime_error("bad batch in file 17");
    if (mode == "exit") std::_Exit(3);
    if (mode == "leave") std::exit(0);
}

void step(std::vector<float>& gradients, const std::string& mode, const tutti::ProcessGroup& other) {
    const bool second = mode == "deadlock" && tutti::get_rank() == 2;
    tutti::all_reduce(gradients, {.group = second ? other : tutti::ProcessGroup()});
    if (mode == "deadlock") tutti::all_reduce(gradients, {.group = second ? tutti::ProcessGroup() : other});
}

void fail_and_go_on(std::vector<float>& gradients) {
    if (tutti::get_rank() == 2) std::this_thread::sleep_for(2500ms);
    try {
        tutti::all_reduce(gradients);
    } catch (const tutti::DistError&) {
        std::this_thread::sleep_for(1s);  // the others' errors are on their way
    }
    tutti::destroy_process_group();
    tutti::init_process_group({.timeout = 20s});
    tutti::all_reduce(gradients);
    if (tutti::get_rank() == 1) std::_Exit(7);
    std::this_thread::sleep_for(30s);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    const char* rank = std::getenv("RANK");
    if (mode == "late" && rank != nullptr && *rank == '2') std::this_thread::sleep_for(1h);
    tutti::init_process_group({.timeout = 2s});
    const tutti::ProcessGroup other = mode == "deadlock" ? tutti::new_group() : tutti::ProcessGroup();
    std::vector<float> gradients(1000, 1.0F);
    if (mode == "again") fail_and_go_on(gradients);
    for (int turn = 0; turn < 10; ++turn) {
        if (turn == 5 && tutti::get_rank() == 2) do_wrong(mode);
        if (turn == 5 && tutti::get_rank() == 1 && mode == "size") gradients.pop_back();
        step(gradients, turn == 5 || mode != "deadlock" ? mode : "", other);
    }
    tutti::destroy_process_group();
}
