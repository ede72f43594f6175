# One cell of the matrix: cmake -DTASK=<task> -DFLAGS=<flags> -DCXX=<compiler> -DSOURCE=<checkout> -DDIR=<scratch>
#                               -P run.cmake

cmake_minimum_required(VERSION 3.25)
set(here ${CMAKE_CURRENT_LIST_DIR})
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

# What clang's complete set has that is not for this code, and why. Everything else must be silent.
set(not_wanted
    -Wno-unknown-warning-option # names that the older clang does not know
    -Wno-c++98-compat # these four are about standards before C++20
    -Wno-c++98-compat-pedantic
    -Wno-c++20-compat
    -Wno-pre-c++20-compat-pedantic
    -Wno-padded # structures have padding; where it matters there is alignas
    -Wno-weak-vtables # a header has no other unit to put a vtable into
    -Wno-ctad-maybe-unsupported # std::lock_guard and its like, which libstdc++ does not mark
    -Wno-disabled-macro-expansion # sa_handler and stderr of glibc
    -Wno-unsafe-buffer-usage # the slots, tables and system calls work on arrays
    -Wno-unsafe-buffer-usage-in-container
    -Wno-switch-default # a switch over all enumerators is what -Wswitch checks; a default would silence that
    -Wno-covered-switch-default # and where a value may come from outside, there is one
    -Wno-comma # two short assignments in one statement
    -Wno-shadow-uncaptured-local # a capture that keeps the name of what it moves
    -Wno-global-constructors # fork handlers are registered at load
    -Wno-exit-time-destructors # of a thread: how its end is noticed
)

include(${CMAKE_CURRENT_LIST_DIR}/../support/programs.cmake)

function(skip why)
  message("skipped: ${why}")
endfunction()

file(REMOVE_RECURSE ${DIR})
file(MAKE_DIRECTORY ${DIR})
string(REGEX MATCH "^[^-]+-linux-gnu" triplet ${CXX})
# Debian names a cross compiler with its version, and without only when one more package is there.
find_program(compiler NAMES ${CXX} ${CXX}-12 ${CXX}-13 ${CXX}-14)
if(NOT compiler)
  skip("no ${CXX}")
  return()
endif()
set(launcher "")
if(TASK STREQUAL "emulated")
  string(REGEX REPLACE "-.*$" "" machine ${triplet})
  find_program(emulator NAMES qemu-${machine} qemu-${machine}-static)
  if(NOT emulator)
    skip("no qemu-${machine}")
    return()
  endif()
  set(launcher ${emulator} -L /usr/${triplet})
elseif(TASK STREQUAL "wine")
  find_program(emulator NAMES wine64 wine)
  if(emulator)
    set(launcher ${CMAKE_COMMAND} -E env WINEDEBUG=-all WINEPREFIX=${DIR}/wine ${emulator})
  endif()
endif()

# The last -std wins, so that a cell may ask for another one.
set(compile ${compiler} -std=c++20 ${warnings} -pthread -I ${SOURCE}/include ${FLAGS})

# Whether the compiler and its library are all there: this much must work, or the cell has nothing to say.
file(WRITE ${DIR}/probe.cpp "#include <atomic>\n#include <string>\nint main() { return std::string().empty() ? 0 : 1; }\n")
execute_process(COMMAND ${compile} probe.cpp -o probe WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0 AND FLAGS MATCHES "-fexperimental-library")
  file(WRITE ${DIR}/probe.cpp "#include <stop_token>\nint main() { std::stop_source source; }\n")
  execute_process(COMMAND ${compile} probe.cpp -o probe WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
endif()
if(NOT status EQUAL 0)
  list(JOIN FLAGS " " flags)
  string(REGEX MATCH "[^\n]*(error|cannot find)[^\n]*" why "${output}")
  skip("${CXX} cannot link a program with '${flags}': ${why}")
  return()
endif()

if(TASK STREQUAL "run" OR TASK STREQUAL "emulated")
  run(${compile} ${here}/smoke.cpp -o smoke)
  run(${launcher} ${DIR}/smoke)

elseif(TASK STREQUAL "dies")
  # A throwing form ends the process, and names the error and what it says.
  run(${compile} ${here}/smoke.cpp -o smoke)
  run(${DIR}/smoke)
  refuse("curfew: cannot throw admission_refused: " ${DIR}/smoke refused)
  refuse("front door" ${DIR}/smoke refused)
  refuse("curfew: cannot throw singleton_sealed: " ${DIR}/smoke sealed)
  refuse("curfew: cannot throw bad_graph: " ${DIR}/smoke graph)

elseif(TASK STREQUAL "single")
  run(${compile} -I ${SOURCE}/single_include -DCURFEW_TEST_SINGLE_HEADER ${here}/smoke.cpp -o smoke)
  run(${DIR}/smoke)

elseif(TASK STREQUAL "headers")
  # What of the kit does not need std::stop_token; and what does says so.
  set(text "")
  foreach(header IN ITEMS admission_fence guarded_singleton keyed_serializer signals slot_ledger teardown)
    string(APPEND text "#include <curfew/${header}.hpp>\n")
  endforeach()
  file(WRITE ${DIR}/headers.cpp "${text}int main() { curfew::admission_fence door; door.drain(); }\n")
  run(${compile} headers.cpp -o headers)
  run(${DIR}/headers)
  file(WRITE ${DIR}/needs.cpp "#include <version>\n#ifdef __cpp_lib_jthread\n#error there is one\n#endif\n")
  execute_process(COMMAND ${compile} -fsyntax-only needs.cpp WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status
                  OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    file(WRITE ${DIR}/needs.cpp "#include <curfew/ordered_lifespan.hpp>\n")
    refuse("std::stop_token is missing" ${compile} -fsyntax-only needs.cpp)
  endif()

elseif(TASK STREQUAL "mixed")
  # In either order, because the linker keeps the first of what both units hold.
  set(same "")
  if(NOT "-fno-exceptions" IN_LIST FLAGS)
    set(same -DCURFEW_TEST_SAME_TYPES)
  endif()
  set(defaults ${compile})
  if(NOT FLAGS MATCHES "-flto")
    list(REMOVE_ITEM defaults ${FLAGS})
  endif()
  run(${defaults} ${same} -c ${here}/mixed_main.cpp -o main.o)
  run(${compile} ${same} -c ${here}/mixed_other.cpp -o other.o)
  foreach(objects IN ITEMS "main.o other.o" "other.o main.o")
    separate_arguments(objects)
    run(${compile} ${objects} -o mixed)
    run(${DIR}/mixed)
  endforeach()
  # Not even what says nothing of its type in plain C++ is taken for an object of the other unit.
  if(NOT same)
    foreach(stray IN ITEMS OBJECT RESULT)
      run(${defaults} -DCURFEW_TEST_STRAY_${stray} -c ${here}/mixed_main.cpp -o stray_main.o)
      run(${compile} -DCURFEW_TEST_STRAY_${stray} -c ${here}/mixed_other.cpp -o stray_other.o)
      refuse("undefined reference to" ${compile} stray_main.o stray_other.o -o stray)
    endforeach()
  endif()

elseif(TASK STREQUAL "everything")
  run(${compile} -Weverything ${not_wanted} -fsyntax-only -include curfew/curfew.hpp ${here}/smoke.cpp)

elseif(TASK STREQUAL "wine")
  run(${compile} -static ${here}/smoke.cpp -o smoke.exe)
  if(NOT launcher)
    skip("compiles, but no wine to run it")
    return()
  endif()
  run(${launcher} ${DIR}/smoke.exe)

else()
  message(FATAL_ERROR "no such task: ${TASK}")
endif()
