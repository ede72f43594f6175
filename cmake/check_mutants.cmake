# Checks that every broken header can still be made: cmake -P cmake/check_mutants.cmake [-DROOT=<tree>] [-DSCRATCH=<dir>]
#
# A .mut that no longer applies breaks nothing, and one without a row in docs/verification.md is one of which nobody says
# who notices it.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/checks.cmake)
if(NOT SCRATCH)
  set(SCRATCH ${ROOT}/build/check_mutants)
endif()

file(GLOB mutants RELATIVE ${ROOT} ${ROOT}/stress/mutants/*.mut ${ROOT}/tests/model/mutants/*.mut)
if(NOT mutants)
  message(FATAL_ERROR "no mutants found")
endif()
file(READ ${ROOT}/docs/verification.md document)
foreach(mutant IN LISTS mutants)
  execute_process(COMMAND ${CMAKE_COMMAND} -DMUTANT=${ROOT}/${mutant} -DINCLUDE=${ROOT}/include -DOUTPUT=${SCRATCH} -P
                          ${CMAKE_CURRENT_LIST_DIR}/mutate.cmake RESULT_VARIABLE status ERROR_VARIABLE said)
  if(status)
    curfew_complain(${mutant} "cannot be made:\n${said}")
  endif()
  get_filename_component(name ${mutant} NAME_WE)
  string(FIND "${document}" "\n| `${name}` |" at)
  if(at EQUAL -1)
    curfew_complain(${mutant} "has no row in docs/verification.md")
  endif()
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
curfew_verdict("mutants")
