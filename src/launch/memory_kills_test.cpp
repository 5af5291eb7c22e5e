#include "launch/memory_kills.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace tutti::launch {
namespace {

namespace fs = std::filesystem;

class Kills : public testing::Test {
 protected:
    Kills() {
        std::string name = (fs::temp_directory_path() / "memory_kills.XXXXXX").string();
        root_ = ::mkdtemp(name.data());
    }
    ~Kills() override { fs::remove_all(root_); }
    void write(const fs::path& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    std::string after(const fs::path& path, const std::string& text) const {
        const MemoryKills kills(root_);
        EXPECT_EQ(kills.since().count, 0U);
        write(path, text);
        return in_words(kills.since());
    }
    fs::path root_;
};

TEST_F(Kills, are_those_of_the_own_control_group) {
    write("proc/self/cgroup", "0::/user.slice/job.scope\n");
    write("sys/fs/cgroup/memory.events", "low 0\noom_kill 70\n");
    write("sys/fs/cgroup/user.slice/job.scope/memory.events",
          "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n");
    const std::string said = after("sys/fs/cgroup/user.slice/job.scope/memory.events", "oom 2\noom_kill 3\n");
    EXPECT_EQ(said,
              "the kernel's out-of-memory killer has ended 1 process of this control group meanwhile (oom_kill in " +
                  (root_ / "sys/fs/cgroup/user.slice/job.scope/memory.events").string() + ")");
}

TEST_F(Kills, are_found_in_a_container_that_sees_its_group_as_the_root) {
    write("proc/self/cgroup", "0::/../../pod/container\n");
    write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
    EXPECT_NE(after("sys/fs/cgroup/memory.events", "oom_kill 2\n").find("ended 2 processes"), std::string::npos);
}

TEST_F(Kills, are_found_by_version_1_of_control_groups) {
    write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n1:name=systemd:/y\n0::/z\n");
    write("sys/fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    EXPECT_NE(after("sys/fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n")
                  .find("of this control group"),
              std::string::npos);
}

TEST_F(Kills, are_those_of_the_host_where_the_group_has_none) {
    write("proc/self/cgroup", "0::/\n");
    write("proc/vmstat", "nr_free_pages 100\noom_kill 5\nzone_reclaim_failed 0\n");
    EXPECT_NE(after("proc/vmstat", "nr_free_pages 90\noom_kill 6\n").find("1 process of this host"), std::string::npos);
}

TEST_F(Kills, are_none_where_nothing_tells) {
    EXPECT_EQ(in_words(MemoryKills(root_).since()), "");
}

}  // namespace
}  // namespace tutti::launch
