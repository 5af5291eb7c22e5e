// patience(1s): how long a test waits for what should happen within a second.
#pragma once

#include <chrono>

namespace tutti::test {

/// Under an emulator (QEMU's user mode, for other CPUs) everything takes about ten times as long.
#ifdef TUTTI_EMULATED
inline constexpr int slowness = 10;
#else
inline constexpr int slowness = 1;
#endif

/// `limit` on the machine that the tests were built on; ten times as long under an emulator. Tests use it for every
/// upper bound of a time, so that no other place has to know how quick this machine is.
template <class Rep, class Period>
constexpr std::chrono::duration<Rep, Period> patience(std::chrono::duration<Rep, Period> limit) {
    return limit * slowness;
}

}  // namespace tutti::test
