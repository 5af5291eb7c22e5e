#!/usr/bin/env bash
# Installs a build tree below itself and builds the ten-line consumers, in C++ and C, against it: find_package (shared, static) and
# pkg-config (shared, static). The installed tree is moved once, since nothing in it may name the place it was made for.
# Usage: consumer_test.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

fail() { echo "consumer: $*" >&2; exit 1; }
expect() {  # expect NAME PROGRAM: it runs, finds only libraries that exist, and says what it should
  local output
  output=$("$2") || fail "$1: the program ended with status $?"
  [ "$output" = "tutti $version: 42" ] || fail "$1: printed '$output'"
  echo "consumer: $1: $output"
}

for file in include/tutti/tutti.hpp include/tutti/tutti.h lib/libtutti.so lib/libtutti.a lib/pkgconfig/tutti.pc \
            share/doc/tutti/LICENSE share/doc/tutti/docs/backends.md lib/cmake/tutti/tuttiConfig.cmake lib/cmake/tutti/tuttiConfigVersion.cmake; do
  [ -e "$prefix/$file" ] || fail "$file is not installed"
done
[ "$(cd "$prefix" && echo *)" = "bin include lib share" ] || fail "the prefix has $(cd "$prefix" && echo *): expected bin include lib share"
if grep -rIl -e "$build" -e "$source" "$prefix"; then fail "the files above name the machine they were built on"; fi
soname=$(readelf -d "$prefix/lib/libtutti.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[[ $soname == libtutti.so.* ]] || fail "the shared library's SONAME is '$soname'"
[ -e "$prefix/lib/$soname" ] || fail "lib/$soname is not installed"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
version=$(pkg-config --modversion tutti)

for target in tutti tutti-static; do
  cmake -S "$source/tests/house/consumer" -B "$work/$target" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_PREFIX_PATH="$prefix" -DTUTTI_TARGET="tutti::$target" >"$work/$target.log" 2>&1 \
    || { cat "$work/$target.log"; fail "find_package, $target: configuring failed"; }
  cmake --build "$work/$target" >>"$work/$target.log" 2>&1 || { cat "$work/$target.log"; fail "$target: building failed"; }
  expect "find_package, $target" "$work/$target/consumer"
  expect "find_package, $target, C" "$work/$target/consumer_c"
done

compile=(c++ -std=c++20 "$source/tests/house/consumer/main.cpp")
# shellcheck disable=SC2046  # flags are words
"${compile[@]}" -o "$work/pc-shared" $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$prefix/lib"
expect "pkg-config, shared" "$work/pc-shared"
private=$(pkg-config --static --libs-only-l tutti | sed 's/-ltutti//')
# shellcheck disable=SC2046,SC2086
"${compile[@]}" -o "$work/pc-static" $(pkg-config --cflags tutti) "$prefix/lib/libtutti.a" $private -pthread
expect "pkg-config, static" "$work/pc-static"
compile_c=(cc -std=c11 -Wall -Wextra -pedantic-errors -Werror "$source/tests/house/consumer/main.c")
# shellcheck disable=SC2046
"${compile_c[@]}" -o "$work/pc-shared-c" $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$prefix/lib"
expect "pkg-config, shared, C" "$work/pc-shared-c"
# shellcheck disable=SC2046,SC2086
"${compile_c[@]}" -o "$work/pc-static-c" -DTUTTI_STATIC $(pkg-config --cflags tutti) "$prefix/lib/libtutti.a" $private -pthread
expect "pkg-config, static, C" "$work/pc-static-c"

# Older C++ gets one sentence for the C++ interface, and can use C's.
old=(c++ -std=c++17 -fsyntax-only -x c++ $(pkg-config --cflags tutti) -)
said=$(echo '#include <tutti/tutti.hpp>' | "${old[@]}" 2>&1) && fail "C++17 compiles tutti/tutti.hpp"
[ "$(grep -c ': error:' <<<"$said")" = 1 ] && grep -q 'needs C++20' <<<"$said" || fail "C++17 gets: $said"
echo '#include <tutti/tutti.h>
static_assert(TUTTI_VERSION >= TUTTI_MAKE_VERSION(0, 1, 0) && sizeof(TUTTI_VERSION_STRING) > 5, "");' | "${old[@]}" || fail "C++17 cannot use tutti/tutti.h"
echo "consumer: C++17 is told what it needs, and can use the C interface"

# As a part of another project: the library and nothing else.
cmake -S "$source/tests/house/consumer" -B "$work/part" -G Ninja -DTUTTI_SOURCE="$source" -DTUTTI_TARGET=tutti::tutti >"$work/part.log" 2>&1 \
  || { cat "$work/part.log"; fail "add_subdirectory: configuring failed"; }
targets=$(cmake --build "$work/part" --target help)
grep -q 'libtutti.so:' <<<"$targets" || fail "add_subdirectory: there is no libtutti.so to build"
if grep -E '_test:|example_|link_check_|tutti-cli:|/bench' <<<"$targets"; then fail "add_subdirectory: the targets above are built, too"; fi
(cd "$work/part" && ctest -N | grep -q 'Total Tests: 0') || fail "add_subdirectory: tutti's tests are the project's, too"
[ -d "$work/part/tutti/src/api/CMakeFiles/tutti-api.dir/Unity" ] || fail "add_subdirectory: each source is compiled alone"
[ ! -d "$work/part/CMakeFiles/consumer.dir/Unity" ] || fail "add_subdirectory: the project's own sources are compiled together"
echo "consumer: add_subdirectory brings the library and nothing else"

# A program for NCCL, which knows nothing of tutti.
[ -e "$prefix/lib/libtutti-nccl.so.2" ] || fail "lib/libtutti-nccl.so.2 is not installed"
cc -std=c11 -Wall -Wextra -o "$work/nccl_program" "$source/examples/nccl/nccl_program.c" -L"$prefix/lib" -ltutti-nccl \
  -Wl,-rpath,"$prefix/lib" -Wl,-rpath-link,"$prefix/lib"
"$work/nccl_program" >"$work/nccl_program.log" 2>&1 || { cat "$work/nccl_program.log"; fail "the program for NCCL failed"; }
exported=$(nm -D --defined-only "$prefix/lib/libtutti-nccl.so.2" | sed 's/.* //' | grep -v -e '^p\?nccl[A-Z]' -e '^tuttiNcclHostMemory$' || true)
[ -z "$exported" ] || fail "libtutti-nccl exports more than NCCL's names: $exported"
echo "consumer: a program for NCCL: $(tail -n 1 "$work/nccl_program.log")"

# A backend of somebody else: built out of the tree, found by its name, and through the tests of all backends.
cmake -S "$source/examples/backend" -B "$work/pinboard" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/pinboard.log" 2>&1 || { cat "$work/pinboard.log"; fail "pinboard: configuring failed"; }
cmake --build "$work/pinboard" >>"$work/pinboard.log" 2>&1 || { cat "$work/pinboard.log"; fail "pinboard: building failed"; }
TUTTI_BACKEND_PATH=$work/pinboard "$prefix/bin/tutti-backend-conformance" pinboard --gtest_filter='Ranks/Collectives*/threads' \
  >"$work/pinboard.log" 2>&1 || { tail -n 30 "$work/pinboard.log"; fail "pinboard: not all of its tests passed"; }
grep -q '  PASSED  ] [1-9]' "$work/pinboard.log" || fail "pinboard: no test ran"
echo "consumer: a backend, built out of the tree: $(grep -o 'PASSED.*' "$work/pinboard.log")"

# A user of the shared library needs nothing else: no header, .pc or CMake package of what tutti is made of.
needed=$(readelf -d "$work/tutti/consumer" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v -e '^libtutti' -e '^libstdc++' -e '^libc\.' -e '^libgcc_s' -e '^libm\.' || true)
[ -z "$needed" ] || fail "the shared consumer links with $needed"
CMAKE_DISABLED=""
for package in OpenSSL spdlog fmt PkgConfig Threads; do CMAKE_DISABLED+=" -DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"; done
# shellcheck disable=SC2086
cmake -S "$source/tests/house/consumer" -B "$work/bare" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DTUTTI_TARGET=tutti::tutti $CMAKE_DISABLED >"$work/bare.log" 2>&1 \
  || { cat "$work/bare.log"; fail "without the libraries below tutti the shared consumer does not configure"; }
echo "consumer: the shared library is found without the libraries below it"
{ cmake -S "$source/tests/house/consumer" -B "$work/c-only" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DTUTTI_C_ONLY=ON \
    -DTUTTI_TARGET=tutti::tutti && cmake --build "$work/c-only"; } >"$work/c-only.log" 2>&1 \
  || { cat "$work/c-only.log"; fail "a project that knows no C++ cannot use the shared library"; }
expect "find_package, C alone" "$work/c-only/consumer_c"
