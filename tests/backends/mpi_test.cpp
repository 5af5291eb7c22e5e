// The backend mpi on three ranks that mpirun has started: the tests run on all of them, in the same order.
#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

struct Job {
    int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
    int size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
    TCPStore store{
        {.port = static_cast<std::uint16_t>(std::atoi(std::getenv("TUTTI_CONFORMANCE_PORT"))), .is_master = rank == 0}};

    // Rank 0 has the store: it leaves when the others need it no more.
    ~Job() {
        try {
            if (rank != 0) store.set("left " + std::to_string(rank), "");
            for (int other = 1; rank == 0 && other < size; ++other) store.wait({"left " + std::to_string(other)}, 10s);
        } catch (const DistError&) {
            // What has gone wrong has been said.
        }
    }

    ProcessGroup world(const std::string& name) {
        return ProcessGroup(
            {.store = PrefixStore(name, store), .rank = rank, .world_size = size, .timeout = 20s, .backend = "mpi"});
    }
    void meet(const std::string& name) {  // whatever has become of the groups
        if (store.add(name, 1) == size) store.set(name + " all", "");
        store.wait({name + " all"});
    }
};
Job& job() {
    static Job one;
    return one;
}

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

// In a job of its own: MPI cannot take operations back, and mpirun does not like processes that end so.
TEST(MpiAfterAll, ends_operations_of_ranks_that_do_not_come_and_then_refuses_new_groups) {
    {
        ProcessGroup w = job().world("late");
        std::vector<float> x(300'000, 1);
        if (w.rank() != 2) {
            EXPECT_THROW(all_reduce(x, {.group = w, .timeout = 500ms}), DistError);
        }
        job().meet("late");
    }
    const std::string text = message_of<DistBackendError>([] { job().world("again"); });
    const char* const reason = job().rank != 2 ? "MPI cannot take back operations" : "rank 0: none, see its error";
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    job().meet("again");
}

}  // namespace
}  // namespace tutti::test
