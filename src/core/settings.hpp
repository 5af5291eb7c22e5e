// Settings: the values of the TUTTI_* variables that choose how a group works. An unset or empty variable leaves the
// choice to the fallback. All throw InvalidArgument that names the variable, its value and what is expected.
//
// Threads: as env.hpp.
#pragma once

#include <tutti/process_group.hpp>

#include <chrono>
#include <optional>
#include <string_view>

namespace tutti::settings {

/// TUTTI_TRANSPORT: auto, shm or tcp.
TransportKind transport();
/// TUTTI_DETERMINISM: fast, run_to_run or layout_invariant.
Determinism determinism();
/// "run_to_run", and back; nothing for another name.
std::string_view name_of(Determinism determinism) noexcept;
std::optional<Determinism> determinism_named(std::string_view name) noexcept;

/// How a rank waits.
enum class Wait { automatic, spin, yield, sleep };
/// TUTTI_WAIT: auto, spin, yield or sleep.
Wait wait();

/// TUTTI_PROGRESS_NICE: by how much a world's progress thread is nicer than the thread that starts it, -20 to 19; 0,
/// the default, leaves it alone.
int progress_nice();

/// TUTTI_SPREAD: whether ranks that share a CPU may move the threads of their callers to others; by default they may.
bool spread();

/// The memory that gets huge pages. all: that of `tutti::empty` and all buffers that are used often; own: the former.
enum class HugePages { all, own, none };
/// TUTTI_HUGE_PAGES: 1 for all (the default), own, or 0 for none.
HugePages huge_pages();

/// The TCP connections whose bytes have checksums. automatic: all but those over loopback.
enum class TcpChecksum { automatic, on, off };
/// TUTTI_TCP_CHECKSUM: auto, on or off.
TcpChecksum tcp_checksum();

/// TUTTI_TLS: whether connections that leave the host are encrypted, on or off (the default).
bool tls();

/// TUTTI_TIMEOUT_MS: the timeout of operations that give none, at least 1 ms; nullopt when unset.
std::optional<std::chrono::milliseconds> timeout();

/// TUTTI_LIFELINE_TIMEOUT_MS: after how long a host that does not answer counts as gone; default 13.5 s, at least 2 s.
std::chrono::milliseconds lifeline_timeout();

}  // namespace tutti::settings
