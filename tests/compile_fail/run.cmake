# cmake -DCXX=<compiler> -DSOURCE=<file> -DINCLUDE=<directory> [-DFLAGS=<more>] -P run.cmake

cmake_minimum_required(VERSION 3.25)

file(STRINGS ${SOURCE} expect REGEX "^// expect: ")
list(LENGTH expect count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${SOURCE}: needs one line '// expect: <text>'")
endif()
string(REGEX REPLACE "^// expect: " "" expect "${expect}")

set(command ${CXX} -std=c++20 -fsyntax-only -I ${INCLUDE} ${FLAGS})
execute_process(COMMAND ${command} -DCURFEW_MUST_COMPILE ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the correct half does not compile:\n${errors}")
endif()
execute_process(COMMAND ${command} ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE errors)
if(status EQUAL 0)
  message(FATAL_ERROR "compiles, and should not")
endif()
string(FIND "${errors}" "${expect}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "fails, but does not say '${expect}':\n${errors}")
endif()
