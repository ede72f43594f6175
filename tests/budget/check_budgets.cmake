# cmake -DCOMPILER=.. -DAWK=.. -DSIZE=.. -DNM=.. -DINCLUDE=<dir> -DHIT_PATH=<object> -DSCRATCH=<dir> -DTABLE=<file>
#       [-DEXPECT=<n>] -P check_budgets.cmake
#
# Each line of TABLE is a bound:
#     lines <header> <most>     lines of the kit, without comments and blank ones, that including the header brings
#     bytes <source> <most>     code and constants of the source, compiled by -Os
#     hit <function> <most>     bytes of the function in HIT_PATH, which is compiled by -O2
# Fails when one is passed, and when one is more than a quarter too large: a bound that bounds nothing. With EXPECT it fails
# unless so many are wrong.

cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${SCRATCH})
set(wrong 0)
file(STRINGS ${TABLE} lines REGEX "^[^#]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^(lines|bytes|hit) +([^ ]+) +([0-9]+)$")
    message(FATAL_ERROR "cannot read: ${line}")
  endif()
  set(kind ${CMAKE_MATCH_1})
  set(what ${CMAKE_MATCH_2})
  set(most ${CMAKE_MATCH_3})
  if(kind STREQUAL "lines")
    set(source ${SCRATCH}/include.cpp)
    file(WRITE ${source} "#include <${what}>\n")
    execute_process(
      COMMAND ${COMPILER} -std=c++20 -I${INCLUDE} -E ${source}
      COMMAND ${AWK} "/^# [0-9]+ \"/ { own = index($3, \"/curfew/\") > 0; next } own && NF { ++n } END { print n + 0 }"
      OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
  elseif(kind STREQUAL "bytes")
    execute_process(COMMAND ${COMPILER} -std=c++20 -I${INCLUDE} -Os -c ${CMAKE_CURRENT_LIST_DIR}/${what} -o
                            ${SCRATCH}/${what}.o COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${SIZE} ${SCRATCH}/${what}.o COMMAND ${AWK} "NR == 2 { print $1 }" OUTPUT_VARIABLE found
                    COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
  else()
    execute_process(COMMAND ${NM} -S -t d ${HIT_PATH} COMMAND ${AWK} "$4 == \"${what}\" { print $2 + 0 }"
                    OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT found MATCHES "^[1-9][0-9]*$")
    message(FATAL_ERROR "${kind} of ${what}: nothing was found")
  endif()
  math(EXPR least "${most} * 3 / 4")
  if(found GREATER most OR found LESS least)
    message("${kind} of ${what}: ${found}, bound ${most}")
    math(EXPR wrong "${wrong} + 1")
  else()
    message("${kind} of ${what}: ${found} of ${most}")
  endif()
endforeach()
if(NOT DEFINED EXPECT)
  set(EXPECT 0)
endif()
if(NOT wrong EQUAL EXPECT)
  message(FATAL_ERROR "${wrong} bounds of ${TABLE} are wrong, not ${EXPECT}: make it smaller, or change the bound and say why")
endif()
