# cmake -DREPORT=<directory> -DCOMPARE=<program> -DPLOT=<program> -P bench/record.cmake
#
# Puts the results of a run into bench/results, named by commit, processor and compiler, in place of those of an earlier
# commit on the same machine, notes in bench/goals.txt which
# goals are missed, and redraws what docs/performance.md and README.md show of them.

cmake_minimum_required(VERSION 3.25)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

file(READ ${REPORT}/results.json text)
foreach(what commit cpu compiler)
  string(JSON ${what} GET "${text}" machine ${what})
  string(REGEX REPLACE "[^A-Za-z0-9.+-]+" "-" ${what} "${${what}}")
endforeach()
file(GLOB earlier ${root}/bench/results/*.${cpu}.${compiler}.json)
if(earlier)
  file(REMOVE ${earlier})
endif()
set(kept ${root}/bench/results/${commit}.${cpu}.${compiler}.json)
file(WRITE ${kept} "${text}")
file(MAKE_DIRECTORY ${root}/docs/performance)
execute_process(COMMAND ${COMPARE} --note ${kept} ${root}/bench/goals.txt COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PLOT} ${kept} ${root}/bench/charts.txt ${root}/docs/performance COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${COMPARE} --update ${kept} ${root}/bench/goals.txt ${root}/bench/charts.txt ${root}/docs/performance.md
          ${root}/README.md COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "recorded ${kept}")
