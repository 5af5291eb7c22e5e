// NVIDIA's own library, on a machine without a GPU: real_library runs this where it is there.
#include "sentences.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tutti::test {
namespace {

TEST(RealLibrary, has_every_function_and_answers_without_a_GPU) {
    in_process({}, [] {
        void* library = ::dlopen(std::getenv("TUTTI_NCCL_LIB"), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << ::dlerror();
        const auto function = [&](const char* name) {
            void* found = ::dlsym(library, name);
            EXPECT_NE(found, nullptr) << name;
            return found;
        };
        int version = 0;
        EXPECT_EQ(reinterpret_cast<int (*)(int*)>(function("ncclGetVersion"))(&version), 0);
        EXPECT_GE(version, 21800);
        char id[128] = {};
        EXPECT_EQ(reinterpret_cast<int (*)(char*)>(function("ncclGetUniqueId"))(id), 0);
        EXPECT_NE(std::count(std::begin(id), std::end(id), 0), 128);
        EXPECT_EQ(reinterpret_cast<int (*)()>(function("ncclGroupStart"))(), 0);
        EXPECT_EQ(reinterpret_cast<int (*)()>(function("ncclGroupEnd"))(), 0);
        EXPECT_EQ(::dlsym(library, "tuttiNcclHostMemory"), nullptr);
    });
}

TEST(RealLibrary, is_opened_by_the_backend_which_says_what_it_found) {
    in_process({}, [] {
        ASSERT_TRUE(is_backend_available("nccl"));
        EXPECT_TRUE(is_nccl_available());
        void* plug_in = ::dlopen(loaded_file("libtutti-backend-nccl.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
        ASSERT_NE(plug_in, nullptr);
        void* report = ::dlsym(plug_in, "tutti_backend_report");
        ASSERT_NE(report, nullptr);
        const std::string text = reinterpret_cast<const char* (*)()>(report)();
        expect_sentence(text, {"NCCL 2\\.", "libnccl\\.so\\.2"});
        EXPECT_EQ(text.find("lacks"), std::string::npos) << text;
    });
}

const RankBody make_group = [](int, const MakeGroup& make) {
    make({.timeout = 8s, .backend = "nccl", .devices = {0, 1}});
};

TEST(RealLibrary, without_a_driver_gives_one_sentence_on_every_rank) {
    const Limit limit;
    if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "by design: there is a driver here";
    for (const std::string& text : sentences_of(2, on_all({{"TUTTI_CUDA_LIB", ""}}), make_group))
        expect_sentence(text, {"libcuda\\.so\\.1"});
}

TEST(RealLibrary, that_finds_no_GPU_gives_one_sentence_with_its_code_and_file_on_every_rank) {
    const Limit limit;
    if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "by design: there is a driver here";
    const auto sentences = sentences_of(2, on_all({}), make_group);  // the plug-in's driver is the fake
    for (int rank = 0; rank < 2; ++rank) {
        expect_sentence(
            sentences[static_cast<std::size_t>(rank)],
            {"rank " + std::to_string(rank), "unhandled cuda error .*\\(1,", "NCCL 2\\.", "libnccl\\.so\\.2"});
    }
}

}  // namespace
}  // namespace tutti::test
