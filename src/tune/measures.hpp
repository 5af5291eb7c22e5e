// Measures: the individual measurements of this machine, each with a time limit.
//
// Threads: each function starts the threads that it needs, and ends them. A measurement that fails is 0.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace tutti::tune {

/// The CPUs on which this process may run. Measures with two threads put them on the first two.
std::vector<int> allowed_cpus();
/// A deadline `share` from now, or `whole` if that is earlier.
Deadline piece_of(const Deadline& whole, std::chrono::microseconds share);

/// Microseconds: line_us from a store on one core until another core sees it; wake_us until a thread that sleeps on it
/// (futex) runs; yield_us for giving the core away and getting it back.
double line_us(const Deadline& limit, const std::vector<int>& cpus);
double wake_us(const Deadline& limit, const std::vector<int>& cpus);
double yield_us(const Deadline& limit);
/// Microseconds of the kernel's copy of one byte (process_vm_readv).
double pull_us(const Deadline& limit);

/// A way to copy; returns false where it cannot.
using Copy = bool (*)(std::byte* to, std::byte* from, std::size_t bytes);
bool copy_here(std::byte* to, std::byte* from, std::size_t bytes);
/// Copies as from another process: the kernel's path is the same.
bool copy_by_kernel(std::byte* to, std::byte* from, std::size_t bytes);
/// The best rate of as many copies of `bytes` as the time allows, in GB/s.
double copy_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes, Copy copy);
/// The same for the kernel's copies between two huge pages; between ordinary pages if the system has no huge pages.
double copy_huge_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes);

/// One core writes by `copy`, another copies the result, in turn: the rate of both cores' work, and of the reader's
/// alone. As in a staging area they use one place after the other, more places than fit in one core's cache.
struct Handover {
    double both_gbps = 0, reading_gbps = 0;
};
Handover handover(const Deadline& limit, const std::vector<int>& cpus, Copy copy);

/// Over TCP inside this host; both throw DistError if there is no loopback. Microseconds of a byte, one way, and of the
/// calls alone.
struct Messages {
    double us = 0, send_us = 0, receive_us = 0;
};
Messages short_messages(const Deadline& limit, const std::vector<int>& cpus);
double tcp_gbps(const Deadline& limit, const std::vector<int>& cpus);

}  // namespace tutti::tune
