# Third-party libraries, all from Debian 12 (tools/install-deps installs them).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h REQUIRED)  # headers only
find_path(MSGPACK_INCLUDE_DIR msgpack.hpp REQUIRED)     # headers only; a C++ interface, without Boost
add_library(tutti-msgpack INTERFACE)
target_include_directories(tutti-msgpack SYSTEM INTERFACE "${MSGPACK_INCLUDE_DIR}")
target_compile_definitions(tutti-msgpack INTERFACE MSGPACK_NO_BOOST)
if(TUTTI_TESTS)
  find_package(GTest REQUIRED)
endif()
