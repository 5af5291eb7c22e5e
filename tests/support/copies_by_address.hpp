// Whether the kernel copies what lies at an address of a process: QEMU's user mode does not, nor do some containers.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

namespace tutti::test {

inline bool copies_by_address() {
    int there = 7, here = 0;
    const iovec to{&here, sizeof here}, from{&there, sizeof there};
    return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == sizeof there && here == there;
}

inline constexpr const char* no_copies = "this kernel does not let a process read memory by its address";

}  // namespace tutti::test
