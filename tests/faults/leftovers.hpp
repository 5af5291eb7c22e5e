// LeftoverCheck: a test fixture that fails when something of tutti outlives its test: processes, sockets, shared
// memory, files. Other jobs may run on the machine meanwhile, so it looks at the test's own processes: this one and all
// that descend from it (a process whose parent has ended becomes a child of this one). Of shared folders it looks at
// those that this test does not share with others (tests/support/alone).
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

class LeftoverCheck : public ::testing::Test {
 public:
    static std::set<std::string> everything() {
        std::set<std::string> found, inodes;
        for (const pid_t pid : own_processes()) {
            if (pid != ::getpid()) found.insert("process " + std::to_string(pid));
            look_at_descriptors(pid, found, inodes);
        }
        std::ifstream unix_sockets("/proc/net/unix");
        for (std::string line; std::getline(unix_sockets, line);) {
            std::istringstream text(line);
            const std::vector<std::string> fields(std::istream_iterator<std::string>(text), {});
            if (fields.size() == 8 && fields[7].starts_with("@tutti") && inodes.contains(fields[6]))
                found.insert("socket " + fields[7]);
        }
        std::error_code ignored;
        for (const char* const folder : {"/dev/shm", "/tmp"}) {
            if (!is_own(folder)) continue;
            for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
                if (file.path().filename().string().starts_with("tutti")) found.insert("file " + file.path().string());
            }
        }
        return found;
    }

 protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        before_ = everything();
    }
    // A process that ends by itself within three seconds does not count as left behind.
    void TearDown() override {
        std::set<std::string> stayed;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
        for (;;) {
            while (::waitpid(-1, nullptr, WNOHANG) > 0) {
            }
            stayed = everything();
            std::erase_if(stayed, [&](const auto& name) { return before_.contains(name); });
            if (stayed.empty() || std::chrono::steady_clock::now() > until) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        for (const std::string& name : stayed) ADD_FAILURE() << "left behind: " << name;
    }

 private:
    static std::set<pid_t> own_processes() {
        std::multimap<pid_t, pid_t> children;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
            std::ifstream file(entry.path() / "stat");
            std::string text;
            // The name in brackets may hold anything; behind it come the state and the parent.
            if (!std::getline(file, text) || text.rfind(')') == std::string::npos) continue;
            std::istringstream behind(text.substr(text.rfind(')') + 1));
            std::string state;
            pid_t parent = 0;
            behind >> state >> parent;
            children.emplace(parent, static_cast<pid_t>(std::stol(text)));
        }
        std::set<pid_t> own;
        for (std::vector<pid_t> open{::getpid()}; !open.empty();) {
            const pid_t one = open.back();
            open.pop_back();
            if (!own.insert(one).second) continue;
            const auto [first, last] = children.equal_range(one);
            for (auto child = first; child != last; ++child) open.push_back(child->second);
        }
        return own;
    }
    static void look_at_descriptors(pid_t pid, std::set<std::string>& found, std::set<std::string>& inodes) {
        std::error_code ignored;
        const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/fd";
        for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
            const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
            if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
            if (target.starts_with("/memfd:tutti")) found.insert("shared memory " + target);
        }
    }
    // It is not that of the machine's first process.
    static bool is_own(const std::string& folder) {
        struct stat here {
        }, there{};
        return ::stat(folder.c_str(), &here) == 0 && ::stat(("/proc/1/root" + folder).c_str(), &there) == 0 &&
               here.st_dev != there.st_dev;
    }

    std::set<std::string> before_;
};

}  // namespace tutti::test
