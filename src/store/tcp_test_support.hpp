// Stores over TCP, and bare connections to them, for tests.
#pragma once

#include "core/deadline.hpp"
#include "core/socket.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::test {

inline constexpr const char* store_secret = "the tests' secret";

inline TCPStore a_master(const std::string& secret = store_secret) {
    return TCPStore({.is_master = true, .timeout = std::chrono::seconds(20), .secret = secret});
}

inline TCPStore a_client(std::uint16_t port, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return TCPStore({.port = port, .timeout = timeout, .secret = store_secret});
}

inline UniqueFd connect_raw(std::uint16_t port) {
    return net::connect_tcp({"127.0.0.1", port}, Deadline::after(patience(std::chrono::seconds(10))), nullptr);
}

/// True when the other end closes within the time, which is longer under an emulator.
inline bool closes_within(int fd, Clock::duration time) {
    std::byte byte{};
    try {
        while (true) net::recv_all(fd, {&byte, 1}, Deadline::after(patience(time)), nullptr, "test");
    } catch (const DistNetworkError&) {
        return true;
    } catch (const Timeout&) {
        return false;
    }
}

}  // namespace tutti::test
