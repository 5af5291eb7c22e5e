// The backend mpi on three ranks that mpirun has started: the tests run on all of them, in the same order.
#include "mpi_job.hpp"
#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>

// The C functions only: Open MPI's deprecated C++ bindings do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void expect_sum(const ProcessGroup& g, double expected) {
    std::vector<double> x(100'000, 1.0 + get_rank(g));
    all_reduce(x, {.group = g});
    EXPECT_EQ(x.back(), expected);
}

TEST(Mpi, moves_the_data_of_a_job_of_mpirun) {
    covers("S2-005", "S1-035", "S2-019");
    ASSERT_EQ(job().size, 3);
    EXPECT_TRUE(is_mpi_available());
    ProcessGroup w = job().world("plain");
    EXPECT_EQ(w.backend(), "mpi");
    expect_sum(w, 6);
    w.destroy();
    job().meet("plain");
}

TEST(Mpi, makes_groups_of_some_ranks_in_which_only_they_take_part) {
    covers("S4-011");
    ProcessGroup w = job().world("parts");
    const ProcessGroup outer = new_group({0, 2}, {.world = w});
    if (w.rank() != 1) expect_sum(outer, 3);
    if (w.rank() != 0) {  // rank 0 knows nothing of it
        const ProcessGroup local = new_group({1, 2}, {.use_local_synchronization = true, .world = w});
        expect_sum(local, 3);
    }
    expect_sum(w, 6);
    w.destroy();
    job().meet("parts");
}

// Blocks of a random matrix of counts, in a random order, with gaps or without.
struct Places {
    std::vector<int> counts, offsets;
    int length = 0;

    void set(std::vector<int> new_counts, std::mt19937& random) {
        counts = std::move(new_counts);
        offsets.assign(counts.size(), 0);
        std::vector<std::size_t> order(counts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::shuffle(order, random);
        const unsigned gap = random() % 2 * 4;
        length = 0;
        for (const std::size_t i : order) {
            length += static_cast<int>(random() % (gap + 1));
            offsets[i] = std::exchange(length, length + counts[i]);
        }
    }
    static std::vector<std::int64_t> wide(const std::vector<int>& numbers) { return {numbers.begin(), numbers.end()}; }
};

TEST(Mpi, and_tutti_s_own_ways_exchange_the_same_blocks_of_ten_thousand_matrices) {
    covers("S21-001");
    const ProcessGroup of_mpi = job().world("blocks of mpi"), native = job().world("blocks", "native");
    const auto n = static_cast<std::size_t>(job().size), me = static_cast<std::size_t>(job().rank);
    std::mt19937 random(11);  // the same on all ranks
    for (int round = 0; round < 10'000; ++round) {
        std::vector<std::vector<int>> matrix(n, std::vector<int>(n));
        const unsigned kind = random() % 4, most = round % 50 == 0 ? 20'000 : round % 3 == 0 ? 300 : 6;
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                matrix[i][j] = static_cast<int>(random() % (most + 1));
                if ((kind == 1 && random() % 2 == 0) || (kind == 2 && (i == 0 || j == 1))) matrix[i][j] = 0;
            }
        }
        std::vector<Places> sent(n), received(n);
        for (std::size_t r = 0; r < n; ++r) {
            std::vector<int> column;
            for (const auto& row : matrix) column.push_back(row[r]);
            sent[r].set(matrix[r], random);
            received[r].set(column, random);
        }
        const Places &s = sent[me], &r = received[me];
        std::vector<int> in(static_cast<std::size_t>(s.length)), out(static_cast<std::size_t>(r.length), -1),
            want = out;
        std::iota(in.begin(), in.end(), 1'000'000 * job().rank);
        ASSERT_EQ(MPI_Alltoallv(in.data(), s.counts.data(), s.offsets.data(), MPI_INT, want.data(), r.counts.data(),
                                r.offsets.data(), MPI_INT, MPI_COMM_WORLD),
                  MPI_SUCCESS);
        all_to_all_v(out, in,
                     {.send_counts = Places::wide(s.counts),
                      .send_offsets = Places::wide(s.offsets),
                      .receive_counts = Places::wide(r.counts),
                      .receive_offsets = Places::wide(r.offsets),
                      .group = native});
        ASSERT_EQ(out, want) << "matrix " << round;
    }
    ProcessGroup(native).destroy();
    ProcessGroup(of_mpi).destroy();
    job().meet("blocks");
}

// In a job of its own: MPI cannot take operations back, and mpirun does not like processes that end so.
TEST(MpiAfterAll, makes_groups_after_ranks_that_did_not_come_and_refuses_them_after_a_call_that_was_given_up) {
    {
        ProcessGroup w = job().world("late");
        std::vector<float> x(300'000, 1);
        if (w.rank() != 2) {  // MPI has not been asked
            const std::string text = message_of<Timeout>([&] { all_reduce(x, {.group = w, .timeout = 500ms}); });
            EXPECT_NE(text.find("nothing from rank 2"), std::string::npos) << text;
        }
        job().meet("late");
    }
    {
        ProcessGroup w = job().world("given up");
        std::vector<float> x(64 << 20, 1);
        barrier({.group = w});
        Work work = async::all_reduce(x, {.group = w});
        job().meet("issued");
        if (w.rank() == 0) {
            EXPECT_THROW(work.wait(100ms), Timeout) << "MPI is quicker than the test";
            w.abort("enough");
            EXPECT_THROW(work.wait(), Aborted);
        } else {
            try {
                work.wait();  // on a loaded machine its part may be over before it hears of the end
            } catch (const Aborted&) {
            }
        }
        job().meet("given up");
    }
    const std::string text = message_of<DistBackendError>([] { job().world("refused"); });
    EXPECT_NE(text.find("MPI cannot take back operations"), std::string::npos) << text;
    job().meet("refused");
}

}  // namespace
}  // namespace tutti::test
