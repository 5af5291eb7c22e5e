// What this process has sent, as the kernel counts.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace tutti::test {

/// Bytes that its open TCP sockets have sent once, headers of chunks included.
inline std::uint64_t tcp_bytes_sent() {
    std::uint64_t sent = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        tcp_info info{};
        socklen_t length = sizeof info;
        if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
            sent += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    }
    return sent;
}

}  // namespace tutti::test
