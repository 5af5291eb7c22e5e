# add_module(NAME [OF_PROGRAM | SMALL] [SOURCES file…] [DEPENDS room…] [LIBRARIES target…] [TESTS file_test.cpp…])
#
# One room, of src/ but for bench/collectives: a static library tutti-NAME that may use the rooms in DEPENDS and nothing else. Checks that
# hold the direction: the link check below (undefined symbols), and tests/house/includes (headers).
# OF_PROGRAM: it reads arguments and writes reports (compile_as_program).
# SMALL: no call's speed depends on it, so the compiler optimises it for size: the Python package has a limit.
# TESTS: unit tests beside the sources, one executable NAME_test.
set_property(GLOBAL PROPERTY TUTTI_ROOMS "")

# What most files include, compiled once for all rooms. Each file still includes what it uses: `--preset debug` compiles
# without it.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/headers.cpp" CONTENT "")
add_library(tutti-headers STATIC "${PROJECT_BINARY_DIR}/headers.cpp")
target_link_libraries(tutti-headers PRIVATE fmt::fmt tutti-flags)
set(common_headers <algorithm> <array> <atomic> <chrono> <condition_variable> <deque> <functional> <map> <memory> <mutex> <numeric>
  <optional> <set> <span> <string> <thread> <unordered_map> <variant> <vector> <fmt/format.h>)
