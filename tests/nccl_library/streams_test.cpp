// Operations in streams: a driver of one function stands here, cuLaunchHostFunc, which the library finds in the
// process. A stream is a thread with a queue.
#include "ranks.hpp"

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Stream {
 public:
    Stream() : thread_([this] { work(); }) {}
    ~Stream() {
        push(nullptr);
        thread_.join();
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    ncclStream_t handle() { return this; }
    void push(std::function<void()> function) {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(function));
        changed_.notify_all();
    }
    /// Until all that is in it has run.
    void wait() {
        std::atomic<bool> reached{false};
        push([&] { reached = true; });
        while (!reached) std::this_thread::sleep_for(1ms);
    }
    void hold() { held_ = true; }
    void release() { held_ = false; }

 private:
    void work() {
        while (true) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !queue_.empty(); });
            const std::function<void()> function = std::move(queue_.front());
            queue_.pop_front();
            lock.unlock();
            while (held_) std::this_thread::sleep_for(1ms);
            if (!function) return;
            function();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    std::atomic<bool> held_{false};
    std::thread thread_;
};

std::atomic<int> refuse_after{-1};  // launches; -1: none is refused
std::atomic<bool> capturing{false};
std::vector<std::function<void()>> graph;  // what has been captured
thread_local std::vector<void*> contexts;  // of a stream: the stream itself
std::atomic<int> launches_elsewhere{0};    // into streams whose context was not current

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuLaunchHostFunc(void* stream, void (*function)(void*),
                                                                       void* data) {
    if (contexts.empty() || contexts.back() != stream) ++launches_elsewhere;
    if (refuse_after == 0) return 400;
    if (refuse_after > 0) --refuse_after;
    if (capturing)
        graph.emplace_back([function, data] { function(data); });
    else
        static_cast<Stream*>(stream)->push([function, data] { function(data); });
    return 0;
}
extern "C" __attribute__((visibility("default"))) int cuStreamIsCapturing(void*, int* status) {
    *status = capturing ? 1 : 0;
    return 0;
}
extern "C" __attribute__((visibility("default"))) int cuCtxGetDevice(int* device) {
    *device = 5;
    return 0;
}
extern "C" __attribute__((visibility("default"))) int cuStreamGetCtx(void* stream, void** context) {
    *context = stream;
    return 0;
}
extern "C" __attribute__((visibility("default"))) int cuCtxPushCurrent_v2(void* context) {
    contexts.push_back(context);
    return 0;
}
extern "C" __attribute__((visibility("default"))) int cuCtxPopCurrent_v2(void** context) {
    *context = contexts.back();
    contexts.pop_back();
    return 0;
}

namespace {

TEST(NcclStreams, hold_operations_until_they_are_reached) {
    Stream stream;
    on_ranks(1, [&](const NcclRank& me) {
        int device = -1;
        good(ncclCommCuDevice(me.comm, &device));
        EXPECT_EQ(device, 5);
        int in = 1, out = 0;
        stream.hold();
        stream.push([&] { in = 7; });
        good(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, me.comm, stream.handle()));
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(out, 0);
        stream.release();
        stream.wait();
        EXPECT_EQ(out, 7);
        good(ncclBcast(&in, 1, ncclInt32, 0, me.comm, nullptr));  // the null stream: at once
    });
}

TEST(NcclStreams, of_several_devices_are_served_by_one_thread) {
    Stream streams[2];
    int values[2] = {1, 2};
    std::vector<ncclComm_t> comms(2);
    good(ncclCommInitAll(comms.data(), 2, nullptr));
    launches_elsewhere = 0;
    good(ncclGroupStart());
    for (int i = 0; i < 2; ++i)
        good(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], streams[i].handle()));
    good(ncclGroupEnd());
    for (Stream& stream : streams) stream.wait();
    EXPECT_EQ(values[0] + values[1], 6);
    EXPECT_EQ(launches_elsewhere, 0) << "the driver refuses a stream of a device that is not current";
    EXPECT_TRUE(contexts.empty()) << "the caller's device stays as it was";
    for (ncclComm_t comm : comms) good(ncclCommDestroy(comm));
}

