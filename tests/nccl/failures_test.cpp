// What goes wrong with GPUs, libraries and their versions: one sentence on every rank, which says who, in which
// operation, with which of NCCL's codes and in which file, within the time limit. Nothing hangs.
//
// Each case has processes of its own: a library and its faults are chosen once for a process.
#include "sentences.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <thread>

namespace tutti::test {
namespace {

// Of a library that stands for one that needs a GPU.
std::pair<std::string, std::string> faults(const std::string& text) {
    return {"TUTTI_NCCL_FAULTS", "missing=tuttiNcclHostMemory;" + text};
}

// An all_reduce on the rank's own GPU, and what waits for it.
void all_reduce_on_gpu(int rank, const ProcessGroup& g, int calls = 1) {
    const Gpu gpu(rank);
    const OnGpu x(gpu, tensor<std::int64_t>({rank}));
    for (int i = 0; i < calls; ++i) async::all_reduce(x, {.group = g}).wait(20s);
}
const RankBody make_and_reduce = [](int rank, const MakeGroup& make) {
    all_reduce_on_gpu(rank, make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}}), 4);
};

TEST(NcclFailures, threads_that_ask_for_the_backend_at_once_get_the_same) {
    in_process({}, [] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) threads.emplace_back([] { EXPECT_TRUE(is_backend_available("nccl")); });
        for (std::thread& thread : threads) thread.join();
    });
}

TEST(NcclFailures, a_library_that_is_not_there_is_named) {
    const Limit limit;
    for (const std::string& text :
         sentences_of(2, on_all({{"TUTTI_NCCL_LIB", "/nowhere/libnccl.so.2"}}), make_and_reduce))
        expect_sentence(text, {"nccl", "/nowhere/libnccl\\.so\\.2", "TUTTI_NCCL_LIB"});
}

TEST(NcclFailures, a_library_that_is_too_old_is_named_with_both_versions) {
    const Limit limit;
    for (const std::string& text : sentences_of(2, on_all({faults("version=2.17.1")}), make_and_reduce))
        expect_sentence(text, {"2\\.17\\.1", "2\\.18", library()});
}

TEST(NcclFailures, a_missing_function_is_named) {
    const Limit limit;
    for (const std::string& text : sentences_of(2, on_all({faults("missing=ncclCommSplit")}), make_and_reduce))
        expect_sentence(text, {"ncclCommSplit", library()});
}

TEST(NcclFailures, a_function_of_a_later_version_may_be_missing) {
    const Limit limit;
    for (const std::string& text :
         sentences_of(2, on_all({faults("missing=ncclScatter")}), [](int rank, const MakeGroup&make) {
             const ProcessGroup g = make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
             const Gpu gpu(rank);
             const OnGpu first(gpu, tensor<std::int64_t>({10})), second(gpu, tensor<std::int64_t>({11}));
             const OnGpu out(gpu, zeros(int64, {1}));
             std::vector<ConstTensorView> parts;
             if (rank == 0) parts = {first, second};
             scatter(out, parts, {.group = g});
             EXPECT_EQ(out.values().data<std::int64_t>()[0], 10 + rank) << "it is composed";
         }))
        EXPECT_EQ(text, "");
}

