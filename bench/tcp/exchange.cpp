// The bare connection: "exchange SECONDS PIN listen|ADDRESS": one byte with blocking calls over one TCP connection with
// TCP_NODELAY. Prints two numbers in microseconds: half a ping-pong's round trip, and a simultaneous exchange, in which
// both sides send a byte and then receive the other's.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const bool listens = std::string(argv[3]) == "listen";
    const double seconds = std::atof(argv[1]);
    if (std::string(argv[2]) == "pin") {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(listens ? 0 : 1, &set);
        ::sched_setaffinity(0, sizeof set, &set);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(29400);
    if (!listens) ::inet_pton(AF_INET, argv[3], &address.sin_addr);
    int fd = -1;
    const int on = 1;
    if (listens) {
        const int door = ::socket(AF_INET, SOCK_STREAM, 0);
        ::setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(door, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(door, 1) != 0)
            return 1;
        fd = ::accept(door, nullptr, nullptr);
    } else {
        for (int attempt = 0; attempt < 200; ++attempt) {
            fd = ::socket(AF_INET, SOCK_STREAM, 0);
            if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
            ::close(fd);
            ::usleep(20'000);
        }
    }
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    char byte = 0;
    const auto send = [&] { return ::send(fd, &byte, 1, MSG_NOSIGNAL) == 1; };
    const auto receive = [&] { return ::recv(fd, &byte, 1, 0) == 1; };
    // The listener answers each byte until the other closes.
    if (listens) {
        while (receive()) {
            if (!send()) break;
        }
        return 0;
    }
    for (const bool exchange : {false, true}) {
        std::vector<double> samples;
        const auto end = Clock::now() + std::chrono::duration<double>(seconds);
        if (exchange) {
            // One byte ahead: now the listener's answer to the last byte and our next byte are sent at the same time,
            // and each side sends its next byte when it has received the other's last one.
            if (!send()) return 1;
        }
        while (Clock::now() < end) {
            const auto start = Clock::now();
            for (int i = 0; i < 10; ++i) {
                if (!send() || !receive()) return 1;
            }
            const std::chrono::duration<double, std::micro> us = Clock::now() - start;
            samples.push_back(us.count() / 10 / (exchange ? 1 : 2));
        }
        std::ranges::sort(samples);
        std::printf("%.3f ", samples[samples.size() / 2]);
    }
    std::puts("");
    return 0;
}
