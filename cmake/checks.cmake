# What the check scripts share. A script that includes this runs on the checkout it lies in, or on -DROOT=<tree>.

if(NOT ROOT)
  get_filename_component(ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
endif()

# A line of C++ as a list element must not contain what CMake lists treat specially. These stand-ins never occur in text.
string(ASCII 1 curfew_semicolon)
string(ASCII 2 curfew_backslash)
string(ASCII 3 curfew_open)
string(ASCII 4 curfew_close)

# Reads a file as a list of lines, with the stand-ins in place.
function(curfew_read_lines path result)
  file(READ ${path} text)
  string(REPLACE ";" "${curfew_semicolon}" text "${text}")
  string(REPLACE "\\" "${curfew_backslash}" text "${text}")
  string(REPLACE "[" "${curfew_open}" text "${text}")
  string(REPLACE "]" "${curfew_close}" text "${text}")
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ";" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# The line as it was in the file.
function(curfew_restore line result)
  string(REPLACE "${curfew_semicolon}" ";" line "${line}")
  string(REPLACE "${curfew_backslash}" "\\" line "${line}")
  string(REPLACE "${curfew_open}" "[" line "${line}")
  string(REPLACE "${curfew_close}" "]" line "${line}")
  set(${result} "${line}" PARENT_SCOPE)
endfunction()

# The line without string literals, comments and outer blanks: what is left is code.
function(curfew_code line result)
  string(REGEX REPLACE "\"([^\"${curfew_backslash}]|${curfew_backslash}.)*\"" "\"\"" line "${line}")
  string(REGEX REPLACE "//.*$" "" line "${line}")
  string(STRIP "${line}" line)
  set(${result} "${line}" PARENT_SCOPE)
endfunction()

# Notes one finding; curfew_verdict() fails the script if there was any.
function(curfew_complain where what)
  message(NOTICE "${where}: ${what}")
  set_property(GLOBAL APPEND PROPERTY curfew_findings x)
endfunction()

function(curfew_verdict what)
  get_property(findings GLOBAL PROPERTY curfew_findings)
  list(LENGTH findings count)
  if(count)
    message(FATAL_ERROR "${what}: ${count} finding(s)")
  endif()
  message(STATUS "${what}: ok")
endfunction()

# The headers of the tree, relative to include/. A tree without headers is an error: a check that saw nothing proves nothing.
function(curfew_find_headers result)
  file(GLOB_RECURSE found RELATIVE ${ROOT}/include ${ROOT}/include/curfew/*.hpp)
  if(NOT found)
    message(FATAL_ERROR "no headers found under ${ROOT}/include/curfew")
  endif()
  list(SORT found)
  set(${result} ${found} PARENT_SCOPE)
endfunction()

function(curfew_version root result)
  file(STRINGS ${root}/include/curfew/version.hpp lines REGEX "^#define CURFEW_VERSION_[A-Z]+ [0-9]+$")
  list(TRANSFORM lines REPLACE "^.* " "")
  list(JOIN lines "." version)
  set(${result} ${version} PARENT_SCOPE)
endfunction()
