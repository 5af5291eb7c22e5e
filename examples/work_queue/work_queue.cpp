// A work queue with one shared counter: a rank that has time takes the next number, so quick ranks do more.
//
//   tutti run -n 4 build/examples/work_queue
//
// How often does the rule "halve it if it is even, else triple it and add 1" have to be applied until a number is 1?
// The numbers below `numbers` come in pieces, whose costs differ. Rank 0 alone has memory in the window: the counter,
// the best answer so far, and a count of all steps.
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace {

constexpr std::int64_t numbers = 60'000, piece = 500;
constexpr int home = 0;  // the rank that has the memory
enum Element { next_piece, longest, all_steps, elements };

std::int64_t steps_of(std::int64_t number) {
    std::int64_t steps = 0;
    for (; number > 1; ++steps) number = number % 2 == 0 ? number / 2 : 3 * number + 1;
    return steps;
}

struct Answer {
    std::int64_t longest = 0, all_steps = 0;
};

Answer work_on(std::int64_t first, std::int64_t end) {
    Answer answer;
    for (std::int64_t number = first; number < end; ++number) {
        const std::int64_t steps = steps_of(number);
        answer.longest = std::max(answer.longest, steps);
        answer.all_steps += steps;
    }
    return answer;
}

}  // namespace

int main() {
    tutti::init_process_group();
    const int rank = tutti::get_rank();
    const tutti::Window shared(tutti::int64, {rank == home ? elements : 0});

    std::int64_t pieces = 0;
    for (;;) {
        const std::int64_t first = piece * shared.fetch_add<std::int64_t>(1, home, {.offset = next_piece});
        if (first >= numbers) break;
        const Answer part = work_on(first, std::min(first + piece, numbers));
        shared.accumulate(part.longest, home, tutti::ReduceOp::max, {.offset = longest});
        shared.accumulate(part.all_steps, home, tutti::ReduceOp::sum, {.offset = all_steps});
        ++pieces;
    }
    shared.fence();  // all pieces of all ranks are in

    const Answer expected = work_on(0, numbers);
    const Answer found{shared.fetch<std::int64_t>(home, {.offset = longest}),
                       shared.fetch<std::int64_t>(home, {.offset = all_steps})};
    tutti::all_reduce(pieces);
    const bool right = found.longest == expected.longest && found.all_steps == expected.all_steps &&
                       pieces == (numbers + piece - 1) / piece;
    if (rank == 0)
        std::printf("%lld steps at most, %lld in all, in %lld pieces\n", static_cast<long long>(found.longest),
                    static_cast<long long>(found.all_steps), static_cast<long long>(pieces));
    shared.close();
    tutti::destroy_process_group();
    return right ? 0 : 1;
}
