// Child processes of the bench, what they share with it, and what the system says of them.
//
// Threads: one forks; the board may be used by any.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::bench {

inline std::int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// A process that runs `work`, and dies with this one.
class Child {
 public:
    explicit Child(const std::function<void()>& work) : pid_(::fork()) {
        if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (pid_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        try {
            work();
            ::_exit(0);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "scale_bench: %s\n", error.what());
            ::_exit(1);
        }
    }
    Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
    Child& operator=(Child&&) = delete;
    ~Child() {
        if (pid_ > 0) (void)end(SIGKILL);
    }
    pid_t pid() const { return pid_; }
    /// Whether it has ended well.
    bool end(int signal = 0) {
        if (signal != 0) ::kill(pid_, signal);
        int status = 0;
        ::waitpid(std::exchange(pid_, 0), &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    /// Throws std::runtime_error if it has ended, and not well.
    void check() const {
        siginfo_t info{};
        if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        if (info.si_code == CLD_EXITED && info.si_status == 0) return;
        throw std::runtime_error("a process of the bench has ended with " + std::to_string(info.si_status) +
                                 ", see above");
    }

 private:
    pid_t pid_;
};

/// Steps that many threads of many processes begin at one time: each waits at the gate until the bench opens it.
class Gates {
 public:
    static constexpr int most = 16;

    Gates()
        : shared_(static_cast<Shared*>(
              ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (shared_ == MAP_FAILED) throw std::bad_alloc();
        for (auto& pipe : pipes_) {
            if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
            // So many bytes have to fit into it as threads wait.
            ::fcntl(pipe[1], F_SETPIPE_SZ, 1 << 17);
        }
    }
    Gates(const Gates&) = delete;
    Gates& operator=(const Gates&) = delete;
    ~Gates() {
        for (const auto& pipe : pipes_) ::close(pipe[0]), ::close(pipe[1]);
        ::munmap(shared_, sizeof(Shared));
    }

    /// A thread is there, and goes on when the gate opens.
    void pass(int gate) {
        ++shared_->there[index(gate)];
        char byte = 0;
        if (::read(pipes_[index(gate)][0], &byte, 1) != 1) throw std::runtime_error("the bench has ended");
    }
    /// A thread has done what comes behind the gate.
    void done(int gate) {
        const std::int64_t now = now_ns();
        std::int64_t last = shared_->last_ns[index(gate)];
        while (last < now && !shared_->last_ns[index(gate)].compare_exchange_weak(last, now)) {
        }
        ++shared_->done[index(gate)];
    }
    /// The bench: waits until all are there. Throws std::runtime_error if one of these processes ends before.
    void await_all(int gate, int threads, const std::vector<const Child*>& children) const {
        await(shared_->there[index(gate)], threads, children);
    }
    /// Opens it; returns the time.
    std::int64_t open(int gate, int threads) const {
        const std::int64_t now = now_ns();
        const std::string bytes(static_cast<std::size_t>(threads), 'g');
        if (::write(pipes_[index(gate)][1], bytes.data(), bytes.size()) != threads)
            throw std::system_error(errno, std::generic_category(), "write");
        return now;
    }
    /// Waits until so many are done; returns the time of the last in ms after `begin`.
    double await_done(int gate, int threads, std::int64_t begin, const std::vector<const Child*>& children) const {
        await(shared_->done[index(gate)], threads, children);
        return static_cast<double>(shared_->last_ns[index(gate)] - begin) * 1e-6;
    }
    /// Numbers that the processes tell the bench.
    std::atomic<std::int64_t>& number(int which) { return shared_->numbers[index(which)]; }

 private:
    struct Shared {
        std::array<std::atomic<int>, most> there, done;
        std::array<std::atomic<std::int64_t>, most> last_ns, numbers;
    };
    static std::size_t index(int gate) { return static_cast<std::size_t>(gate); }
    static void await(const std::atomic<int>& count, int threads, const std::vector<const Child*>& children) {
        while (count < threads) {
            for (const Child* child : children) child->check();
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }

    Shared* shared_;
    std::array<std::array<int, 2>, most> pipes_{};
};

/// What the system says of a process.
struct Use {
    double private_kib = 0, shared_kib = 0, threads = 0, descriptors = 0;

    static Use of(pid_t pid) {
        const std::string folder = "/proc/" + std::to_string(pid);
        std::ifstream file(folder + "/status");
        Use use;
        for (std::string line; std::getline(file, line);) {
            const auto take = [&](std::string_view name, double& value) {
                if (line.starts_with(name)) value = std::stod(line.substr(name.size()));
            };
            take("RssAnon:", use.private_kib);
            take("RssShmem:", use.shared_kib);
            take("Threads:", use.threads);
        }
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder + "/fd"))
            ++use.descriptors;
        return use;
    }
};

}  // namespace tutti::bench
