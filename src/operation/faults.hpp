// Faults: the faults that TUTTI_FAULTS injects into this rank during an operation, for drills: a rank that dies, stops,
// is slow, or whose network fails, at a reproducible point.
//
//     TUTTI_FAULTS="rank=3 op=all_reduce@100 kill; rank=1 op=send stop=5s step=2"
//
// Faults are separated by ";", their words by spaces:
//
//   rank=N         the rank of the world that has the fault; without it, every rank
//   op=NAME[@K]    in the K-th call of that operation on this rank ("any": of all operations); without @K in the first,
//                  and with delay in every one
//   step=S         after S turns (progress steps that moved data) of the call; without it the seed chooses S, 0 to 7.
//                  In an operation of fewer turns the fault occurs at its end
//   seed=N         for that choice (default 0)
//   kill           the process kills itself with SIGKILL
//   stop=TIME      the process stops (SIGSTOP), and continues after TIME: 5s, 200ms, 10us
//   delay=TIME     the rank sleeps for TIME at each turn of the call from that step on
//   drop           the rank's TCP connections break
//   corrupt        the next bytes sent over each TCP connection are damaged on the way: the checksum does not match
//
// Without the variable, Faults costs one test where an operation begins, and nothing on the fast path of short calls,
// which is closed while there are faults.
//
// Threads: under the world's lock, except for parsing.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport {
class Links;
}

namespace tutti::detail {

struct Fault {
    enum class Action { kill, stop, delay, drop, corrupt };
    Action action = Action::kill;
    std::chrono::nanoseconds time{};  ///< for stop and delay
    std::optional<int> rank{};        ///< none: all ranks
    std::string operation = "any";
    std::uint64_t number = 0;  ///< which call of the operation, from 1; 0: every call
    std::optional<int> step{};
    std::uint64_t seed = 0;
};
/// Parses the faults of all ranks. Throws InvalidArgument that names the word and the expected form.
std::vector<Fault> parse_faults(std::string_view text);

/// A fault to inject into an operation in progress.
struct ArmedFault {
    const Fault* fault = nullptr;
    int turns = 0;  ///< turns with moved data until the fault is injected
    bool struck = false;
};

class Faults {
 public:
    Faults(std::vector<Fault> all, int rank);
    /// Null: TUTTI_FAULTS is not set, or names only other ranks. Throws InvalidArgument.
    static std::unique_ptr<Faults> from_environment(int rank);

    /// An operation begins on this rank; returns the fault to inject into it, if any.
    std::optional<ArmedFault> begin(std::string_view operation);
    /// Call it after each attempt to move the operation's data (`moved`: whether any moved), and before its end
    /// (`ends`). Injects the fault if its turn has come. `title`: the operation's, for the log.
    void turn(ArmedFault& armed, bool moved, bool ends, transport::Links& links, const std::string& title);

 private:
    std::vector<Fault> mine_;
    int rank_;
    std::map<std::string, std::uint64_t, std::less<>> calls_;  // by operation
    std::uint64_t all_calls_ = 0;
};

}  // namespace tutti::detail
