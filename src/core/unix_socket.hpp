// Unix sockets between processes of one host: streams, which can hand over descriptors, and datagrams.
//
// The rules of core/socket.hpp for threads, descriptors, waits and errors apply here, too, and its functions also
// accept, send and receive on these sockets.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace tutti::net {

/// Unix stream sockets in the abstract name space: nothing appears in the file system, and the name is free when
/// the last descriptor is closed. `abstract_name` is without the leading zero byte.
UniqueFd listen_unix(std::string_view abstract_name, int backlog = 512);
UniqueFd connect_unix(std::string_view abstract_name, const Deadline& deadline, const AbortFlag* abort);
/// Tries once, without waiting. If it returns no socket, `error` is the errno; EAGAIN: the listener's queue is full.
UniqueFd try_connect_unix(std::string_view abstract_name, int& error);
/// Sends a descriptor, with one byte of data. The descriptor that recv_fd() returns is closed on exec; if more than one
/// descriptor or none arrives, it throws and leaks nothing.
void send_fd(int socket, int fd, const Deadline& deadline, const AbortFlag* abort);
UniqueFd recv_fd(int socket, const Deadline& deadline, const AbortFlag* abort);
/// The user at the other end of a Unix socket, as the kernel recorded it (SO_PEERCRED).
uid_t peer_uid(int unix_fd);
pid_t peer_pid(int unix_fd);

/// Binds a socket for datagrams of at most 64 KiB to `abstract_name`. DistNetworkError if the name is taken.
UniqueFd bind_unix_datagrams(std::string_view abstract_name);
/// Sends a datagram without waiting until the receiver reads it. False: no socket has this name, or its queue stays
/// full for some milliseconds.
bool send_unix_datagram(std::string_view abstract_name, std::string_view bytes) noexcept;
/// The next datagram from a process of this user or of root; nullopt if there is none. Drops other users' datagrams.
std::optional<std::string> take_unix_datagram(int fd);

}  // namespace tutti::net
