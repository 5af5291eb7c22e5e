// Place: where a process runs, and how it ended, as far as other processes can tell. Free functions; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::rendezvous {

/// Identifies this machine, and the name spaces in which its processes can share memory.
std::string host_key();
/// The part of a host_key that is equal for all processes of one machine, in any name spaces.
std::string machine_of(std::string_view host_key);
/// The part that is equal for processes with the same network interfaces: they reach each other by loopback addresses.
std::string network_of(std::string_view host_key);
/// Identifies the pid name space of this process ("process space"): in it, process ids mean the same.
std::uint64_t process_space();

/// How a process in this process space ended: "killed by SIGKILL" or "exited with status 3" while its parent has not
/// collected it, "its process has ended" after that; nothing if it still lives after `patience`.
std::optional<std::string> end_of(int process, std::chrono::milliseconds patience = std::chrono::milliseconds(30));

/// When a process in this process space started, in the system's ticks since it booted: tells it from a later process
/// of that number. 0: the process is not there, or the system hides it.
std::uint64_t start_of(int process);

/// Whether a process in this process space is stopped, by a signal or by a debugger.
bool is_stopped(int process);

}  // namespace tutti::rendezvous
