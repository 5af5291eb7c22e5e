# `cmake --install` installs everything or nothing: its first step looks whether all is built, and says what is not.
# Files that a build makes and an install() needs, other than those of targets, are appended to the global property
# TUTTI_INSTALLED_FILES.
set(check_install "${PROJECT_BINARY_DIR}/package/check_install.cmake")

# In the root, before all other rules.
function(check_install_first)
  install(SCRIPT "${check_install}")
endfunction()

# check_install_of(target…), in the root, behind all targets: those that this configuration has.
function(check_install_of)
  get_property(files GLOBAL PROPERTY TUTTI_INSTALLED_FILES)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      continue()
    endif()
    list(APPEND files "$<TARGET_FILE:${target}>")
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      list(APPEND files "$<TARGET_SONAME_FILE:${target}>" "$<TARGET_LINKER_FILE:${target}>")
    endif()
  endforeach()
  list(JOIN files "\"\n  \"" files)
  string(CONCAT script "set(build \"${PROJECT_BINARY_DIR}\")
set(missing \"\")
foreach(file IN ITEMS
  \"${files}\")" [[

  if(NOT EXISTS "${file}")
    string(APPEND missing "\n  ${file}")
  endif()
endforeach()
if(missing)
  message(FATAL_ERROR "tutti: nothing is installed, because these are not built; type: cmake --build ${build}${missing}")
endif()
]])
  file(GENERATE OUTPUT "${check_install}" CONTENT "${script}")
endfunction()