TEST(NcclStreams, carry_ranks_that_issue_without_waiting) {
    on_ranks(3, [](const NcclRank& me) {
        Stream stream;
        std::vector<std::vector<float>> values;
        for (int i = 0; i < 50; ++i) values.emplace_back(100, static_cast<float>(i));
        for (auto& one : values)
            good(ncclAllReduce(one.data(), one.data(), one.size(), ncclFloat32, ncclSum, me.comm, stream.handle()));
        stream.wait();
        for (int i = 0; i < 50; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)][99], static_cast<float>(3 * i));
    });
}

TEST(NcclStreams, of_one_communicator_wait_for_each_other_in_a_group) {
    on_ranks(2, [](const NcclRank& me) {
        Stream first, second;
        int a = 1, b = 1;
        second.hold();
        second.push([&] { b = 10; });
        good(ncclGroupStart());
        good(ncclAllReduce(&a, &a, 1, ncclInt32, ncclSum, me.comm, first.handle()));
        good(ncclAllReduce(&b, &b, 1, ncclInt32, ncclSum, me.comm, second.handle()));
        good(ncclGroupEnd());
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(a, 1) << "the group waits for both streams";
        second.release();
        first.wait();
        second.wait();
        EXPECT_EQ(a, 2);
        EXPECT_EQ(b, 20);
    });
}

TEST(NcclStreams, keep_the_order_of_one_communicators_calls) {
    on_ranks(2, [](const NcclRank& me) {
        Stream first, second;
        int value = 1;
        first.hold();
        good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, me.comm, first.handle()));
        good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, me.comm, second.handle()));
        std::this_thread::sleep_for(20ms);
        first.release();
        second.wait();
        EXPECT_EQ(value, 4);
        first.wait();
    });
}

TEST(NcclStreams, are_shared_by_communicators_of_one_group) {
    Clique all(3);
    Stream stream;
    int values[3] = {1, 2, 3};
    good(ncclGroupStart());
    for (std::size_t i = 0; i < 3; ++i)
        good(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, all.comms[i], stream.handle()));
    good(ncclGroupEnd());
    stream.wait();
    for (const int value : values) EXPECT_EQ(value, 6);
}

TEST(NcclStreams, go_on_when_a_communicator_is_aborted) {
    Clique pair(2);
    ncclComm_t parts[2] = {};
    good(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank)
        good(ncclCommSplit(pair.comms[static_cast<std::size_t>(rank)], 0, rank, &parts[rank], nullptr));
    good(ncclGroupEnd());
    Stream stream;
    int value = 1;
    good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, parts[0], stream.handle()));  // rank 1 never comes
    good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, parts[0], stream.handle()));
    std::this_thread::sleep_for(50ms);
    good(ncclCommAbort(parts[0]));
    stream.wait();
    good(ncclCommAbort(parts[1]));
}

TEST(NcclStreams, tell_later_what_went_wrong_in_them) {
    ncclUniqueId id{};
    good(ncclGetUniqueId(&id));
    on_threads(2, [&](int rank) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitRank(&comm, 2, id, rank));
        Stream stream;
        std::vector<int> values(4);
        good(ncclBcast(values.data(), rank == 0 ? 4 : 2, ncclInt32, 0, comm, stream.handle()));
        good(ncclAllReduce(values.data(), values.data(), 1, ncclInt32, ncclSum, comm, stream.handle()));
        stream.wait();
        ncclResult_t state = ncclSuccess;
        good(ncclCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ncclInvalidUsage) << ncclGetLastError(comm);
        sentence(ncclInvalidUsage, ncclBcast(values.data(), 1, ncclInt32, 0, comm, stream.handle()), comm);
        good(ncclCommDestroy(comm));
    });
}

