# Makes one header out of the module headers.
#
#   cmake -P cmake/amalgamate.cmake                  writes single_include/curfew.hpp
#   cmake -DCHECK=ON -P cmake/amalgamate.cmake       fails when that file is not what would be written
#   -DPRIMITIVE=admission_fence                      only that header and what it needs
#   -DROOT=<checkout> -DOUTPUT=<file>                elsewhere
#
# Each own include is replaced by the file's text where it is first met; everything else is copied byte for byte, the
# include guards too, so that one translation unit may include both this file and module headers.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/checks.cmake)

if(NOT PRIMITIVE)
  set(PRIMITIVE curfew)
endif()
if(NOT OUTPUT)
  set(OUTPUT ${ROOT}/single_include/${PRIMITIVE}.hpp)
endif()

function(emit text)
  set_property(GLOBAL APPEND_STRING PROPERTY curfew_single "${text}")
endfunction()

function(inline_header name)
  get_property(seen GLOBAL PROPERTY curfew_seen)
  if(name IN_LIST seen)
    emit("// ${name}: above\n")
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY curfew_seen ${name})

  set(path ${ROOT}/include/${name})
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "include/${name}: no such header")
  endif()
  file(READ ${path} rest)
  if(NOT rest MATCHES "\n$")
    message(FATAL_ERROR "include/${name}: no newline at the end of the file")
  endif()
  # Anything that looks like an own include but is not one the text below would find must not slip through.
  if(rest MATCHES "\n([ \t]+#[ \t]*include[ \t]*<curfew/[^\n]*|#[ \t]+include[ \t]*<curfew/[^\n]*|#include([ \t][ \t]+|\t|)<curfew/[^\n]*)")
    message(FATAL_ERROR "include/${name}: own include not written '#include <curfew/...>' at column 0: ${CMAKE_MATCH_1}")
  endif()
  if(rest MATCHES "\n([ \t]*#[ \t]*include[ \t]*\"[^\n]*)")
    message(FATAL_ERROR "include/${name}: include in quotes: ${CMAKE_MATCH_1}")
  endif()

  emit("// ---- begin ${name}\n")
  set(marker "\n#include <curfew/")
  while(TRUE)
    string(FIND "${rest}" "${marker}" at)
    if(at EQUAL -1)
      emit("${rest}")
      break()
    endif()
    math(EXPR at "${at} + 1")
    string(SUBSTRING "${rest}" 0 ${at} before)
    emit("${before}")
    string(SUBSTRING "${rest}" ${at} -1 rest)
    string(FIND "${rest}" "\n" end)
    string(SUBSTRING "${rest}" 0 ${end} line)
    # The newline stays in `rest`, so that the next include, on the next line, is found by the same marker.
    string(SUBSTRING "${rest}" ${end} -1 rest)
    if(NOT line MATCHES "^#include <(curfew/[a-z0-9_/]+\\.hpp)>$")
      message(FATAL_ERROR "include/${name}: text after an own include: ${line}")
    endif()
    inline_header(${CMAKE_MATCH_1})
    # What was inlined ended with a newline; drop the one of the include line itself.
    if(rest MATCHES "^\n#include <curfew/")
      continue()
    endif()
    string(SUBSTRING "${rest}" 1 -1 rest)
  endwhile()
  emit("// ---- end ${name}\n")
endfunction()

curfew_version(${ROOT} version)
file(READ ${ROOT}/LICENSE license)
string(REGEX REPLACE "\n$" "" license "${license}")
string(REPLACE "\n" "\n// " license "// ${license}")
string(REPLACE "// \n" "//\n" license "${license}")
emit("// curfew ${version}, as one file. Generated from include/curfew by cmake/amalgamate.cmake: edit there, not here.
//
${license}

// clang-format off
")
inline_header(curfew/${PRIMITIVE}.hpp)
get_property(single GLOBAL PROPERTY curfew_single)

if(CHECK)
  if(NOT EXISTS ${OUTPUT})
    message(FATAL_ERROR "${OUTPUT} is missing: run 'cmake -P cmake/amalgamate.cmake'")
  endif()
  file(READ ${OUTPUT} committed)
  if(NOT committed STREQUAL single)
    message(FATAL_ERROR "${OUTPUT} is out of date: run 'cmake -P cmake/amalgamate.cmake' (target curfew_amalgamate)")
  endif()
  message(STATUS "${OUTPUT} is what include/curfew gives")
else()
  file(WRITE ${OUTPUT} "${single}")
  message(STATUS "wrote ${OUTPUT}")
endif()
