// Streams, as torch.distributed documents them for NCCL: which stream or thread waits for an operation, and which does
// not.
//
// Every operation of the fake's streams takes its time, so that a wait that is missing shows as wrong data.
#include "device.hpp"
#include "support/covers.hpp"

#include <tutti/nccl.hpp>

#include <gtest/gtest.h>

#include <thread>

namespace tutti::test {
namespace {

class Streams : public ::testing::Test {
 protected:
    void SetUp() override {
        if (cuda().is_fake()) cuda().fake_set_delay(1500);
    }
    void TearDown() override {
        if (cuda().is_fake()) cuda().fake_set_delay(0);
    }
};

// Makes the communicators that a test is not about.
void warm_up(const ProcessGroup& g, const Gpu& gpu) {
    const OnGpu x(gpu, zeros(int64, {4}));
    all_reduce(x, {.group = g});
    (void)x.values();
}

bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 4000 && !condition(); ++i) std::this_thread::sleep_for(5ms);
    return condition();
}

OnGpu number(const Gpu& gpu, std::int64_t value, Stream stream = {}) {
    return {gpu, tensor<std::int64_t>({value}), stream};
}

TEST_F(Streams, a_second_stream_adds_to_the_sum_after_waiting_for_the_first) {
    covers_on_gpu({"S7-023", "E-205"});
    for (const bool bound : {true, false}) {
        on_gpus(2,
                [](const ProcessGroup& g, const Gpu& gpu) {
                    const Stream second = gpu.make_stream();
                    const OnGpu output = number(gpu, g.rank());
                    Work handle = async::all_reduce(output, {.group = g});
                    handle.wait();
                    gpu.make_wait(second, {});
                    gpu.add(second, output.data(), 100, 1);
                    EXPECT_EQ(output.value<std::int64_t>(second), 101);
                },
                {.bound = bound});
    }
}

TEST_F(Streams, operations_wait_for_what_the_callers_stream_holds) {
    on_gpus(2, [](const ProcessGroup& g, const Gpu& gpu) {
        const Stream named = gpu.make_stream(), current = gpu.make_stream();
        const OnGpu a = number(gpu, 1, named), b = number(gpu, 10, current);
        gpu.add(named, a.data(), g.rank(), 1);
        gpu.add(current, b.data(), g.rank(), 1);
        const CurrentStream scope(Device::Type::cuda, current);
        all_reduce(a, {.group = g, .stream = named});
        all_reduce(b, {.group = g});
        gpu.add(named, a.data(), 1000, 1);
        EXPECT_EQ(a.value<std::int64_t>(named), 1003) << "the options' stream waits for the sum, too";
        EXPECT_EQ(b.value<std::int64_t>(current), 21);
    });
}

TEST_F(Streams, of_communication_and_computation_do_not_hold_each_other_up) {
    covers_on_gpu({"S7-003"});
    Flag go;
    on_gpus(2, [&](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        const OnGpu x = number(gpu, g.rank() + 1), y = number(gpu, 5);
        EXPECT_TRUE(g.rank() == 0 || go.wait());
        Work work = async::all_reduce(x, {.group = g});
        if (g.rank() == 0) {
            gpu.add({}, y.data(), 1, 1);
            EXPECT_EQ(y.value<std::int64_t>(), 6) << "computed while the other rank has not begun";
            go.set();
        }
        work.wait();
        EXPECT_EQ(x.value<std::int64_t>(), 3);
    });
}

TEST_F(Streams, wait_holds_up_the_current_stream_and_not_the_host) {
    covers("S7-005", "S7-006", "S7-008");
    Flag go;
    on_gpus(2, [&](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        const Stream mine = gpu.make_stream(), other = gpu.make_stream();
        const CurrentStream scope(Device::Type::cuda, mine);
        const OnGpu x = number(gpu, g.rank() + 1, mine);
        EXPECT_TRUE(g.rank() == 0 || go.wait());
        Work work = async::all_reduce(x, {.group = g});
        if (g.rank() == 0) {
            EXPECT_TRUE(soon([&] { return work.is_completed(); })) << "it is enqueued";
            EXPECT_TRUE(work.wait());
            work.synchronize();
            Flag behind, beside;
            gpu.call(mine, [&] { behind.set(); });
            gpu.call(other, [&] { beside.set(); });
            EXPECT_TRUE(beside.wait());
            EXPECT_FALSE(behind.wait(100ms)) << "the current stream waits for the other rank";
            go.set();
            EXPECT_TRUE(behind.wait());
        } else {
            work.wait();
        }
        EXPECT_EQ(x.value<std::int64_t>(mine), 3);
    });
}

