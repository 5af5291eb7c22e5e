// The fake itself: its streams are as independent as real ones, and it refuses what a real driver refuses.
#include "device.hpp"
#include "fake_cuda/cuda.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace tutti::test {
namespace {

constexpr int invalid_value = 1, not_initialized = 3, no_device = 100, invalid_context = 201, invalid_handle = 400,
              not_ready = 600, illegal_address = 700, not_permitted = 800;

TEST(FakeCuda, needs_cuInit_and_a_current_context) {
    in_process({}, [] {
        int count = 0;
        EXPECT_EQ(cuDeviceGetCount(&count), not_initialized);
        ASSERT_EQ(cuInit(0), 0);
        ASSERT_EQ(cuDeviceGetCount(&count), 0);
        EXPECT_EQ(count, 8);
        CUstream stream = nullptr;
        CUdeviceptr memory = 0;
        EXPECT_EQ(cuStreamCreateWithPriority(&stream, 1, 0), invalid_context);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), invalid_context);
        const Gpu gpu(3);
        EXPECT_EQ(cuStreamCreateWithPriority(&stream, 1, -9), 0);
        int priority = 0;
        EXPECT_EQ(cuStreamGetPriority(stream, &priority), 0);
        EXPECT_EQ(priority, -5);
        EXPECT_EQ(fakeCudaStreamsOfPriority(3, -5), 1);
        std::thread([&] {
            EXPECT_EQ(cuStreamSynchronize(stream), invalid_context) << "another thread has none";
        }).join();
        EXPECT_EQ(cuStreamDestroy_v2(stream), 0);
        EXPECT_EQ(cuStreamSynchronize(stream), invalid_handle);
    });
}

TEST(FakeCuda, does_not_survive_a_fork_once_it_is_in_use) {
    in_process({}, [] {
        ASSERT_EQ(cuInit(0), 0);
        in_process({}, [] { EXPECT_EQ(cuInit(0), not_initialized); });
    });
}

TEST(FakeCuda, has_as_many_devices_as_it_is_told) {
    in_process({{"FAKE_CUDA_DEVICES", "0"}}, [] { EXPECT_EQ(cuInit(0), no_device); });
    in_process({{"FAKE_CUDA_DEVICES", "2"}}, [] { EXPECT_EQ(cuda().device_count(), 2); });
}

TEST(FakeCuda, streams_run_beside_each_other_and_wait_for_events_alone) {
    in_process({{"FAKE_CUDA_DELAY_US", "3000"}}, [] {
        const Gpu gpu(0);
        const Stream first = gpu.make_stream(), second = gpu.make_stream();
        const OnGpu x(gpu, tensor<std::int64_t>({1}), second);
        gpu.make_wait(first, second);
        Flag go;
        gpu.call(first, [&] { go.wait(); });
        gpu.add(first, x.data(), 1, 1);
        EXPECT_EQ(x.value<std::int64_t>(second), 1) << "the second stream overtakes the first";
        gpu.make_wait(second, first);
        Flag after;
        gpu.call(second, [&] { after.set(); });
        EXPECT_FALSE(after.wait(50ms));
        go.set();
        EXPECT_TRUE(after.wait());
        EXPECT_EQ(x.value<std::int64_t>(second), 2);
    });
}

TEST(FakeCuda, default_stream_waits_for_streams_that_are_not_non_blocking_and_they_for_it) {
    in_process({}, [] {
        const Gpu gpu(0);
        CUstream blocking = nullptr;
        ASSERT_EQ(cuStreamCreate(&blocking, 0), 0);
        Flag go, in_default, behind, beside;
        gpu.call({blocking}, [&] { go.wait(); });
        gpu.call({}, [&] { in_default.set(); });
        gpu.call({blocking}, [&] { behind.set(); });
        gpu.call(gpu.make_stream(), [&] { beside.set(); });
        EXPECT_TRUE(beside.wait());
        EXPECT_FALSE(in_default.wait(50ms));
        EXPECT_FALSE(behind.is_set());
        go.set();
        EXPECT_TRUE(behind.wait());
        EXPECT_TRUE(in_default.is_set());
    });
}

