// Measures: the single measurements of this machine, each within the time that it gets.
//
// Threads: each function starts those that it needs, and ends them. A measure that cannot be taken is 0.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace tutti::tune {

/// The CPUs on which this process may run. Measures with two threads put them on the first two.
std::vector<int> allowed_cpus();
/// A piece of the time that is left: at most `share`, and not beyond `whole`.
Deadline piece_of(const Deadline& whole, std::chrono::microseconds share);

/// Microseconds from a store on one core until another core sees it, and until a thread that sleeps for it (futex)
/// runs.
double line_us(const Deadline& limit, const std::vector<int>& cpus);
double wake_us(const Deadline& limit, const std::vector<int>& cpus);
double yield_us(const Deadline& limit);
/// Microseconds of the kernel's copy of one byte (process_vm_readv).
double pull_us(const Deadline& limit);

/// A way to copy; returns false where it cannot.
using Copy = bool (*)(std::byte* to, std::byte* from, std::size_t bytes);
bool copy_here(std::byte* to, std::byte* from, std::size_t bytes);
/// As from another process: the kernel goes the same way.
bool copy_by_kernel(std::byte* to, std::byte* from, std::size_t bytes);
/// The best of as many copies of `bytes` as there is time for, GB/s.
double copy_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes, Copy copy);
/// By the kernel, between two huge pages; between ordinary ones where the system has no others.
double copy_huge_gbps(const Deadline& whole, std::chrono::microseconds share, std::size_t bytes);

/// One core writes by `copy`, another copies the result, in turn; the work of both, and the reader's alone. As in a
/// staging area they use one place after the other, more than one core's cache has room for.
struct Handover {
    double both_gbps = 0, reading_gbps = 0;
};
Handover handover(const Deadline& limit, const std::vector<int>& cpus, Copy copy);

/// Over TCP inside this host; these throw DistError where there is no loopback. One way of a byte, and the calls alone.
struct Messages {
    double us = 0, send_us = 0, receive_us = 0;
};
Messages short_messages(const Deadline& limit, const std::vector<int>& cpus);
double tcp_gbps(const Deadline& limit, const std::vector<int>& cpus);

}  // namespace tutti::tune
