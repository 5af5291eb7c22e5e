// Included ahead of every file of a wheel that is built for glibc 2.28 (cmake/manylinux.cmake): the functions of newer
// ones that tutti and libstdc++'s headers use. On a system that has them the wheel uses the system's where it matters.
#ifndef TUTTI_OLDER_GLIBC_H
#define TUTTI_OLDER_GLIBC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
extern "C" {
#endif

// 2.30. Without it a clock that is set while a thread waits moves the end of that wait.
extern int tutti_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t,
                                const struct timespec*) __asm__("pthread_cond_clockwait") __attribute__((weak));
static inline int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                         const struct timespec* end) {
    if (tutti_cond_clockwait) return tutti_cond_clockwait(condition, mutex, clock, end);
    struct timespec now, then;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec += end->tv_sec - now.tv_sec;
    then.tv_nsec += end->tv_nsec - now.tv_nsec;
    if (then.tv_nsec < 0) then.tv_nsec += 1000000000, --then.tv_sec;
    if (then.tv_nsec >= 1000000000) then.tv_nsec -= 1000000000, ++then.tv_sec;
    return pthread_cond_timedwait(condition, mutex, &then);
}

// 2.32
extern const char* const sys_sigabbrev[];
static inline const char* sigabbrev_np(int signal) {
    return signal > 0 && signal < 32 ? sys_sigabbrev[signal] : NULL;
}

// 2.34
static inline int close_range(unsigned first, unsigned last, int flags) {
    return (int)syscall(__NR_close_range, first, last, flags);
}
static inline pid_t _Fork(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

#ifdef __cplusplus
}
#endif
#endif