TEST(NcclFailures, a_machine_without_a_device_says_so) {
    const Limit limit;
    const RankBody make = [](int, const MakeGroup& make_group) {
        make_group({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
    };
    for (const std::string& text : sentences_of(2, on_all({{"FAKE_CUDA_DEVICES", "0"}}), make))
        expect_sentence(text, {"CUDA_ERROR_NO_DEVICE|no device|no CUDA-capable device", "100", "libcuda"});
}

TEST(NcclFailures, a_machine_without_a_driver_says_where_it_looked) {
    const Limit limit;
    const RankBody make = [](int, const MakeGroup& make_group) {
        make_group({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
    };
    for (const std::string& text : sentences_of(2, on_all({{"TUTTI_CUDA_LIB", "/nowhere/libcuda.so.1"}}), make))
        expect_sentence(text, {"/nowhere/libcuda\\.so\\.1", "TUTTI_CUDA_LIB"});
}

TEST(NcclFailures, a_tensor_in_host_memory_is_refused_before_anything_is_sent) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        const ProcessGroup g = make({.timeout = 8s, .backend = "cuda:nccl", .devices = {0, 1}});
        const Gpu gpu(rank);
        std::vector<float> host{1};
        const std::string text = message_of<InvalidArgument>([&] { all_reduce(host, {.group = g}); });
        expect_sentence(text, {"all_reduce", "cpu", "nccl", "cuda"});
        all_reduce_on_gpu(rank, g);
        throw InvalidArgument(text);
    };
    for (const std::string& text : sentences_of(2, on_all({}), body)) expect_sentence(text, {"all_reduce", "cpu"});
}

TEST(NcclFailures, tensors_on_several_devices_are_refused_with_both) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        const ProcessGroup g = make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
        const Gpu far(5), gpu(rank);
        const OnGpu in(gpu, tensor<float>({1})), out(far, zeros(float32, {2}));
        const std::string text = message_of<InvalidArgument>([&] { all_gather_into_tensor(out, in, {.group = g}); });
        expect_sentence(text, {"all_gather_into_tensor", "cuda:5", "cuda:" + std::to_string(rank)});
        all_reduce_on_gpu(rank, g);
        throw InvalidArgument(text);
    };
    for (const std::string& text : sentences_of(2, on_all({}), body)) expect_sentence(text, {"cuda:5"});
}

TEST(NcclFailures, a_second_device_in_one_group_is_refused_with_both) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        const ProcessGroup g = make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
        all_reduce_on_gpu(rank, g);
        all_reduce_on_gpu(rank + 4, g);
    };
    for (const std::string& text : sentences_of(2, on_all({}), body))
        expect_sentence(text, {"rank [01]", "cuda:[01]", "cuda:[45]"});
}

TEST(NcclFailures, two_ranks_on_one_device_are_named_with_the_way_out) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        const ProcessGroup g = make({.timeout = 8s, .backend = "nccl", .devices = {3, 3}});
        const Gpu gpu(3);
        const OnGpu x(gpu, tensor<std::int64_t>({rank}));
        all_reduce(x, {.group = g});
    };
    for (const std::string& text : sentences_of(2, on_all({}), body))
        expect_sentence(text, {"rank", "cuda:3|one GPU|same GPU", "NCCL_MULTI_RANK_GPU_ENABLE"});
}

TEST(NcclFailures, ranks_of_different_versions_are_named_with_them) {
    const Limit limit;
    const auto versions = [](int rank) { return Variables{faults(rank == 0 ? "version=2.23.4" : "version=2.28.3")}; };
    for (const std::string& text : sentences_of(2, versions, make_and_reduce))
        expect_sentence(text, {"2\\.23\\.4", "2\\.28\\.3", "rank", library()});
}

TEST(NcclFailures, an_error_that_the_library_reports_later_ends_the_operation_on_every_rank) {
    const Limit limit;
    const auto sentences = sentences_of(2, on_all({faults("error=remote_error after=2 rank=1")}), make_and_reduce);
    for (int rank = 0; rank < 2; ++rank) {
        expect_sentence(sentences[static_cast<std::size_t>(rank)],
                        {"rank " + std::to_string(rank), "all_reduce", "6", library()});
    }
}

TEST(NcclFailures, a_communicator_that_fails_leaves_others_at_work) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        const ProcessGroup failing = make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}, .name = "failing"});
        const ProcessGroup working = make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}, .name = "working"});
        all_reduce_on_gpu(rank, working);
        const std::string text = told([&] { all_reduce_on_gpu(rank, failing, 6); });
        const Gpu gpu(rank);
        const OnGpu x(gpu, tensor<std::int64_t>({rank + 1}));
        all_reduce(x, {.group = working});
        EXPECT_EQ(x.value<std::int64_t>(), 3);
        throw DistBackendError(text);
    };
    for (const std::string& text : sentences_of(2, on_all({faults("error=internal_error after=4")}), body))
        expect_sentence(text, {"all_reduce", "failing", "3", library()});
}