target_precompile_headers(tutti-headers PRIVATE ${common_headers})
# The same for rooms that are SMALL: a precompiled header serves one level of optimisation. At this one GCC takes an empty
# std::optional for a number that nobody has set.
set(small_code $<$<CONFIG:Release>:-Os> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
add_library(tutti-small-headers STATIC "${PROJECT_BINARY_DIR}/headers.cpp")
target_link_libraries(tutti-small-headers PRIVATE fmt::fmt tutti-flags)
target_compile_options(tutti-small-headers PRIVATE ${small_code})
target_precompile_headers(tutti-small-headers PRIVATE ${common_headers})
# The same for what reads arguments and writes reports, which need no speed, but whose headers take long to compile.
if(TUTTI_EXTRAS)
  add_library(tutti-program-headers STATIC EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/headers.cpp")
  target_link_libraries(tutti-program-headers PRIVATE CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json tutti-flags)
  target_compile_options(tutti-program-headers PRIVATE ${small_code})
  target_precompile_headers(tutti-program-headers PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp> <fmt/format.h>)
endif()

# A program, or a part of one, that reads arguments and writes reports.
function(compile_as_program target)
  target_compile_options(${target} PRIVATE -fPIC ${small_code})  # as the precompiled header
  target_link_libraries(${target} PRIVATE CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${target} REUSE_FROM tutti-program-headers)
endfunction()

# set_small_sources(file…), set_fast_sources(file…): single sources of a room that are optimised for size, or for speed where the
# room is SMALL. A source with options of its own is a unit by itself and has no precompiled header: a build for a sanitizer, which
# is not optimised so, compiles it with the rest.
function(set_small_sources)
  set_options_of_sources("${small_code}" ${ARGN})
endfunction()
function(set_fast_sources)
  set_options_of_sources($<$<CONFIG:Release>:-O3> ${ARGN})
endfunction()
function(set_options_of_sources options)
  if(NOT TUTTI_SANITIZE)
    set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS "${options}")
  endif()
endfunction()

function(add_module name)
  cmake_parse_arguments(arg "OF_PROGRAM;SMALL" "" "SOURCES;DEPENDS;LIBRARIES;TESTS" ${ARGN})
  add_library(tutti-${name} STATIC ${arg_SOURCES})
  target_include_directories(tutti-${name} PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  list(TRANSFORM arg_DEPENDS PREPEND tutti- OUTPUT_VARIABLE room_libraries)
  target_link_libraries(tutti-${name} PUBLIC ${room_libraries} ${arg_LIBRARIES} fmt::fmt PRIVATE tutti-flags)
  if(arg_OF_PROGRAM)
    compile_as_program(tutti-${name})
  elseif(arg_SMALL)
    target_compile_options(tutti-${name} PRIVATE ${small_code})
    target_precompile_headers(tutti-${name} REUSE_FROM tutti-small-headers)
  else()
    target_precompile_headers(tutti-${name} REUSE_FROM tutti-headers)
  endif()
  set_property(GLOBAL APPEND PROPERTY TUTTI_ROOMS ${name})
  set_property(GLOBAL PROPERTY TUTTI_ROOM_DEPENDS_${name} "${arg_DEPENDS}")
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set_property(GLOBAL PROPERTY TUTTI_ROOM_FOLDER_${name} "${folder}")

  if(NOT TUTTI_TESTS)
    return()
  endif()
  # An empty main linked with the whole room and only what it declares.
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/link_check.cpp" CONTENT "int main() { return 0; }\n")
  add_executable(link_check_${name} "${CMAKE_CURRENT_BINARY_DIR}/link_check.cpp")
  target_link_libraries(link_check_${name} PRIVATE -Wl,--whole-archive tutti-${name} -Wl,--no-whole-archive)
  set_target_properties(link_check_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/link_checks")
  if(arg_TESTS)
    add_tutti_test(${name}_test SOURCES ${arg_TESTS} LIBRARIES tutti-${name})
  endif()
endfunction()

# set_kernel_sources(file…): sources of kernels for several CPU targets.
#
# A sum must not depend on whether the CPU can fuse it with a product. Kernels are worth optimising in every build, but
# instrumented they would take a quarter of an hour to compile: with sanitizers they are optimised less, and checks for
# undefined behaviour (every intrinsic is a function call with pointers) are left out.
function(set_kernel_sources)
  set(kernel_options "-ffp-contract=off")
  if(TUTTI_SANITIZE)
    list(APPEND kernel_options -O1 -g1 -fno-sanitize=undefined)
    if(TUTTI_SANITIZE MATCHES "fuzzer")  # no target of the fuzzer's comes there, and clang takes minutes
      list(APPEND kernel_options -fno-sanitize=all)
    endif()
  else()
    list(APPEND kernel_options -O3)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang has no such option
      list(APPEND kernel_options -fno-unswitch-loops)
    endif()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${kernel_options}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# set_short_path_sources(file…): what a call of a microsecond runs through. No function of these has a canary on its stack: one takes
# six instructions, and such a call has ten functions. None of them reads what comes from another host.
function(set_short_path_sources)
  set_options_of_sources("-fno-stack-protector" ${ARGN})
endfunction()

# add_tutti_test(NAME SOURCES … LIBRARIES … [LABELS …] [TIMEOUT seconds] [SHARDS number] [UNDER program])
#
# A GoogleTest executable, registered with CTest as one test, or as shards NAME_1, NAME_2, ... that run side by side;
# UNDER: by way of a program that is given theirs.
# Its main (tests/support) records the rows of the inventory that passing tests cover. Those that share memory or run
# threads carry the label `memory`: the target sanitizer_tests builds them, and `make test` runs them in the asan and
# tsan builds too.
set(TUTTI_MEMORY_TESTS core_test tensor_test object_test reduce_test quantize_test atb_test security_test store_test
                       record_test rendezvous_test transport_test engine_test operation_test failure_test progress_test
                       world_test group_test capi_test conformance_threads)
if(TUTTI_SANITIZE STREQUAL "thread")  # no threads in these
  list(REMOVE_ITEM TUTTI_MEMORY_TESTS tensor_test object_test reduce_test quantize_test atb_test)
endif()
set_property(GLOBAL PROPERTY TUTTI_SANITIZER_TESTS "")

# Tests wait more than they compute, and a third of the time that they took to compile went into optimisation. Those that
# compute are optimised, a little: a folder's `set(TUTTI_COMPUTES ON)` says so.
define_property(TARGET PROPERTY TUTTI_COMPUTES INITIALIZE_FROM_VARIABLE TUTTI_COMPUTES)
set(test_code $<$<CONFIG:Release>:-O$<BOOL:$<TARGET_PROPERTY:TUTTI_COMPUTES>>>)

# A program or a part of one with GoogleTest's headers, which are compiled once for each level of optimisation.
function(compile_as_test target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # as the precompiled header
  set(headers tutti-test-support)
  get_target_property(computes ${target} TUTTI_COMPUTES)
  if(computes AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set(headers tutti-computing-test-headers)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

function(add_tutti_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;SHARDS;UNDER" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "--coverage")  # which is not optimised, and counts
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 8")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} tutti-test-support tutti-flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  compile_as_test(${name})
  if(name IN_LIST TUTTI_MEMORY_TESTS)
    list(APPEND arg_LABELS memory)
    set_property(GLOBAL APPEND PROPERTY TUTTI_SANITIZER_TESTS ${name})
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  set(of_one_thread "")
  if(TUTTI_SANITIZE)  # what explores states or parses for many seconds in one thread, and is no memory of others'
    set(of_one_thread "-Slots.*:Succession.*")
    if(TUTTI_SANITIZE STREQUAL "thread")  # which also holds back signals of threads that wait: no stack comes of one
      string(APPEND of_one_thread ":Table.*:Dumps.*:HugePagesOfCallers.*:StagingCopy.*:SocketStream.carries_*:Stacks.*")
    endif()
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(test ${name})
    set(environment "TUTTI_SPEC_DIR=${PROJECT_BINARY_DIR}/spec.d" "XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/cache")
    if(of_one_thread)
      list(APPEND environment "GTEST_FILTER=${of_one_thread}")
    endif()
    if(TUTTI_SANITIZE STREQUAL "thread")  # children that tests fork beside threads start threads of their own
      list(APPEND environment "TSAN_OPTIONS=die_after_fork=0")
    endif()
    if(arg_SHARDS GREATER 1)
      string(APPEND test "_${shard}")
      math(EXPR index "${shard} - 1")
      list(APPEND environment "GTEST_TOTAL_SHARDS=${arg_SHARDS}" "GTEST_SHARD_INDEX=${index}")
    endif()
    add_test(NAME ${test} COMMAND ${arg_UNDER} $<TARGET_FILE:${name}>)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABELS}" ENVIRONMENT "${environment}"
                         COST ${arg_SHARDS})  # the long ones begin first
  endforeach()
endfunction()

# add_left_out_test(NAME REASON): a test that this machine cannot have. It is skipped, and `make test` repeats the reason.
function(add_left_out_test name reason)
  add_test(NAME ${name} COMMAND "${CMAKE_COMMAND}" -E echo "left out: ${name}: ${reason}")
  set_tests_properties(${name} PROPERTIES LABELS unit SKIP_REGULAR_EXPRESSION "left out:")
endfunction()
