# Builds the module and a program that imports it: cmake -DCXX=<clang++> -DSOURCE=<tree> -DDIR=<scratch> -P run.cmake

cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${DIR})

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

set(flags -std=c++20 -pthread -Wall -Wextra -Werror)
run(${CXX} ${flags} -I ${SOURCE}/include --precompile ${SOURCE}/include/curfew/curfew.cppm -o curfew.pcm)
# Without exceptions it ends before the sandbox providers, as curfew/curfew.hpp does.
run(${CXX} ${flags} -fno-exceptions -fno-rtti -I ${SOURCE}/include -fsyntax-only ${SOURCE}/include/curfew/curfew.cppm)
# Without the include path: whatever the program uses, the module has.
run(${CXX} ${flags} -fmodule-file=curfew=curfew.pcm ${CMAKE_CURRENT_LIST_DIR}/program.cpp curfew.pcm -o program)
run(${DIR}/program)
set(expected "pool down\nadmission refused: \"requests\" is closed\nstopped\n")
if(NOT said STREQUAL expected)
  message(FATAL_ERROR "the program printed:\n${said}\nand not:\n${expected}")
endif()
