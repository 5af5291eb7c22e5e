// Point to point: tags, any source, batches around a ring.
//
//   tutti run -n 4 build/examples/p2p
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

int main() {
    tutti::init_process_group();
    const int rank = tutti::get_rank(), n = tutti::get_world_size();
    bool good = true;

    // Everyone reports to rank 0, in whatever order they come.
    std::vector<int> report{rank, rank * rank};
    if (rank != 0) {
        tutti::send(report, 0, {.tag = 7});
    } else {
        std::vector<bool> seen(static_cast<std::size_t>(n), false);
        for (int i = 1; i < n; ++i) {
            const int source = tutti::recv(report, {.tag = 7});  // from any rank; returns who sent it
            good &= report[0] == source && report[1] == source * source && !seen[static_cast<std::size_t>(source)];
            seen[static_cast<std::size_t>(source)] = true;
        }
        std::printf("rank 0 heard from all %d others\n", n - 1);
    }

    // To the right, from the left, at the same time: no order of calls to think about. One rank talks to itself.
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;
    std::vector<float> out(100'000, static_cast<float>(rank)), in(100'000, -1.0F);
    auto requests = tutti::batch_isend_irecv({tutti::isend_op(out, right), tutti::irecv_op(in, left)});
    tutti::wait_all(requests);
    good &= in.front() == static_cast<float>(left) && in.back() == static_cast<float>(left);
    std::printf("rank %d: %g came from rank %d\n", rank, in[0], left);

    tutti::destroy_process_group();
    return good ? 0 : 1;
}
