# Run after the link of a test program: asks it for its cases and writes OUT, the ctest file that `troupe_tests`
# includes. Arguments: PREFIX PROGRAM LABELS TIMEOUT WHOLE SERIAL LOCK OUT.
cmake_minimum_required(VERSION 3.25)

# Sets `result` to the program's cases that pass the filters, one a line, with a line end behind each.
function(list_cases result)
  execute_process(COMMAND "${PROGRAM}" --list-test-cases --no-intro ${ARGN}
    OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} --list-test-cases ended with ${code}:\n${output}${errors}")
  endif()
  string(REGEX REPLACE "(^|\n)(===|\\[doctest\\])[^\n]*" "\\1" output "${output}")
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

# Appends the ctest entry `name`, which runs the program with one argument.
function(add_entry name argument labels timeout)
  set(properties "LABELS \"${labels}\" TIMEOUT ${timeout} SKIP_RETURN_CODE 77")
  if("slow" IN_LIST labels)
    string(APPEND properties " COST 1000")  # first, so that none is left over at the end
  endif()
  if(SERIAL)
    string(APPEND properties " RUN_SERIAL ON")
  endif()
  if(NOT LOCK STREQUAL "")
    string(APPEND properties " RESOURCE_LOCK \"${LOCK}\"")
  endif()
  file(APPEND "${OUT}" "add_test([==[${name}]==] [==[${PROGRAM}]==] [==[${argument}]==])\n"
    "set_tests_properties([==[${name}]==] PROPERTIES ${properties})\n")
endfunction()

# One entry for each line of `cases`. No CMake list is made of them: a name may hold ; and [.
function(add_cases cases labels timeout)
  while(cases MATCHES "^([^\n]*)\n")
    set(case "${CMAKE_MATCH_1}")
    string(LENGTH "${CMAKE_MATCH_0}" length)
    string(SUBSTRING "${cases}" ${length} -1 cases)
    string(STRIP "${case}" case)
    if(NOT case STREQUAL "")
      string(REPLACE "\\" "\\\\" filter "${case}")
      string(REPLACE "," "\\," filter "${filter}")  # doctest splits filters at commas
      add_entry("${PREFIX}.${case}" "--test-case=${filter}" "${labels}" ${timeout})
    endif()
  endwhile()
endfunction()

file(WRITE "${OUT}" "")
if(WHOLE)
  math(EXPR timeout "${TIMEOUT} * 5")
  add_entry("${PREFIX}" "--test-suite-exclude=slow" "${LABELS}" ${timeout})
else()
  list_cases(quick --test-suite-exclude=slow)
  add_cases("${quick}" "${LABELS}" ${TIMEOUT})
endif()
list_cases(slow --test-suite=slow)
set(slow_labels ${LABELS})
list(REMOVE_ITEM slow_labels unit)
math(EXPR timeout "${TIMEOUT} * 10")
add_cases("${slow}" "${slow_labels};slow" ${timeout})
