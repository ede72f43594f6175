# Looks for functions that run before main in an object file: cmake -DNM=<nm> -DOBJECT=<file> -P no_initialisers.cmake

cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${NM} -C ${OBJECT} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES "curfew")
  message(FATAL_ERROR "no symbol of the kit in ${OBJECT}: is this the right file?")
endif()
if(symbols MATCHES "[^\n]*(_GLOBAL__sub_I|__cxx_global_var_init|__static_initialization)[^\n]*")
  message(FATAL_ERROR "runs before main: ${CMAKE_MATCH_0}")
endif()
