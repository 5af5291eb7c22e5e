# For wheels that run on systems with glibc 2.28 or newer: this machine's compiler with the headers and libraries of an older
# system, which tools/wheels puts together in TUTTI_MANYLINUX_SYSROOT. libstdc++ is that system's too, and what it lacks is linked
# in from the compiler's own static one.
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_MANYLINUX_SYSROOT)
if(NOT EXISTS "${TUTTI_MANYLINUX_SYSROOT}/usr/include")
  message(FATAL_ERROR "TUTTI_MANYLINUX_SYSROOT is \"${TUTTI_MANYLINUX_SYSROOT}\": expected the folder that tools/wheels makes; "
    "type: tools/wheels sysroot")
endif()
set(CMAKE_SYSROOT "${TUTTI_MANYLINUX_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(multiarch x86_64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/${multiarch}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

# GCC looks into this machine's folders of libraries as well: those of the sysroot come first.
set(flags "-B${CMAKE_SYSROOT}/usr/lib/${multiarch} -include ${CMAKE_CURRENT_LIST_DIR}/../python/package/older_glibc.h")
set(CMAKE_C_FLAGS_INIT "${flags}")
set(CMAKE_CXX_FLAGS_INIT "${flags}")
foreach(kind IN ITEMS EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L${CMAKE_SYSROOT}/usr/lib/${multiarch} -L${CMAKE_SYSROOT}/lib/${multiarch} -Wl,--as-needed -Wl,--gc-sections")
endforeach()
string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -Wl,--no-undefined")  # what that system lacks is an error here
set(CMAKE_C_STANDARD_LIBRARIES_INIT "-lpthread -ldl -lrt -lm")  # which glibc 2.34 made one
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "${CMAKE_C_STANDARD_LIBRARIES_INIT}")
