// Explorer: runs threads of a scenario in every way that a weak memory model allows, and looks for faults.
//
// It runs the real code. The files that are checked are compiled with -fsanitize=thread, which calls a function before
// each access to memory and instead of each atomic operation, with the order that the source asks for; hooks.cpp has
// these functions, in place of the sanitizer's own. Nothing is written twice, so the model cannot drift from the code.
//
// Model. Operational, with views, as in "A promising semantics for relaxed-memory concurrency" (Kang et al., POPL 2017)
// without promises, which is close to RC11 (Lahav et al., PLDI 2017). A place that is accessed by atomics has a list of
// messages, one for each value that was stored there, in the order in which all agree. A thread has a view: of every
// place, the oldest message that it may still read. A load takes any message from there on, and each one is tried. A
// release leaves the thread's view with its message; an acquire that reads it joins that view to its own. A seq_cst
// fence joins views with those of all such fences before it. A seq_cst load or store counts as acquire or release only.
// Ordinary accesses must be ordered by what threads have acquired; two that are not, one of them a write, are a race.
//
// What it leaves out. Two stores to one place that are not ordered are a fault here, as every word has one writer at a
// time. A load never reads from a store that depends on it (no load buffering): on Arm that takes a relaxed or ordinary
// access on either side, and the ordinary ones are covered by the rule about races.
//
// Search. Depth first over which thread goes on at each load, read-modify-write, fence and system call, and over which
// message a load takes. A state that has been met before is not gone into again; it is the values that each thread has
// read, the messages, and all views. Stores need no choice: to make one early forbids nothing to anybody.
//
// Threads: one; scenarios' threads are contexts on stacks of their own.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::memory_model {

/// Memory that the threads share. It is zero, or has what was stored there before all executions, and is so again after
/// each. `name` says what lies at an offset, in words that do not depend on the execution.
struct SharedMemory {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::function<std::string(std::size_t offset)> name;
    /// Others read and write it by the kernel (process_vm_readv), whenever they like: memcpy and memmove count as
    /// relaxed loads and stores of eight bytes.
    bool by_kernel = false;
};

struct Scenario {
    std::vector<SharedMemory> memory;
    std::vector<std::function<void()>> threads;
    std::function<void()> at_end;  ///< when all threads are done: check() what came out
    std::shared_ptr<void> state;   ///< what the threads use: they are left where they are when a fault has been found
};

/// An order that the code asks for: by whom, and what, such as "released store" or "fence 1".
struct Site {
    int thread = 0;
    std::string what;
    auto operator<=>(const Site&) const = default;
};

struct Outcome {
    std::string fault;  ///< empty: none
    std::uint64_t executions = 0, states = 0;
    std::set<Site> sites;  ///< orders stronger than relaxed that were asked for
};

/// Until the first fault, or all is explored. `make` makes the same scenario each time. `weakened`: this one counts as
/// relaxed, or is left out if it is a fence.
Outcome explore(const std::function<Scenario()>& make, const std::optional<Site>& weakened = {});

// For the threads of a scenario.
/// A fault unless it holds.
void check(bool holds, const char* expected);
/// Runs `look` until it returns true. Until then it changes nothing, but for what the next look would find out again.
void begin_look();
void wait_for_news();
/// What this thread does from here on depends on nothing that it has read, but for what these bits tell.
void is_known_by(std::uint64_t bits);
template <class Look>
void look_until(Look look) {
    for (begin_look(); !look(); begin_look()) wait_for_news();
}

}  // namespace tutti::memory_model
