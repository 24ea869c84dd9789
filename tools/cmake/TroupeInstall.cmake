# What `cmake --install` puts where: libraries, public headers in include/troupe/{libactor,tune,sgd}/, the CMake package
# `troupe` with one component a library, and the program `node`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TROUPE_NODE_NAME troupe-node CACHE STRING "Name of the installed program `node`; many machines have a Node.js called so")

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/troupe")
set(TROUPE_COMPONENTS "")
foreach(name actor tune sgd)
  if(TARGET troupe_${name})
    list(APPEND TROUPE_COMPONENTS ${name})
    install(TARGETS troupe_${name} EXPORT troupe_${name}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
      FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/troupe")
    install(EXPORT troupe_${name} NAMESPACE troupe:: FILE troupe_${name}.cmake DESTINATION "${package}")
  endif()
endforeach()

configure_package_config_file("${PROJECT_SOURCE_DIR}/tools/cmake/troupeConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/troupeConfig.cmake" INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/troupeConfig.cmake"
  "${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/tools/cmake/FindCAF.cmake"
  "${PROJECT_SOURCE_DIR}/tools/cmake/FindXXHash.cmake"
  DESTINATION "${package}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

if(TARGET node)
  set(installed "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${TROUPE_NODE_NAME}")
  install(CODE "
    if(EXISTS \"${installed}\")
      file(STRINGS \"${installed}\" ours REGEX \"[Tt]roupe\" LIMIT_COUNT 1)
      if(NOT ours)
        message(FATAL_ERROR \"${installed} is another program and stays: choose another TROUPE_NODE_NAME\")
      endif()
    endif()")
  install(PROGRAMS "$<TARGET_FILE:node>" DESTINATION "${CMAKE_INSTALL_BINDIR}" RENAME "${TROUPE_NODE_NAME}")
endif()