TEST_F(Streams, a_wait_with_a_time_limit_blocks_the_host_until_the_end_or_the_limit) {
    covers("S7-007");
    Flag go;
    on_gpus(2, [&](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        const OnGpu x = number(gpu, g.rank() + 1);
        EXPECT_TRUE(g.rank() == 0 || go.wait());
        Work work = async::all_reduce(x, {.group = g});
        if (g.rank() == 0) {
            EXPECT_THROW(work.wait(150ms), Timeout);
            go.set();
        }
        EXPECT_TRUE(work.wait(20s));
        EXPECT_TRUE(work.is_success());
        const Stream unordered = gpu.make_stream();
        EXPECT_EQ(x.value<std::int64_t>(unordered), 3) << "a stream that waits for nothing sees it";
    });
}

TEST_F(Streams, futures_are_done_when_it_is_enqueued_and_their_continuations_come_after_it) {
    covers("S7-018", "S7-020");
    covers_on_gpu({"S7-022"});
    Flag go;
    on_gpus(2, [&](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        const OnGpu x = number(gpu, g.rank() + 1);
        EXPECT_TRUE(g.rank() == 0 || go.wait());
        const Work work = async::all_reduce(x, {.group = g});
        const auto future = work.get_future();
        const auto next = future.then([&](const auto& sum) {
            EXPECT_EQ(sum.value().size(), 1U);
            gpu.use();
            const Stream mine = current_stream(Device::Type::cuda);
            gpu.add(mine, x.data(), 100, 1);
            return mine;
        });
        if (g.rank() == 0) {
            EXPECT_TRUE(soon([&] { return future.done(); }));
            go.set();
        }
        const Stream callbacks = next.wait();
        EXPECT_EQ(x.value<std::int64_t>(callbacks), 103);
        EXPECT_EQ(work.get_future_result().wait(), WorkResult::success);
    });
}

TEST_F(Streams, of_high_priority_are_the_options_choice) {
    covers_on_gpu({"S1-018", "S1-019", "S1-020"});
    for (const bool high : {false, true}) {
        on_gpus(2,
                [&](const ProcessGroup& g, const Gpu& gpu) {
                    warm_up(g, gpu);
                    if (!cuda().is_fake()) return;
                    const int urgent = cuda().fake_streams_of_priority(gpu.device().index, -5);
                    EXPECT_EQ(urgent > 0, high) << urgent << " streams of high priority";
                },
                {.pg_options = NcclOptions{.is_high_priority_stream = high}});
    }
}

TEST_F(Streams, a_barrier_holds_up_the_host_until_all_ranks_have_come) {
    covers_on_gpu({"S8-033"});
    Flag came;
    on_gpus(2,
            [&](const ProcessGroup& g, const Gpu&) {
                if (g.rank() == 1) {
                    std::this_thread::sleep_for(200ms);
                    came.set();
                }
                barrier({.group = g});
                EXPECT_TRUE(came.is_set());
            },
            {.backend = "nccl"});
}

TEST_F(Streams, a_barrier_of_a_named_device_comes_after_what_its_stream_holds) {
    Flag came;
    on_gpus(2, [&](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        const Stream mine = gpu.make_stream();
        if (g.rank() == 1) {
            gpu.call(mine, [&] {
                std::this_thread::sleep_for(200ms);
                came.set();
            });
        }
        barrier({.group = g, .device_ids = {gpu.device().index}, .stream = mine});
        EXPECT_TRUE(came.is_set()) << "it is none of the host's, where the group has another backend";
        EXPECT_THROW(barrier({.group = g, .device_ids = {-1}}), InvalidArgument);
    });
}

