// What -fsanitize=thread has the compiler call, and the functions of libc that the checked code calls: inside a
// scenario they are the explorer's, else they do what they say.
#include "machine.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <ctime>

namespace model = tutti::memory_model;

namespace {

std::memory_order order_of(int order) {
    return static_cast<std::memory_order>(order);
}

template <class T>
T modify(volatile T* at, int order, auto operation) {
    return static_cast<T>(model::modify(at, sizeof(T), order_of(order), [&](std::uint64_t& value) {
        value = static_cast<T>(operation(static_cast<T>(value)));
        return true;
    }));
}

template <class T>
bool compare_exchange(volatile T* at, T* expected, T desired, int order) {
    bool changed = false;
    const T before = static_cast<T>(model::modify(at, sizeof(T), order_of(order), [&](std::uint64_t& value) {
        changed = static_cast<T>(value) == *expected;
        if (changed) value = desired;
        return changed;
    }));
    if (!changed) *expected = before;
    return changed;
}

void access(const void* at, std::size_t bytes, bool writes) {
    if (bytes > 0 && model::is_shared(at)) model::access(at, bytes, writes);
}

// What the kernel copies, in words.
void copy_by_kernel(void* to, const void* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
        const auto* source = static_cast<const std::uint64_t*>(from) + at / sizeof(std::uint64_t);
        auto* target = static_cast<std::uint64_t*>(to) + at / sizeof(std::uint64_t);
        const auto word =
            model::is_by_kernel(source) ? model::load(source, sizeof *source, std::memory_order_relaxed) : *source;
        if (model::is_by_kernel(target))
            model::store(target, sizeof word, word, std::memory_order_relaxed);
        else
            *target = word;
    }
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compiler's
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* at, unsigned long bytes) {
    access(at, bytes, false);
}
void __tsan_write_range(void* at, unsigned long bytes) {
    access(at, bytes, true);
}

#define PLAIN(bytes)                               \
    void __tsan_read##bytes(void* at) {            \
        access(at, bytes, false);                  \
    }                                              \
    void __tsan_write##bytes(void* at) {           \
        access(at, bytes, true);                   \
    }                                              \
    void __tsan_unaligned_read##bytes(void* at) {  \
        access(at, bytes, false);                  \
    }                                              \
    void __tsan_unaligned_write##bytes(void* at) { \
        access(at, bytes, true);                   \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define FETCH(bits, type, name, expression, real)                                                    \
    type __tsan_atomic##bits##_fetch_##name(volatile type* at, type operand, int order) {            \
        if (model::is_shared(at))                                                                    \
            return modify(at, order, [operand](type old) { return static_cast<type>(expression); }); \
        return real(at, operand, __ATOMIC_SEQ_CST);                                                  \
    }
#define ATOMIC(bits, type)                                                                                        \
    type __tsan_atomic##bits##_load(const volatile type* at, int order) {                                         \
        if (model::is_shared(at)) return static_cast<type>(model::load(at, sizeof(type), order_of(order)));       \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                             \
    void __tsan_atomic##bits##_store(volatile type* at, type value, int order) {                                  \
        if (model::is_shared(at))                                                                                 \
            model::store(at, sizeof(type), value, order_of(order));                                               \
        else                                                                                                      \
            __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                             \
    type __tsan_atomic##bits##_exchange(volatile type* at, type value, int order) {                               \
        if (model::is_shared(at)) return modify(at, order, [value](type) { return value; });                      \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                             \
    FETCH(bits, type, add, old + operand, __atomic_fetch_add)                                                     \
    FETCH(bits, type, sub, old - operand, __atomic_fetch_sub)                                                     \
    FETCH(bits, type, and, old& operand, __atomic_fetch_and)                                                      \
    FETCH(bits, type, or, old | operand, __atomic_fetch_or)                                                       \
    FETCH(bits, type, xor, old ^ operand, __atomic_fetch_xor)                                                     \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* at, type* expected, type desired, int order, \
                                                      int) {                                                      \
        if (model::is_shared(at)) return compare_exchange(at, expected, desired, order) ? 1 : 0;                  \
        return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
    }                                                                                                             \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* at, type* expected, type desired, int order,   \
                                                    int failure) {                                                \
        return __tsan_atomic##bits##_compare_exchange_strong(at, expected, desired, order, failure);              \
    }
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)

void __tsan_atomic_thread_fence(int order) {
    if (model::exploring())
        model::fence(order_of(order), __builtin_return_address(0));
    else
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

// By the linker's --wrap.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
long __real_syscall(long number, ...);
int __real_sched_yield();
int __real_nanosleep(const timespec* time, timespec* left);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
    if (model::is_by_kernel(to) || model::is_by_kernel(from)) {
        copy_by_kernel(to, from, bytes);
        return to;
    }
    access(from, bytes, false);
    access(to, bytes, true);
    return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
    if (model::is_by_kernel(to) || model::is_by_kernel(from)) {
        copy_by_kernel(to, from, bytes);  // no scenario has areas that overlap
        return to;
    }
    access(from, bytes, false);
    access(to, bytes, true);
    return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
    access(to, bytes, true);
    return __real_memset(to, value, bytes);
}
// Clang calls these.
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
    return __wrap_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
    return __wrap_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
    return __wrap_memset(to, value, bytes);
}

long __wrap_syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long argument[6];
    for (long& a : argument) a = va_arg(list, long);
    va_end(list);
    if (number == SYS_membarrier) {  // also where the kernel has none
        if (model::exploring() && argument[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED) model::fence_for_all();
        return 0;
    }
    if (number == SYS_futex && model::exploring()) {
        const auto* at = reinterpret_cast<const volatile void*>(argument[0]);
        if (argument[1] == FUTEX_WAKE) {
            model::futex_wake(at);
            return 0;
        }
        if (model::futex_wait(at, static_cast<std::uint32_t>(argument[2]))) return 0;
        errno = EAGAIN;
        return -1;
    }
    return __real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
// What a rank asks before it says where its buffers lie: all of them are this process's, whatever this kernel allows.
ssize_t __wrap_process_vm_readv(pid_t, const iovec* to, unsigned long, const iovec* from, unsigned long,
                                unsigned long) {
    __real_memcpy(to->iov_base, from->iov_base, from->iov_len);
    return static_cast<ssize_t>(from->iov_len);
}
int __wrap_sched_yield() {
    if (!model::exploring()) return __real_sched_yield();
    model::wait_for_last_load();
    return 0;
}
int __wrap_nanosleep(const timespec* time, timespec* left) {
    if (!model::exploring()) return __real_nanosleep(time, left);
    model::wait_for_last_load();
    return 0;
}
}
// NOLINTEND(bugprone-reserved-identifier)
