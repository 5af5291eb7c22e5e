# libtutti: every room in one shared and one static library. The command-line program is not part of it.
get_property(rooms GLOBAL PROPERTY TUTTI_ROOMS)
list(REMOVE_ITEM rooms cli)
set(room_objects "")
set(room_targets "")
foreach(room IN LISTS rooms)
  list(APPEND room_objects "$<TARGET_OBJECTS:tutti-${room}>")
  list(APPEND room_targets "tutti-${room}")
endforeach()
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/tutti_version.cpp"
     CONTENT "#include <tutti/version.hpp>\nnamespace tutti { const char* version() noexcept { return \"${PROJECT_VERSION}\"; } }\n")
foreach(kind IN ITEMS SHARED STATIC)
  if(kind STREQUAL "SHARED")
    set(target tutti)
  else()
    set(target tutti-static)
  endif()
  add_library(${target} ${kind} "${PROJECT_BINARY_DIR}/tutti_version.cpp" ${room_objects})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME tutti VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:include>")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE OpenSSL::Crypto spdlog::spdlog fmt::fmt PkgConfig::LIBUV PkgConfig::HWY
    Threads::Threads)
endforeach()
target_compile_definitions(tutti-static PUBLIC TUTTI_STATIC)
