// Settings: the values of the TUTTI_* variables that choose how a group works. An unset or empty variable means the
// default. All functions throw InvalidArgument that names the variable, its value and what is expected.
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
/// Converts a Determinism to its name ("run_to_run") and back; nullopt for an unknown name.
std::string_view name_of(Determinism determinism) noexcept;
std::optional<Determinism> determinism_named(std::string_view name) noexcept;

/// How a rank waits.
enum class Wait { automatic, spin, yield, sleep };
/// TUTTI_WAIT: auto, spin, yield or sleep.
Wait wait();

/// TUTTI_PROGRESS_NICE, -20 to 19: the nice value of a world's progress thread, relative to that of the thread that
/// starts it; default 0.
int progress_nice();

/// TUTTI_SPREAD: whether a rank may move its caller's waiting thread to a core with fewer ranks, where ranks outnumber
/// cores; default: it may.
bool spread();

/// The memory that gets huge pages. own: tensors of `tutti::empty`; all: also all buffers that are used often.
enum class HugePages { all, own, none };
/// TUTTI_HUGE_PAGES: 1 for all (the default), own, or 0 for none.
HugePages huge_pages();

/// The TCP connections that carry checksums. automatic: all but those over loopback.
enum class TcpChecksum { automatic, on, off };
/// TUTTI_TCP_CHECKSUM: auto, on or off.
TcpChecksum tcp_checksum();

/// TUTTI_TLS: whether connections that leave the host are encrypted, on or off (the default).
bool tls();

/// TUTTI_TIMEOUT_MS: the timeout of operations that give none, at least 1 ms; nullopt when unset.
std::optional<std::chrono::milliseconds> timeout();

/// TUTTI_LIFELINE_TIMEOUT_MS: the time after which a host that does not answer counts as lost; default 13.5 s, at least
/// 2 s.
std::chrono::milliseconds lifeline_timeout();

}  // namespace tutti::settings
