# USE_DISTRIBUTED=OFF: a package of the same name with is_available(), which is false, and nothing else.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(tutti INTERFACE)
target_compile_definitions(tutti INTERFACE TUTTI_WITHOUT_DISTRIBUTED)
target_compile_features(tutti INTERFACE cxx_std_20)
target_include_directories(tutti INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
add_library(tutti::tutti ALIAS tutti)

set(tutti_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tutti")
install(FILES "${PROJECT_SOURCE_DIR}/include/tutti/available.hpp" "${PROJECT_SOURCE_DIR}/include/tutti/export.hpp"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tutti")
install(TARGETS tutti EXPORT tuttiTargets)
install(EXPORT tuttiTargets NAMESPACE tutti:: FILE tuttiConfig.cmake DESTINATION "${tutti_cmake_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package/tuttiConfigVersion.cmake" DESTINATION "${tutti_cmake_dir}")
