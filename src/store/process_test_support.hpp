// Files and child processes for the stores' tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace tutti::test {

/// A path for one test; the destructor deletes the file.
struct TempPath {
    explicit TempPath(const std::string& name)
        : path(::testing::TempDir() + "tutti_store_failure_" + std::to_string(::getpid()) + name) {}
    ~TempPath() { ::unlink(path.c_str()); }
    TempPath(const TempPath&) = delete;
    TempPath& operator=(const TempPath&) = delete;
    std::string path;
};

/// A child process that runs `work` and exits with its result; the destructor kills it.
class Child {
 public:
    explicit Child(const std::function<int()>& work) : pid_(::fork()) {
        if (pid_ != 0) return;
        try {
            ::_exit(work());
        } catch (const std::exception& error) {
            std::fprintf(stderr, "child: %s\n", error.what());
            ::_exit(99);
        }
    }
    ~Child() {
        if (pid_ > 0) kill();
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    void kill() {
        ::kill(pid_, SIGKILL);
        (void)wait();
    }
    int wait() {
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    pid_t pid() const { return pid_; }

 private:
    pid_t pid_;
};

struct Pipe {
    Pipe() {
        if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    }
    ~Pipe() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    template <class T>
    void put(const T& value) const {
        if (::write(ends[1], &value, sizeof value) != sizeof value) std::abort();
    }
    template <class T>
    T take() const {
        T value{};
        if (::read(ends[0], &value, sizeof value) != sizeof value) std::abort();
        return value;
    }
    int ends[2];
};

inline void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace tutti::test