TEST_F(Streams, operations_follow_each_other_whatever_streams_they_came_from) {
    on_gpus(3, [](const ProcessGroup& g, const Gpu& gpu) {
        const Stream streams[] = {{}, gpu.make_stream(), gpu.make_stream()};
        const OnGpu x = number(gpu, 1);
        for (int i = 0; i < 9; ++i) {
            const Stream mine = streams[i % 3];
            all_reduce(x, {.group = g, .stream = mine});
            gpu.make_wait(streams[(i + 1) % 3], mine);
        }
        EXPECT_EQ(x.value<std::int64_t>(), 19683);
    });
}

TEST_F(Streams, ranks_use_the_devices_that_their_tensors_are_on) {
    covers_on_gpu({"S14-015", "S6-011"});
    on_gpus(4,
            [&](const ProcessGroup& g, const Gpu& gpu) {
                const OnGpu x(gpu, tensor<std::int64_t>({g.rank(), 1}));
                all_reduce(x, {.group = g});
                EXPECT_EQ(x.value<std::int64_t>(), 6);
                const OnGpu y = number(gpu, g.rank());
                broadcast(y, {.src = 3, .group = g});
                EXPECT_EQ(y.value<std::int64_t>(), 3);
            },
            {.bound = false, .devices = {3, 2, 1, 0}});
}

TEST_F(Streams, coalesced_calls_are_launched_together_and_wait_together) {
    on_gpus(3, [](const ProcessGroup& g, const Gpu& gpu) {
        const Stream mine = gpu.make_stream();
        const CurrentStream scope(Device::Type::cuda, mine);
        const OnGpu a = number(gpu, g.rank(), mine), b(gpu, tensor<float>({1, 2}), mine),
                    c(gpu, zeros(int64, {3}), mine);
        Work work;
        {
            Coalescing calls({.group = g});
            all_reduce(a, {.group = g});
            all_reduce(b, {.op = ReduceOp::max, .group = g});
            all_gather_into_tensor(c, number(gpu, g.rank() + 7, mine), {.group = g});
            work = calls.end();
        }
        work.wait();
        EXPECT_EQ(a.value<std::int64_t>(mine), 3);
        EXPECT_EQ(b.values(mine).data<float>()[1], 2);
        EXPECT_EQ(c.values(mine).data<std::int64_t>()[2], 9);
        all_reduce_coalesced({a.view(), number(gpu, 1, mine).view()}, {.group = g});
        EXPECT_EQ(a.value<std::int64_t>(mine), 9);
    });
}

TEST_F(Streams, batches_of_messages_may_come_in_any_order) {
    covers_on_gpu({"S6-011"});
    on_gpus(3, [](const ProcessGroup& g, const Gpu& gpu) {
        const int right = (g.rank() + 1) % 3, left = (g.rank() + 2) % 3;
        const OnGpu to_right = number(gpu, g.rank()), to_left = number(gpu, 10 + g.rank()), from_left = number(gpu, -1),
                    from_right = number(gpu, -1);
        const auto works = batch_isend_irecv(
            {irecv_op(from_left, left, {.group = g, .tag = 1}), irecv_op(from_right, right, {.group = g, .tag = 2}),
             isend_op(to_left, left, {.group = g, .tag = 2}), isend_op(to_right, right, {.group = g, .tag = 1})});
        for (Work work : works) work.wait();
        EXPECT_EQ(from_left.value<std::int64_t>(), left);
        EXPECT_EQ(from_right.value<std::int64_t>(), 10 + right);
    });
}

TEST_F(Streams, messages_are_matched_by_tag_and_from_any_rank) {
    on_gpus(3, [](const ProcessGroup& g, const Gpu& gpu) {
        if (g.rank() == 0) {
            const OnGpu late = number(gpu, -1), early = number(gpu, -1), any = number(gpu, -1);
            Work second = irecv(late, {.src = 1, .tag = 8, .group = g});
            Work first = irecv(early, {.src = 1, .tag = 9, .group = g});
            Work whoever = irecv(any, {.tag = 4, .group = g});
            second.wait();
            first.wait();
            whoever.wait();
            EXPECT_EQ(late.value<std::int64_t>(), 80);
            EXPECT_EQ(early.value<std::int64_t>(), 90);
            EXPECT_EQ(any.value<std::int64_t>(), 40);
            EXPECT_EQ(whoever.source_rank(), 2);
            const OnGpu out = number(gpu, 123), back = number(gpu, -1);
            Work received = irecv(back, {.src = 0, .group = g}), sent = isend(out, 0, {.group = g});
            sent.wait();
            received.wait();
            EXPECT_EQ(back.value<std::int64_t>(), 123) << "a message to oneself";
        } else if (g.rank() == 1) {
            send(number(gpu, 90), 0, {.tag = 9, .group = g});
            send(number(gpu, 80), 0, {.tag = 8, .group = g});
        } else {
            send(number(gpu, 40), 0, {.tag = 4, .group = g});
        }
    });
}

