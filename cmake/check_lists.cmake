# Checks that nothing is forgotten: cmake -P cmake/check_lists.cmake [-DROOT=<tree>]
#
# The build names each of its files. A test, a stress program, a broken twin or a benchmark that is not in its list would
# be a check that never runs.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/checks.cmake)

set(seen 0)

# Each file that matches has its name, less the suffix, as a word in the list file.
function(check_listed pattern suffix list_file)
  file(GLOB files RELATIVE ${ROOT} ${ROOT}/${pattern})
  set(list "")
  if(EXISTS ${ROOT}/${list_file})
    file(READ ${ROOT}/${list_file} list)
    string(REGEX REPLACE "#[^\n]*" "" list "${list}")
  endif()
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "${suffix}$" "" name ${name})
    if(NOT " ${list} " MATCHES "[ (\n]${name}[ )\n]")
      curfew_complain(${file} "is not listed in ${list_file}")
    endif()
  endforeach()
  list(LENGTH files count)
  math(EXPR seen "${seen} + ${count}")
  set(seen ${seen} PARENT_SCOPE)
endfunction()

check_listed(tests/*_test.cpp _test\\.cpp tests/CMakeLists.txt)
check_listed(tests/compile_fail/*.cpp \\.cpp tests/compile_fail/CMakeLists.txt)
check_listed(stress/*_stress.cpp _stress\\.cpp stress/CMakeLists.txt)
check_listed(stress/mutants/*.mut \\.mut stress/CMakeLists.txt)
check_listed(tests/model/mutants/*.mut \\.mut tests/model/mutants.cmake)
if(EXISTS ${ROOT}/tests/model/mutants.cmake)
  check_listed(stress/mutants/*.mut \\.mut tests/model/mutants.cmake)
endif()
check_listed(bench/*_bench.cpp _bench\\.cpp bench/CMakeLists.txt)
if(seen EQUAL 0)
  message(FATAL_ERROR "no tests, stress programs or benchmarks found")
endif()
curfew_verdict("lists")
