// The relatives of the backend "nccl", by what is theirs alone: the words and numbers of its errors, the files that are
// searched, and host memory where a library works on it. Every operation on their devices: the other tests of
// tests/nccl.
#include "nccl/device.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void expect_match(const std::string& text, const std::string& pattern) {
    EXPECT_TRUE(std::regex_search(text, std::regex(pattern))) << "no " << pattern << " in: " << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 0) << "one sentence: " << text;
}

// What each of two ranks is told, on devices of that kind.
void expect_on_both(const std::string& gpu, const std::string& pattern, bool bound = true) {
    ::setenv("TUTTI_TEST_GPU", gpu.c_str(), 1);
    const HashStore store;
    std::vector<std::string> told(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            try {
                const Gpu device(rank);
                ProcessGroupOptions options{.store = store,
                                            .rank = rank,
                                            .world_size = 2,
                                            .timeout = 10s,
                                            .name = "world",
                                            .backend = gpu_backend()};
                if (bound) options.device_id = device.device();
                ProcessGroup group(options);
                const OnGpu x(device, empty(DType::float32, Extents::of(4)));
                async::all_reduce(x, {.group = group}).wait();
                device.wait_for({});
                async::barrier({.group = group}).wait();
            } catch (const DistError& error) {
                told[static_cast<std::size_t>(rank)] = error.what();
            } catch (const std::exception& error) {
                told[static_cast<std::size_t>(rank)] = "not an error of tutti's: " + std::string(error.what());
            }
        });
    }
    for (auto& rank : ranks) rank.join();
    for (const std::string& one : told) expect_match(one, pattern);
}

// A case has a process of its own: a library is chosen once for a process, and so are its faults.
void in_case(const Variables& variables, const std::string& gpu, const std::string& pattern) {
    in_process(variables, [&] { expect_on_both(gpu, pattern); });
}

TEST(Vendors, say_who_which_operation_their_own_code_and_the_file_when_a_communicator_cannot_be_made) {
    in_case({{"TUTTI_FAKE_HCCL_FAULT", "init"}}, "npu:hccl",
            R"(hccl: .*group "world".*call network api fail \(19\), from HCCL .*libhccl-fake\.so\))");
    in_case({{"TUTTI_FAKE_ONECCL_FAULT", "init"}}, "xpu:xccl",
            R"(xccl: .*group "world".*System error \(2\), from oneCCL 2022\.2\.0 .*liboneccl-fake\.so\))");
    in_case(
        {{"TUTTI_FAKE_UCC_FAULT", "init"}}, "cuda:ucc",
        R"(ucc: .*group "world".*Resources are not available for the operation \(-5\), from UCC 1\.8\.0 .*libucc-fake\.so\))");
}

TEST(Vendors, say_who_which_operation_their_own_code_and_the_file_when_a_call_is_refused) {
    in_case({{"TUTTI_FAKE_HCCL_FAULT", "call"}}, "npu:hccl",
            R"(hccl: rank [01] of group "world".*all_reduce.*HcclAllReduce: error cqe \(21\), from HCCL)");
    in_case({{"TUTTI_FAKE_ONECCL_FAULT", "call"}}, "xpu:xccl",
            R"(xccl: rank [01] of group "world".*all_reduce.*onecclAllReduce: GPU failure \(7.*\), from oneCCL)");
}

TEST(Vendors, refuse_libraries_that_are_too_old) {
    in_case({{"TUTTI_FAKE_ONECCL_FAULT", "version"}}, "xpu:xccl",
            R"(liboneccl-fake\.so is oneCCL 2021\.17\.0: expected 2022\.2 or later)");
    in_case({{"TUTTI_FAKE_UCC_FAULT", "version"}}, "cuda:ucc",
            R"(libucc-fake\.so is UCC 1\.1\.0: expected 1\.2 or later)");
}

TEST(Vendors, name_the_library_and_the_driver_that_they_looked_for) {
    for (const auto& [gpu, variable] : {std::pair{"rocm:rccl", "TUTTI_RCCL_LIB"},
                                        {"npu:hccl", "TUTTI_HCCL_LIB"},
                                        {"xpu:xccl", "TUTTI_XCCL_LIB"},
                                        {"cuda:ucc", "TUTTI_UCC_LIB"},
                                        {"npu:hccl", "TUTTI_ACL_LIB"}}) {
        in_case({{variable, "/none/libnone.so"}}, gpu, std::string(variable) + "=/none/libnone.so cannot be loaded");
    }
}

TEST(Vendors, refuse_a_library_of_another_kind_with_what_it_lacks) {
    const char* other = std::getenv("TUTTI_ACL_LIB");
    ASSERT_NE(other, nullptr);
    in_case({{"TUTTI_HCCL_LIB", other}}, "npu:hccl", "libacl-fake.so.* lacks HcclGetRootInfo, .*HcclBatchSendRecv");
    const char* driver = std::getenv("TUTTI_HIP_LIB");
    ASSERT_NE(driver, nullptr);
    in_case({{"TUTTI_ACL_LIB", driver}}, "npu:hccl", "libhip-fake.so has no aclInit, aclGetRecentErrMsg, ");
}

// ---- Host memory --------------------------------------------------------------------------------------------------

void on_hosts(int size, const std::string& backend, const std::function<void(const ProcessGroup&)>& body) {
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ProcessGroup group(
                    {.store = store, .rank = rank, .world_size = size, .timeout = 20s, .backend = backend});
                body(group);
                group.destroy();
            } catch (const std::exception& error) {
                ADD_FAILURE() << backend << ", rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

void combine_and_exchange(const ProcessGroup& g) {
    const int me = g.rank(), n = g.size();
    std::vector<double> x(1000, me + 1.0);
    all_reduce(x, {.group = g});
    EXPECT_EQ(x.back(), n * (n + 1) / 2.0);
    std::vector<int> sent(100, me), got(100);
    auto works =
        batch_isend_irecv({isend_op(sent, (me + 1) % n, {.group = g}), irecv_op(got, (me + n - 1) % n, {.group = g})});
    for (Work& work : works) work.wait();
    EXPECT_EQ(got.front(), (me + n - 1) % n);
    EXPECT_EQ(got.back(), (me + n - 1) % n);
}

TEST(Vendors, whose_library_works_on_host_memory_serve_it) {
    for (const std::string backend : {"ucc", "xccl"}) {
        in_process({{"TUTTI_SYCL_LIB", "/none"}, {"TUTTI_CUDA_LIB", "/none"}},
                   [&] { on_hosts(3, "cpu:" + backend, combine_and_exchange); });
    }
}

TEST(Vendors, fail_the_group_when_a_collective_of_host_memory_does) {
    in_process({{"TUTTI_FAKE_UCC_FAULT", "call"}, {"TUTTI_CUDA_LIB", "/none"}}, [] {
        on_hosts(2, "cpu:ucc", [](const ProcessGroup& g) {
            std::vector<float> x(4);
            try {
                all_reduce(x, {.group = g});
                ADD_FAILURE() << "nothing was said";
            } catch (const DistError& error) {
                expect_match(error.what(),
                             R"(ucc: rank [01] of .*all_reduce.*UCC's AllReduce: Network/IO error \(-9\))");
            }
        });
    });
}

}  // namespace
}  // namespace tutti::test
