// How long a cache line takes between the CPUs of two ranks. A virtual machine may move those at any moment, between
// one core's threads, cores with a common cache and cores without one: a measurement a second old tells little about a
// call that takes three such ways. Tutti's ranks and the peers' programs (bench/peers) include this.
#pragma once

#include "core/pause.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::bench {

/// Between ranks 0 and 1 of one start, processes or threads, on CPUs of their own.
class LineProbe {
 public:
    /// `file`: the same for both, new with this start; empty: measure() knows nothing.
    LineProbe(const std::string& file, int rank) : rank_(rank) {
        if (file.empty() || rank > 1) return;
        const int fd = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) return;
        void* const at = ::ftruncate(fd, sizeof(Lines)) == 0
                             ? ::mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                             : MAP_FAILED;
        ::close(fd);
        if (at != MAP_FAILED) lines_ = static_cast<Lines*>(at);  // zeros, as new ones hold
    }
    ~LineProbe() {
        if (lines_ != nullptr) ::munmap(lines_, sizeof(Lines));
    }
    LineProbe(const LineProbe&) = delete;
    LineProbe& operator=(const LineProbe&) = delete;

    /// Nanoseconds one way, at rank 0; 0: not known. Both ranks call it.
    double measure() {
        if (lines_ == nullptr) return 0;
        const auto limit = Clock::now() + std::chrono::seconds(10);
        double best_ns = 0;
        for (int round = 0; round < rounds; ++round) {
            const auto start = Clock::now();
            // With and without a pause between two looks: either may be the quicker one.
            for (int turn = 0; turn < turns; ++turn) {
                if (!take_turn(round % 2 == 0, limit)) return 0;
            }
            const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / turns / 2;
            best_ns = round == 0 ? ns : std::min(best_ns, ns);
        }
        return best_ns;
    }

 private:
    using Clock = std::chrono::steady_clock;
    struct Lines {
        alignas(128) std::atomic<std::uint64_t> there;
        alignas(128) std::atomic<std::uint64_t> back;
    };
    static constexpr int rounds = 4, turns = 1000;

    /// False: the other rank does not come.
    bool take_turn(bool pausing, Clock::time_point limit) {
        ++count_;
        const bool first = rank_ == 0;
        if (first) lines_->there.store(count_, std::memory_order_release);
        const std::atomic<std::uint64_t>& awaited = first ? lines_->back : lines_->there;
        for (std::uint64_t look = 1; awaited.load(std::memory_order_acquire) < count_; ++look) {
            if (pausing) pause_cpu();
            if (look % (1 << 20) == 0 && Clock::now() > limit) return false;
        }
        if (!first) lines_->back.store(count_, std::memory_order_release);
        return true;
    }

    Lines* lines_ = nullptr;
    int rank_;
    std::uint64_t count_ = 0;
};

}  // namespace tutti::bench
