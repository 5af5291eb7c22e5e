// Buffers that are used again and again get huge pages while others read them: all results stay right.
#include "conformance/world.hpp"

#include <cstddef>
#include <vector>

namespace tutti::test {
namespace {

class UsedOften : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UsedOften, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

constexpr std::size_t count = watched ? 300'000 : 1'000'000;  // 4 MB in all, at no boundary of pages
constexpr int turns = 12;

int value(int rank, std::size_t i, int turn) {
    return static_cast<int>(i % 10'007) * 4 + rank + turn;
}
void fill(std::vector<int>& buffer, int rank, int turn) {
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = value(rank, i, turn);
}
// Of millions of elements, one assertion: each would take longer than the collective.
template <class F>
void expect(const std::vector<int>& got, int turn, F expected) {
    std::size_t i = 0;
    while (i < got.size() && got[i] == expected(i)) ++i;
    if (i < got.size()) FAIL() << "turn " << turn << ", element " << i << ": " << got[i] << ", not " << expected(i);
}

TEST_P(UsedOften, buffers_hold_what_they_should_in_every_turn) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank(), peer = 1 - me;
        const std::size_t half = count / 2;
        std::vector<int> in(count), out(count), sums(count), all(2 * count);
        for (int turn = 0; turn < turns; ++turn) {
            fill(in, me, turn);
            fill(sums, me, turn);
            Work sent = isend(in, peer, {.group = g});
            recv(out, {.src = peer, .group = g});
            sent.wait();
            expect(out, turn, [&](std::size_t i) { return value(peer, i, turn); });
            all_to_all_single(out, in, {.group = g});
            expect(out, turn,
                   [&](std::size_t i) { return value(i < half ? 0 : 1, i % half + (me == 1 ? half : 0), turn); });
            all_gather_into_tensor(all, in, {.group = g});
            expect(all, turn, [&](std::size_t i) { return value(static_cast<int>(i / count), i % count, turn); });
            Work reduced = async::all_reduce(sums, {.group = g});
            broadcast(out, {.src = turn % 2, .group = g});
            reduced.wait();
            expect(sums, turn, [&](std::size_t i) { return value(0, i, turn) + value(1, i, turn); });
        }
    });
}

}  // namespace
}  // namespace tutti::test
