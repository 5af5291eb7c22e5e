// Unix sockets: stream sockets between processes of one host, which can hand over descriptors.
//
// Threads, descriptors, waits and errors are those of core/socket.hpp, whose functions also accept, send and receive
// here.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"

#include <sys/types.h>

#include <string_view>

namespace tutti::net {

/// Unix stream sockets in the abstract name space: nothing appears in the file system, and the name goes when
/// the last descriptor is closed. `abstract_name` is without the leading zero byte.
UniqueFd listen_unix(std::string_view abstract_name, int backlog = 512);
UniqueFd connect_unix(std::string_view abstract_name, const Deadline& deadline, const AbortFlag* abort);
/// One try, without waiting. None: `error` says why, EAGAIN where the listener's queue is full.
UniqueFd try_connect_unix(std::string_view abstract_name, int& error);
/// Hands a descriptor over, with one byte of data. recv_fd's result is CLOEXEC; more than one descriptor, or
/// none, is an error and leaks nothing.
void send_fd(int socket, int fd, const Deadline& deadline, const AbortFlag* abort);
UniqueFd recv_fd(int socket, const Deadline& deadline, const AbortFlag* abort);
/// The user at the other end of a Unix socket, as the kernel recorded it (SO_PEERCRED).
uid_t peer_uid(int unix_fd);
pid_t peer_pid(int unix_fd);

}  // namespace tutti::net
