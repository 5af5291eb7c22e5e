# Flags that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)  # programs that use the C ABI
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(TUTTI_CCACHE ccache)
if(TUTTI_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${TUTTI_CCACHE}")
  # Paths below the checkout count relatively: two checkouts share what they compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 ${TUTTI_CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It looks for garbage once it has taken a gigabyte, not 128 MB: a tenth less time, for 300 MB more of memory.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()

# As Debian hardens its packages: what overruns an array, or writes over the table of functions of other libraries, ends the
# program. A packager's own flags come first.
if(NOT TUTTI_SANITIZE)
  add_compile_options(-fstack-protector-strong)
  if(NOT CMAKE_CXX_FLAGS MATCHES "FORTIFY_SOURCE")
    add_compile_options($<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
  endif()
  add_link_options(LINKER:-z,relro LINKER:-z,now)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # What nothing calls stays out of what is linked.
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(LINKER:--gc-sections)
  # No file that is installed names the folder in which it was built: two builds of the same sources are equal.
  add_compile_options(-ffile-prefix-map=${PROJECT_BINARY_DIR}=build -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
endif()

# Of the shared library or module `target` only what `map` names is seen outside.
function(export_only target map)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()

add_library(tutti-flags INTERFACE)
target_compile_options(tutti-flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                             $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wno-sign-conversion
                                             -Wno-missing-field-initializers)
if(TUTTI_WERROR)
  target_compile_options(tutti-flags INTERFACE -Werror)
endif()
if(TUTTI_ASSERTIONS)
  add_compile_definitions(TUTTI_ASSERTIONS)
endif()
if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
  if(TUTTI_SANITIZE MATCHES "undefined")
    # A null pointer ends in asan's report as well, and both checks make a file take a quarter more time to compile.
    add_compile_options(-fno-sanitize=null,vptr)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Undefined behaviour executes an illegal instruction, of which asan reports the line (tests/support/main.cpp): a file
      # with sentences and types for reports of UBSan's own takes a third more time to compile.
      add_compile_options(-fsanitize-undefined-trap-on-error)
    endif()
  endif()
  if(TUTTI_SANITIZE MATCHES "thread")
    # The doorbell's fences order flags that are atomics themselves; tsan cannot follow fences and says so.
    add_compile_options(-Wno-tsan)
  endif()
endif()
