# libtutti: every room in one shared and one static library, and what `cmake --install` puts where. The command-line
# program is not part of the libraries.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY TUTTI_ROOMS)
list(REMOVE_ITEM rooms ${TUTTI_PROGRAM_ROOMS})
set(room_objects "")
foreach(room IN LISTS rooms)
  list(APPEND room_objects "$<TARGET_OBJECTS:tutti-${room}>")
endforeach()

foreach(kind IN ITEMS SHARED STATIC)
  if(kind STREQUAL "SHARED")
    set(target tutti)
  else()
    set(target tutti-static)
  endif()
  add_library(${target} ${kind} ${room_objects})
  # Before 1.0 a minor version may change the interface, so it is part of the SONAME.
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME tutti VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE OpenSSL::SSL OpenSSL::Crypto spdlog::spdlog fmt::fmt PkgConfig::LIBUV PkgConfig::HWY
    Threads::Threads)
  add_library(tutti::${target} ALIAS ${target})
endforeach()
export_only(tutti "${PROJECT_SOURCE_DIR}/cmake/exports.map")
target_compile_definitions(tutti-static PUBLIC TUTTI_STATIC)

# Two export sets: a program that uses the shared library needs none of the libraries below it, not even to configure.
set(tutti_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tutti")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tutti" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.def")
foreach(document IN ITEMS LICENSE NOTICE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md VERSIONING.md)
  install(FILES "${PROJECT_SOURCE_DIR}/${document}" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png"
        PATTERN "against-peers" EXCLUDE PATTERN "graph" EXCLUDE)  # sources of pictures
install(TARGETS tutti EXPORT tuttiTargets)
install(TARGETS tutti-static EXPORT tuttiStaticTargets)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION "${tutti_cmake_dir}")
install(EXPORT tuttiStaticTargets NAMESPACE tutti:: DESTINATION "${tutti_cmake_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/package/tuttiConfig.cmake" INSTALL_DESTINATION "${tutti_cmake_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/tuttiConfig.cmake" "${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake"
        DESTINATION "${tutti_cmake_dir}")

# The .pc file finds the prefix from its own place, so an installed tree may be moved.
file(RELATIVE_PATH tutti_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" tutti_pc_to_prefix "${tutti_pc_to_prefix}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tutti.pc.in" "${PROJECT_BINARY_DIR}/package/tutti.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/tutti.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