TEST(NcclFailures, an_operation_that_hangs_ends_at_its_time_limit) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        all_reduce_on_gpu(rank, make({.timeout = 2s, .backend = "nccl", .devices = {0, 1}}), 4);
    };
    const auto sentences = sentences_of(2, on_all({faults("hang=operation after=2 rank=0")}), body);
    for (int rank = 0; rank < 2; ++rank) {
        expect_sentence(sentences[static_cast<std::size_t>(rank)],
                        {"rank " + std::to_string(rank), "all_reduce", "2000 ms|2 s", library()});
    }
}

TEST(NcclFailures, a_communicator_that_is_never_made_ends_at_the_time_limit) {
    const Limit limit;
    const RankBody body = [](int rank, const MakeGroup& make) {
        all_reduce_on_gpu(rank, make({.timeout = 2s, .backend = "nccl", .devices = {0, 1}}));
    };
    for (const std::string& text : sentences_of(2, on_all({faults("hang=init")}), body))
        expect_sentence(text, {"rank", "2000 ms|2 s", library()});
}

// Ranks 0 and 2 go on without rank 1, which dies.
void go_on_without_rank_1(const Variables& variables) {
    const TemporaryFolder folder;
    Flag died;
    in_processes(
        3, [&](int) { return variables; },
        [&](int rank) {
            const Device device{Device::Type::cuda, rank};
            const FileStore store(folder.path() + "/store", 3);
            ProcessGroup g({.store = store,
                            .rank = rank,
                            .world_size = 3,
                            .timeout = 20s,
                            .name = "world",
                            .backend = "cpu:native,cuda:nccl",
                            .device_id = device});
            all_reduce_on_gpu(rank, g);
            if (rank == 1) {
                died.set();
                ::_exit(0);
            }
            EXPECT_TRUE(died.wait());
            EXPECT_NE(told([&] { all_reduce_on_gpu(rank, g, 100); }), "");
            ProcessGroup smaller = g.shrink({.timeout = 15s});
            EXPECT_EQ(smaller.size(), 2);
            EXPECT_EQ(smaller.rank(), rank / 2);
            const Gpu gpu(rank);
            const OnGpu x(gpu, tensor<std::int64_t>({rank + 1}));
            all_reduce(x, {.group = smaller});
            EXPECT_EQ(x.value<std::int64_t>(), 4);
            const OnGpu whole(gpu, zeros(int64, {2}));
            all_gather_into_tensor(whole, x, {.group = smaller});
            EXPECT_EQ(whole.values().data<std::int64_t>()[1], 4);
            std::vector<int> both{1};
            all_reduce(both, {.group = smaller});  // a rank that ends takes the memory along that the other still reads
            smaller.destroy();
        });
}

TEST(NcclFailures, the_ranks_that_are_left_go_on_with_a_communicator_that_was_shrunk_or_made_anew) {
    const Limit limit;
    go_on_without_rank_1({faults("version=2.29.2")});
    go_on_without_rank_1({faults("version=2.28.7")});
    go_on_without_rank_1({faults("version=2.28.3")});
    go_on_without_rank_1({faults("version=2.29.2;missing=ncclCommShrink")});
}

TEST(NcclFailures, a_device_that_breaks_is_named_with_the_drivers_words) {
    const Limit limit;
    const auto on_one = [](int rank) {
        return rank == 1 ? Variables{{"FAKE_CUDA_FAULTS", "operation@6=700"}} : Variables{};
    };
    const RankBody body = [](int rank, const MakeGroup& make) {
        all_reduce_on_gpu(rank, make({.timeout = 4s, .backend = "nccl", .devices = {0, 1}}), 30);
    };
    const auto sentences = sentences_of(2, on_one, body);
    expect_sentence(sentences[1], {"CUDA_ERROR_ILLEGAL_ADDRESS", "700"});
    // Its own all_reduce, which the other's end has ended, or what the other one has told before that.
    expect_sentence(sentences[0], {"rank 0|rank 1", "all_reduce|CUDA_ERROR_ILLEGAL_ADDRESS"});
}

}  // namespace
}  // namespace tutti::test
