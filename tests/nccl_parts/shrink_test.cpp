// What the plug-in's communicator becomes when a group goes on with fewer ranks: it is stopped and shrunk where all
// ranks' libraries can, and made anew otherwise. On a library of which no function does anything but count.
#include "nccl_parts/fake_driver.hpp"

#include "nccl/plug_in.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using nccl::Comm;
using nccl::Result;

std::atomic<int> live{0};  // handles that are not freed
// What a handle points to.
struct Counted {
    int rank;
};
Counted* of(Comm comm) {
    return reinterpret_cast<Counted*>(comm);
}
Comm handle(int rank) {
    ++live;
    return reinterpret_cast<Comm>(new Counted{rank});
}
void give_back(Comm comm) {
    delete of(comm);
    --live;
}

std::atomic<int> made{0}, revoked{0}, shrunk{0}, ended{0}, aborted{0};
std::atomic<int> cannot_shrink{-1};  // that rank of the old communicator's
std::mutex excluded_mutex;
std::vector<std::vector<int>> excluded;  // of each ncclCommShrink
std::atomic<int> flags_of_shrink{-1};

void start_counting() {
    made = revoked = shrunk = ended = aborted = 0;
    cannot_shrink = flags_of_shrink = -1;
    excluded.clear();
}

Result succeed() {
    return Result::success;
}

// A function pointer's type says what it is called with.
template <class... Arguments>
void ignore(Result (*&call)(Arguments...)) {
    call = [](Arguments...) { return succeed(); };
}

nccl::Interface counting_calls() {
    nccl::Interface calls;
    calls.GetVersion = [](int* version) {
        *version = 22900;
        return succeed();
    };
    ignore(calls.GetUniqueId);
    calls.CommInitRankConfig = [](Comm* comm, int, nccl::UniqueId, int rank, nccl::Config*) {
        ++made;
        *comm = handle(rank);
        return succeed();
    };
    calls.CommSplit = [](Comm, int, int, Comm*, nccl::Config*) { return Result::internal_error; };
    calls.CommRevoke = [](Comm, int) {
        ++revoked;
        return succeed();
    };
    calls.CommShrink = [](Comm comm, int* ranks, int count, Comm* rest, nccl::Config*, int flags) {
        ++shrunk;
        flags_of_shrink = flags;
        {
            const std::lock_guard lock(excluded_mutex);
            excluded.emplace_back(ranks, ranks + count);
        }
        if (of(comm)->rank == cannot_shrink) return Result::remote_error;
        *rest = handle(of(comm)->rank);
        return succeed();
    };
    ignore(calls.CommFinalize);
    calls.CommDestroy = [](Comm comm) {
        ++ended;
        give_back(comm);
        return succeed();
    };
    calls.CommAbort = [](Comm comm) {
        ++aborted;
        give_back(comm);
        return succeed();
    };
    calls.CommGetAsyncError = [](Comm, Result* error) {
        *error = Result::success;
        return succeed();
    };
    calls.GetErrorString = [](Result) { return "an error"; };
    calls.GetLastError = [](Comm) { return ""; };
    ignore(calls.AllReduce);
    ignore(calls.GroupStart);
    ignore(calls.GroupEnd);
    return calls;
}

std::shared_ptr<const nccl::Library> library(const nccl::Interface& calls) {
    nccl::Vendor vendor;
    vendor.backend = "counting";
    vendor.title = "Counting";
    vendor.prefix = "nccl";
    vendor.devices = {Device::Type::cuda};
    vendor.version_text = &nccl::nccl_version_text;
    vendor.abilities = &nccl::nccl_abilities;
    return std::make_shared<const nccl::Library>(vendor, calls, "no library", 22900, false);
}

// Which library each rank has, by rank; three ranks, of which the second leaves.
void shrink_three(const std::function<nccl::Interface(int rank)>& calls_of) {
    start_counting();
    FakeDriver::get();
    static std::function<nccl::Interface(int rank)> current;
    current = calls_of;
    static std::once_flag once;
    std::call_once(once, [] {
        Backend::register_backend(
            "counting", Backend::Extended([](const DistributedBackendOptions& options, const std::any& pg_options) {
                return nccl::make_backend(library(current(options.group_rank)), options, pg_options);
            }),
            {Device::Type::cuda});
    });
    const HashStore store;
    std::barrier in_use(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                const Device device{Device::Type::cuda, rank};
                ProcessGroup g({.store = store,
                                .rank = rank,
                                .world_size = 3,
                                .timeout = 20s,
                                .name = "world",
                                .backend = "cpu:native,cuda:counting",
                                .device_id = device});
                barrier({.group = g});
                in_use
                    .arrive_and_wait();  // as a shrink ends the barrier of a rank that has not heard of the others yet
                if (rank == 1) return;   // its last handle goes: it leaves
                ProcessGroup smaller = g.shrink({.timeout = 15s});
                EXPECT_EQ(smaller.size(), 2);
                std::vector<float> values(8);
                all_reduce(TensorView(values.data(), {8}, float32, {}, device), {.group = smaller});
                barrier({.group = smaller});
                smaller.destroy();
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    // The last handle of a group may go in a thread of the plug-in.
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (live > 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(live, 0);
}

TEST(NcclShrink, stops_the_communicator_and_shrinks_it_without_the_ranks_that_are_gone) {
    shrink_three([](int) { return counting_calls(); });
    EXPECT_EQ(made, 3) << "by the first group alone";
    EXPECT_EQ(shrunk, 2);
    EXPECT_EQ(flags_of_shrink, 1) << "NCCL_SHRINK_ABORT";
    EXPECT_EQ(excluded, (std::vector<std::vector<int>>{{1}, {1}}));
    EXPECT_GE(revoked, 2);
    EXPECT_EQ(ended + aborted, 5) << "each is freed once";
}

TEST(NcclShrink, makes_it_anew_where_a_library_cannot_stop_it_without_freeing_it) {
    shrink_three([](int rank) {
        nccl::Interface calls = counting_calls();
        if (rank == 2) calls.CommRevoke = nullptr;
        return calls;
    });
    EXPECT_EQ(shrunk, 0) << "as one of the ranks cannot";
    EXPECT_EQ(made, 5);
    EXPECT_EQ(ended + aborted, 5);
}

TEST(NcclShrink, makes_it_anew_where_shrinking_fails_on_one_rank) {
    shrink_three([](int) {
        cannot_shrink = 2;
        return counting_calls();
    });
    EXPECT_EQ(shrunk, 2);
    EXPECT_EQ(made, 5);
    EXPECT_EQ(ended + aborted, 6) << "and the one that was shrunk";
}

}  // namespace
}  // namespace tutti::test
