// Processes that compute for as long as this object lives, beside the measurement.
#pragma once

#include <sys/types.h>

#include <vector>

namespace tutti::bench {

class Computing {
 public:
    /// Throws std::system_error where a process cannot be had.
    explicit Computing(int processes);
    ~Computing() { end(); }
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

 private:
    void end() noexcept;

    std::vector<pid_t> processes_;
};

}  // namespace tutti::bench
