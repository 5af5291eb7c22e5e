# 64-bit Arm, by Debian's cross compiler. `make arm` unpacks the libraries' packages for arm64 into TUTTI_ARM_SYSROOT, and
# what was built runs under QEMU's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_ARM_SYSROOT)
if(NOT TUTTI_ARM_SYSROOT)
  set(TUTTI_ARM_SYSROOT "$ENV{TUTTI_ARM_SYSROOT}")
endif()
if(NOT EXISTS "${TUTTI_ARM_SYSROOT}/usr/include")
  message(FATAL_ERROR "TUTTI_ARM_SYSROOT is \"${TUTTI_ARM_SYSROOT}\": expected a folder with Debian's packages for arm64; "
    "type: tools/arm build/arm sysroot")
endif()
set(CMAKE_SYSROOT "${TUTTI_ARM_SYSROOT}")
# Headers and libraries are the other machine's, programs are this one's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${TUTTI_ARM_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${TUTTI_ARM_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${TUTTI_ARM_SYSROOT}/usr/share/pkgconfig")

# The program that runs what was built: tests that CTest starts, and those that GoogleTest lists at build time.
find_program(TUTTI_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(TUTTI_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${TUTTI_QEMU};-L;${TUTTI_ARM_SYSROOT}")
endif()
