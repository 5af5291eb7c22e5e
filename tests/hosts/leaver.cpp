// One rank of leaving_test.sh: rank 0 sends, as the first argument says, as many numbers as the second says, and
// leaves; rank 1 receives, and says whether they are right.
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr float sent = 7, written_later = -5;

void say(const std::vector<float>& x) {
    std::puts(std::ranges::all_of(x, [](float value) { return value == sent; }) ? "right" : "WRONG");
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) return 2;
    const std::string operation = argv[1];
    static std::vector<float> x(std::strtoul(argv[2], nullptr, 10));  // still there while the program ends
    tutti::init_process_group();
    const bool sends = tutti::get_rank() == 0;
    std::vector<int> all(1, 1);
    tutti::all_reduce(all);
    std::ranges::fill(x, sends ? sent : 0.0F);
    if (operation == "broadcast" || operation == "part") {
        tutti::ProcessGroup group = tutti::default_group();
        if (operation == "part") group = tutti::new_group(std::vector<int>{0, 1});
        tutti::broadcast(x, {.src = 0, .group = group});
        if (operation == "part") group.destroy();
        if (!sends) say(x);
    } else {
        const std::size_t parts = operation == "several" ? 50 : 1;
        tutti::Work work;
        for (std::size_t i = 0; i < parts; ++i) {
            if (sends)
                work = tutti::isend(x, 1);
            else
                tutti::recv(x, {.src = 0});
        }
        if (!sends) say(x);
        if (sends && operation == "exit") return 0;
    }
    tutti::destroy_process_group();
    std::ranges::fill(x, written_later);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
