#include "backend/devices.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::backend {
namespace {

using test::covers;
using Type = Device::Type;
namespace fs = std::filesystem;

// A machine's files, in a folder of the test's own.
class Machine {
 public:
    Machine() : root_(fs::temp_directory_path() / ("tutti-devices-" + std::to_string(::getpid()))) {
        fs::create_directories(root_ / "dev");
        ::unsetenv("CUDA_VISIBLE_DEVICES");
    }
    ~Machine() { fs::remove_all(root_); }
    void file(const fs::path& path, const std::string& text = "") const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    const fs::path& root() const { return root_; }

 private:
    fs::path root_;
};

TEST(Devices, of_a_machine_are_those_whose_drivers_have_made_their_files) {
    covers("S1-010");
    const Machine machine;
    EXPECT_TRUE(devices_of_machine(machine.root()).empty());
    EXPECT_TRUE(devices_of_machine(machine.root() / "nowhere").empty());
    machine.file("sys/class/drm/renderD128/device/vendor", "0x10de\n");
    machine.file("sys/class/drm/card0/device/vendor", "0x8086\n");
    EXPECT_TRUE(devices_of_machine(machine.root()).empty()) << "another vendor's card, and no render node";
    machine.file("dev/nvidiactl");
    EXPECT_EQ(devices_of_machine(machine.root()), std::vector{Type::cuda});
    machine.file("dev/kfd");
    machine.file("dev/davinci_manager");
    machine.file("sys/class/drm/renderD129/device/vendor", "0x8086\n");
    EXPECT_EQ(devices_of_machine(machine.root()), (std::vector{Type::cuda, Type::rocm, Type::npu, Type::xpu}));
}

TEST(Devices, of_nvidia_that_the_environment_hides_are_not_there) {
    const Machine machine;
    machine.file("dev/nvidia0");
    for (const char* hidden : {"", "-1", "-1,0"}) {
        ::setenv("CUDA_VISIBLE_DEVICES", hidden, 1);
        EXPECT_TRUE(devices_of_machine(machine.root()).empty()) << '"' << hidden << '"';
    }
    ::setenv("CUDA_VISIBLE_DEVICES", "1,2", 1);
    EXPECT_EQ(devices_of_machine(machine.root()), std::vector{Type::cuda});
    ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Devices, have_a_usual_backend_each) {
    EXPECT_EQ(usual_backend(Type::cpu), "native");
    EXPECT_EQ(usual_backend(Type::cuda), "nccl");
    EXPECT_EQ(usual_backend(Type::rocm), "rccl");
    EXPECT_EQ(usual_backend(Type::npu), "hccl");
    EXPECT_EQ(usual_backend(Type::xpu), "xccl");
}

TEST(Devices, that_the_machine_has_name_the_group_where_native_serves_the_rest) {
    covers("A-01");
    const Devices usual{{Type::cpu, "native"}, {Type::cuda, "nccl"}};
    EXPECT_EQ(main_backend(usual, {Type::cuda}), "nccl");
    EXPECT_EQ(main_backend(usual, {}), "native");
    EXPECT_EQ(main_backend(usual, {Type::xpu}), "native");
    EXPECT_EQ(main_backend({{Type::cpu, "native"}, {Type::cuda, "mine"}}, {Type::cuda}), "native");
    EXPECT_EQ(main_backend({{Type::cpu, "gloo"}, {Type::cuda, "nccl"}}, {Type::cuda}), "gloo");
    EXPECT_EQ(main_backend({{Type::cuda, "nccl"}}, {}), "nccl");
}

TEST(Timeouts, are_ten_minutes_where_nccl_or_its_like_does_everything) {
    covers("A-03");
    using std::chrono::minutes;
    for (const char* name : {"nccl", "rccl", "hccl", "xccl"})
        EXPECT_EQ(default_timeout_of({{Type::cuda, name}}), minutes(10)) << name;
    EXPECT_EQ(default_timeout_of({{Type::cpu, "nccl"}, {Type::cuda, "nccl"}}), minutes(10));
    EXPECT_EQ(default_timeout_of({{Type::cpu, "native"}, {Type::cuda, "nccl"}}), minutes(30));
    EXPECT_EQ(default_timeout_of({{Type::cpu, "native"}}), minutes(30));
    EXPECT_EQ(default_timeout_of({{Type::cuda, "ucc"}}), minutes(30));
    EXPECT_EQ(default_timeout_of({}), minutes(30));
}

TEST(Devices, and_their_backends_have_a_text) {
    EXPECT_EQ(to_string(Devices{{Type::cpu, "native"}, {Type::rocm, "rccl"}}), "cpu:native,rocm:rccl");
    EXPECT_EQ(to_string(Devices{}), "");
}

}  // namespace
}  // namespace tutti::backend
