// Errors on request, and a count of calls.
//
// FAKE_CUDA_FAULTS="cuMemAlloc@2=2;cuEventQuery@5+=700;operation@10=719": the second cuMemAlloc returns 2, every
// cuEventQuery from the fifth on 700; the tenth operation that a stream carries out breaks its device, of which all
// functions return 719 from then on. A fault's number counts from when it was asked for.
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fake_cuda {

class Faults {
 public:
    /// Replaces those there are. Ends the program for what is not of the form above: a test must not pass by a typo.
    void set(const std::string& text);
    /// Counts a call of `name`; its error, or 0.
    int on_call(const std::string& name);
    std::uint64_t calls(const std::string& name) const;

 private:
    struct Fault {
        std::string name;
        std::uint64_t at = 1;
        bool and_later = false;
        int error = 0;
        std::uint64_t seen = 0;
    };
    mutable std::mutex mutex_;
    std::vector<Fault> faults_;
    std::map<std::string, std::uint64_t> calls_;
};

}  // namespace fake_cuda
