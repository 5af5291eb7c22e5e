// Helpers for tests of Tls in memory: secret, identity, deadline, and moving bytes.
#pragma once

#include "core/deadline.hpp"
#include "security/secret.hpp"
#include "security/tls.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::security::tls_tests {

using Bytes = std::vector<std::byte>;

inline constexpr std::string_view identity = "tutti 1 test rank 0 to rank 1";

inline Secret the_secret() {
    return Secret::from_text("a secret for tests");
}
inline Deadline soon() {
    return Deadline::after(std::chrono::seconds(20));
}

inline Bytes take_output(Tls& tls) {
    const auto bytes = tls.output().bytes();
    Bytes taken(bytes.begin(), bytes.end());
    tls.output().remove(taken.size());
    return taken;
}

inline void give(Tls& tls, std::span<const std::byte> bytes) {
    tls.input().append(bytes);
    tls.go_on();
}

}  // namespace tutti::security::tls_tests