TEST(NcclStreams, that_are_captured_carry_out_their_operations_whenever_the_graph_runs) {
    Stream stream, other;
    ncclComm_t comm = nullptr;
    good(ncclCommInitAll(&comm, 1, nullptr));
    int in = 1, out = 0, again = 0;
    capturing = true;
    good(ncclGroupStart());
    good(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, stream.handle()));
    good(ncclAllReduce(&in, &again, 1, ncclInt32, ncclSum, comm, stream.handle()));
    good(ncclGroupEnd());
    capturing = false;
    EXPECT_EQ(out, 0) << "nothing has run";
    for (int turn = 2; turn < 5; ++turn) {
        in = turn;
        good(ncclAllReduce(&in, &in, 1, ncclInt32, ncclSum, comm, stream.handle()));  // operations that are in none
        for (const auto& node : graph) stream.push(node);
        stream.wait();
        EXPECT_EQ(out, turn);
        EXPECT_EQ(again, turn);
    }
    capturing = true;
    good(ncclGroupStart());
    good(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, stream.handle()));
    good(ncclAllReduce(&in, &again, 1, ncclInt32, ncclSum, comm, other.handle()));
    EXPECT_NE(sentence(ncclInvalidUsage, ncclGroupEnd()).find("expected one stream"), std::string::npos);
    capturing = false;
    good(ncclCommDestroy(comm));
    in = 7;
    for (const auto& node : graph) node();
    EXPECT_EQ(out, 4) << "of a communicator that is gone nothing runs";
    graph.clear();
}

TEST(NcclStreams, hold_puts_and_waits_for_signals_until_they_are_reached_and_graphs_repeat_them) {
    const auto body = [](const NcclRank& me, std::barrier<>& all_have_looked) {
        int value = me.rank + 1, got = 0;
        ncclWindow_t from = nullptr, to = nullptr;
        good(ncclCommWindowRegister(me.comm, &value, sizeof value, &from, NCCL_WIN_COLL_SYMMETRIC));
        good(ncclCommWindowRegister(me.comm, &got, sizeof got, &to, NCCL_WIN_COLL_SYMMETRIC));
        ncclWaitSignalDesc_t signal{.opCnt = 1, .peer = (me.rank + 1) % me.size, .sigIdx = 0, .ctx = 0};
        const int target = (me.rank + me.size - 1) % me.size;
        Stream stream;
        stream.hold();
        stream.push([&] { value *= 10; });
        good(ncclPutSignal(&value, 1, ncclInt32, target, to, 0, 0, 0, 0, me.comm, stream.handle()));
        good(ncclWaitSignal(1, &signal, me.comm, stream.handle()));
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(got, 0);
        all_have_looked.arrive_and_wait();
        stream.release();
        stream.wait();
        EXPECT_EQ(got, 10 * (signal.peer + 1));
        if (me.size > 1) return;
        capturing = true;
        good(ncclPutSignal(&value, 1, ncclInt32, target, to, 0, 0, 0, 0, me.comm, stream.handle()));
        good(ncclWaitSignal(1, &signal, me.comm, stream.handle()));
        capturing = false;
        for (value = 1; value < 4; ++value) {
            for (const auto& node : graph) stream.push(node);
            stream.wait();
            EXPECT_EQ(got, value);
        }
        good(ncclCommSuspend(me.comm, NCCL_SUSPEND_MEM));
        value = 99;
        for (const auto& node : graph) stream.push(node);
        stream.wait();
        EXPECT_EQ(got, 3) << "a suspended communicator carries nothing out";
        graph.clear();
        ncclResult_t state = ncclSuccess;
        good(ncclCommGetAsyncError(me.comm, &state));
        EXPECT_EQ(state, ncclInvalidUsage) << ncclGetLastError(me.comm);
    };
    for (const int ranks : {1, 2}) {
        std::barrier<> all_have_looked(ranks);
        on_ranks(ranks, [&](const NcclRank& me) { body(me, all_have_looked); });
    }
}

TEST(NcclStreams, that_the_driver_refuses_are_errors_of_the_call) {
    Stream first, second;
    int value = 1;
    for (int good_launches = 0; good_launches < 2; ++good_launches) {
        ncclComm_t comm = nullptr;
        good(ncclCommInitAll(&comm, 1, nullptr));
        good(ncclGroupStart());
        good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, first.handle()));
        good(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, second.handle()));
        refuse_after = good_launches;
        EXPECT_NE(sentence(ncclUnhandledCudaError, ncclGroupEnd()).find("cuLaunchHostFunc failed with 400"),
                  std::string::npos);
        refuse_after = -1;
        first.wait();
        second.wait();
        good(ncclCommAbort(comm));
    }
}

}  // namespace
}  // namespace tutti::test