TEST_F(Streams, groups_of_some_ranks_are_made_of_the_whole) {
    covers_on_gpu({"S1-021"});
    on_gpus(4, [](const ProcessGroup& g, const Gpu& gpu) {
        const ProcessGroup half = g.split({.color = g.rank() % 2, .key = -g.rank()});
        const OnGpu x = number(gpu, g.rank());
        all_reduce(x, {.group = half});
        EXPECT_EQ(x.value<std::int64_t>(), g.rank() % 2 == 0 ? 2 : 4);
        broadcast(x, {.group = half, .group_src = 0});
        const ProcessGroup three = g.split({.color = g.rank() == 3 ? -1 : 0});
        if (!three.is_non_member()) {
            const OnGpu y = number(gpu, 1);
            all_reduce(y, {.group = three});
            EXPECT_EQ(y.value<std::int64_t>(), 3);
        }
    });
}

TEST_F(Streams, a_part_of_a_group_has_options_of_its_own) {
    if (!cuda().is_fake()) GTEST_SKIP() << "by design: only the fake counts streams by priority";
    on_gpus(2, [](const ProcessGroup& g, const Gpu& gpu) {
        warm_up(g, gpu);
        EXPECT_EQ(cuda().fake_streams_of_priority(gpu.device().index, -5), 0);
        const ProcessGroup half = g.split({.color = 0, .pg_options = NcclOptions{.is_high_priority_stream = true}});
        warm_up(half, gpu);
        EXPECT_GT(cuda().fake_streams_of_priority(gpu.device().index, -5), 0);
        EXPECT_THROW((void)g.split({.color = 0, .pg_options = 7}), InvalidArgument);
    });
}

TEST_F(Streams, objects_travel_beside_tensors_on_gpus) {
    covers_on_gpu({"S9-003", "S9-004"});
    on_gpus(2, [](const ProcessGroup& g, const Gpu& gpu) {
        const OnGpu x = number(gpu, 1);
        Work work = async::all_reduce(x, {.group = g});
        const auto all = all_gather_object(std::string("rank ") + std::to_string(g.rank()), {.group = g});
        EXPECT_EQ(all, (std::vector<std::string>{"rank 0", "rank 1"}));
        work.wait();
        EXPECT_EQ(x.value<std::int64_t>(), 2);
    });
}

TEST_F(Streams, events_streams_and_memory_go_with_the_group) {
    if (!cuda().is_fake()) GTEST_SKIP() << "by design: only the fake counts what there is";
    const auto all = [] {
        return std::vector<unsigned long long>{cuda().fake_live("streams"), cuda().fake_live("events"),
                                               cuda().fake_live("memory"), cuda().fake_live("host memory")};
    };
    std::vector<unsigned long long> after_first;
    for (int i = 0; i < 3; ++i) {
        on_gpus(2, [](const ProcessGroup& g, const Gpu& gpu) {
            const OnGpu x(gpu, zeros(int16, {100})), y(gpu, zeros(float32, {100})), z(gpu, zeros(float32, {200}));
            all_reduce(x, {.group = g});
            all_reduce(y, {.op = ReduceOp::avg, .group = g});
            all_gather_into_tensor(z, y, {.group = g});
            if (g.rank() == 0)
                send(y, 1, {.group = g});
            else
                recv(y, {.src = 0, .group = g});
            (void)y.values();
        });
        if (i == 0) after_first = all();
    }
    EXPECT_TRUE(soon([&] { return all() == after_first; })) << "each group leaves something behind";
}

}  // namespace
}  // namespace tutti::test