TEST(FakeCuda, events_hold_the_place_at_which_they_were_recorded) {
    in_process({}, [] {
        const Gpu gpu(1);
        const Stream stream = gpu.make_stream();
        CUevent event = nullptr;
        ASSERT_EQ(cuEventCreate(&event, 2), 0);
        EXPECT_EQ(cuEventQuery(event), 0) << "never recorded";
        Flag go;
        gpu.call(stream, [&] { go.wait(); });
        ASSERT_EQ(cuEventRecord(event, static_cast<CUstream>(stream.handle)), 0);
        EXPECT_EQ(cuEventQuery(event), not_ready);
        go.set();
        EXPECT_EQ(cuEventSynchronize(event), 0);
        EXPECT_EQ(cuEventQuery(event), 0);
        const Gpu other(2);
        EXPECT_EQ(cuEventRecord(event, nullptr), invalid_handle) << "of another device";
        EXPECT_EQ(cuEventDestroy_v2(event), 0);
        EXPECT_EQ(cuEventQuery(event), invalid_handle);
    });
}

TEST(FakeCuda, memory_knows_its_device_and_its_end) {
    in_process({}, [] {
        const Gpu gpu(5);
        CUdeviceptr memory = 0;
        void* pinned = nullptr;
        ASSERT_EQ(cuMemAlloc_v2(&memory, 100), 0);
        ASSERT_EQ(cuMemHostAlloc(&pinned, 200, 1), 0);
        int device = -1;
        unsigned type = 0;
        EXPECT_EQ(cuPointerGetAttribute(&device, 9, memory + 99), 0);
        EXPECT_EQ(device, 5);
        EXPECT_EQ(cuPointerGetAttribute(&type, 2, memory), 0);
        EXPECT_EQ(type, 2U);
        EXPECT_EQ(cuPointerGetAttribute(&type, 2, reinterpret_cast<std::uintptr_t>(pinned)), 0);
        EXPECT_EQ(type, 1U);
        EXPECT_EQ(cuPointerGetAttribute(&type, 2, reinterpret_cast<std::uintptr_t>(&type)), invalid_value);
        EXPECT_EQ(cuMemcpyHtoDAsync_v2(memory, pinned, 100, nullptr), 0);
        EXPECT_EQ(cuMemcpyHtoDAsync_v2(memory, pinned, 101, nullptr), invalid_value);
        EXPECT_EQ(cuMemcpyDtoHAsync_v2(pinned, reinterpret_cast<std::uintptr_t>(pinned), 8, nullptr), invalid_value);
        EXPECT_EQ(cuMemFree_v2(memory), 0);
        EXPECT_EQ(cuMemFree_v2(memory), invalid_value);
        EXPECT_EQ(cuMemFreeHost(pinned), 0);
        EXPECT_EQ(fakeCudaLive("memory") + fakeCudaLive("host memory"), 0U);
    });
}

TEST(FakeCuda, fails_on_request_and_stays_broken) {
    in_process({{"FAKE_CUDA_FAULTS", "cuMemAlloc@2=2;operation@3=700"}}, [] {
        const Gpu gpu(0);
        CUdeviceptr memory = 0;
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), 0);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), 2);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), 0);
        EXPECT_EQ(fakeCudaCalls("cuMemAlloc"), 3U);
        int done = 0;
        Flag go;  // a device that is broken already would refuse the operations behind the third
        gpu.call({}, [&] { go.wait(); });
        for (int i = 0; i < 3; ++i) gpu.call({}, [&] { ++done; });
        go.set();
        EXPECT_EQ(cuStreamSynchronize(nullptr), illegal_address);
        EXPECT_EQ(done, 1);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), illegal_address);
        const char* name = nullptr;
        EXPECT_EQ(cuGetErrorName(illegal_address, &name), 0);
        EXPECT_STREQ(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
        const Gpu other(1);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 8), 0) << "other devices work";
    });
}

TEST(FakeCuda, host_functions_may_not_call_the_driver) {
    in_process({}, [] {
        const Gpu gpu(0);
        int result = 0;
        gpu.call({}, [&] { result = cuStreamSynchronize(nullptr); });
        gpu.wait_for({});
        EXPECT_EQ(result, not_permitted);
    });
}

}  // namespace
}  // namespace tutti::test
