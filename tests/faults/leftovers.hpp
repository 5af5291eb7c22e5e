// LeftoverCheck: a test fixture that fails when something of tutti outlives its test: files, sockets, shared memory,
// child processes. Other jobs may run on the machine meanwhile, so only what stays for three seconds counts.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace tutti::test {

class LeftoverCheck : public ::testing::Test {
 public:
    static std::set<std::string> everything() {
        std::set<std::string> found;
        std::ifstream unix_sockets("/proc/net/unix");
        for (std::string line; std::getline(unix_sockets, line);) {
            const auto name = line.find("@tutti");
            if (name != std::string::npos) found.insert("socket " + line.substr(name));
        }
        std::error_code ignored;
        for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored))
            found.insert("shared memory " + file.path().string());
        for (const auto& file : std::filesystem::directory_iterator("/tmp", ignored)) {
            if (file.path().filename().string().starts_with("tutti")) found.insert("file " + file.path().string());
        }
        return found;
    }

 protected:
    void SetUp() override { before_ = everything(); }
    void TearDown() override {
        EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child process is left";
        std::set<std::string> stayed = everything();
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
        for (;;) {
            const std::set<std::string> now = everything();
            std::erase_if(stayed, [&](const auto& name) { return before_.contains(name) || !now.contains(name); });
            if (stayed.empty() || std::chrono::steady_clock::now() > until) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        for (const std::string& name : stayed) ADD_FAILURE() << "left behind: " << name;
    }

 private:
    std::set<std::string> before_;
};

}  // namespace tutti::test
