# troupe_library(NAME OUTPUT name PUBLIC_HEADERS … SOURCES … CAPNP … LINK_PUBLIC … LINK_PRIVATE …)
# makes the static library troupe_NAME with the alias troupe::NAME. Headers and sources are listed by hand, so that a
# dead file shows. CAPNP files are compiled into the build tree and included as "folder/x.capnp.h".
function(troupe_library name)
  cmake_parse_arguments(arg "" "OUTPUT" "PUBLIC_HEADERS;SOURCES;CAPNP;LINK_PUBLIC;LINK_PRIVATE" ${ARGN})
  set(target troupe_${name})
  set(generated "")
  if(arg_CAPNP)
    set(CAPNPC_SRC_PREFIX "${PROJECT_SOURCE_DIR}")
    set(CAPNPC_OUTPUT_DIR "${PROJECT_BINARY_DIR}/generated")
    file(MAKE_DIRECTORY "${CAPNPC_OUTPUT_DIR}")
    set(CAPNPC_IMPORT_DIRS "${PROJECT_SOURCE_DIR}")
    capnp_generate_cpp(generated generated_headers ${arg_CAPNP})
    set_source_files_properties(${generated} PROPERTIES COMPILE_OPTIONS "-w")
  endif()
  add_library(${target} STATIC ${arg_SOURCES} ${generated})
  add_library(troupe::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${arg_OUTPUT}" EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
    VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_PUBLIC_HEADERS})
  target_link_libraries(${target} PUBLIC ${arg_LINK_PUBLIC} PRIVATE ${arg_LINK_PRIVATE})
  troupe_ccache(${target})
endfunction()

function(troupe_ccache target)
  if(TROUPE_CCACHE)
    find_program(CCACHE_PROGRAM ccache)
    if(CCACHE_PROGRAM)
      set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
    endif()
  endif()
endfunction()

# troupe_program(NAME SOURCES … LINK …): a program in build/<preset>/bin that may see the whole tree, internals too.
function(troupe_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  troupe_ccache(${name})
endfunction()

# troupe_tests(NAME [WHOLE] [SERIAL] [TIMEOUT s] [LOCK name] LABELS … SOURCES … LINK …)
#
# One doctest program a folder, NAME_tests; ctest shows each case as "NAME.case". A case in the test suite "slow" has
# the label slow instead of unit and ten times the TIMEOUT (60 s). A case that can't run here says skip("why") of
# tests/support/skip.hpp and is shown as skipped. WHOLE: one ctest entry for all cases that are not slow, where starting
# the program costs more than most cases. SERIAL: alone on the machine. LOCK: not beside others of the same lock. The
# label tsan: no case touches CAF, so the tsan preset runs them too.
function(troupe_tests name)
  cmake_parse_arguments(arg "WHOLE;SERIAL" "TIMEOUT;LOCK" "LABELS;SOURCES;LINK" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(target ${name}_tests)
  troupe_program(${target} SOURCES ${arg_SOURCES} LINK troupe_test_main ${arg_LINK})
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${target})
  endif()
  set(listed "${CMAKE_CURRENT_BINARY_DIR}/${target}.cmake")
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS "${listed}" VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DPREFIX=${name}" "-DPROGRAM=$<TARGET_FILE:${target}>" "-DLABELS=${arg_LABELS}"
      "-DTIMEOUT=${arg_TIMEOUT}" "-DWHOLE=${arg_WHOLE}" "-DSERIAL=${arg_SERIAL}" "-DLOCK=${arg_LOCK}" "-DOUT=${listed}"
      -P "${PROJECT_SOURCE_DIR}/tools/cmake/TroupeListTests.cmake")
  set(include "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(WRITE "${include}" "if(EXISTS \"${listed}\")\n  include(\"${listed}\")\nelse()\n"
    "  add_test(${name}.not_built ${name}.not_built)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include}")
endfunction()

# troupe_check(NAME LABELS … [TIMEOUT s] COMMAND …): any other program as a test; it says "can't run here" by exit code
# 77.
function(troupe_check name)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT;LOCK" "LABELS;COMMAND" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  add_test(NAME "${name}" COMMAND ${arg_COMMAND})
  set_tests_properties("${name}" PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
  if("slow" IN_LIST arg_LABELS)
    set_tests_properties("${name}" PROPERTIES COST 1000)  # first, so that none is left over at the end
  endif()
  if(arg_SERIAL)
    set_tests_properties("${name}" PROPERTIES RUN_SERIAL ON)
  endif()
  if(arg_LOCK)
    set_tests_properties("${name}" PROPERTIES RESOURCE_LOCK "${arg_LOCK}")
  endif()
endfunction()
