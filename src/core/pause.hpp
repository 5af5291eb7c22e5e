// A spinning loop's hint to the CPU.
#pragma once

namespace tutti {

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    // Most cores treat `yield` as a no-op. `isb` takes some 10 ns, about as long as `pause` on x86.
    asm volatile("isb" ::: "memory");
#endif
}

}  // namespace tutti
