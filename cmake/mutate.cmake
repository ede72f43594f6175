# Writes broken copies of headers: cmake -DMUTANT=<file>.mut -DINCLUDE=<include tree> -DOUTPUT=<directory> -P mutate.cmake
#
# A .mut file names a header, says why, and gives one or more replacements; a later `file:` line turns to another header.
#
#     file: curfew/x.hpp
#     why: what is broken, and what should notice
#     <<<<
#     old text, which must occur exactly once
#     ====
#     new text
#     >>>>

cmake_minimum_required(VERSION 3.25)

file(READ ${MUTANT} rest)
get_filename_component(mutant ${MUTANT} NAME)
set(file "")
set(changed "")

while(NOT rest STREQUAL "")
  string(FIND "${rest}" "\n" end)
  if(end EQUAL -1)
    message(FATAL_ERROR "${mutant}: no newline at the end of the file")
  endif()
  string(SUBSTRING "${rest}" 0 ${end} line)
  math(EXPR end "${end} + 1")
  string(SUBSTRING "${rest}" ${end} -1 rest)

  if(line MATCHES "^file: (curfew/[a-z0-9_/]+\\.hpp)$")
    set(file ${CMAKE_MATCH_1})
    if(NOT file IN_LIST changed)
      if(NOT EXISTS ${INCLUDE}/${file})
        message(FATAL_ERROR "${mutant}: there is no header ${file}")
      endif()
      list(APPEND changed ${file})
      string(MAKE_C_IDENTIFIER ${file} key)
      file(READ ${INCLUDE}/${file} text_${key})
    endif()
    string(MAKE_C_IDENTIFIER ${file} key)
  elseif(line STREQUAL "<<<<")
    if(file STREQUAL "")
      message(FATAL_ERROR "${mutant}: a replacement before any 'file:' line")
    endif()
    string(FIND "${rest}" "\n====\n" middle)
    if(middle EQUAL -1)
      message(FATAL_ERROR "${mutant}: '<<<<' without '===='")
    endif()
    string(SUBSTRING "${rest}" 0 ${middle} old)
    math(EXPR middle "${middle} + 5") # keeps the newline that a following '>>>>' needs when the new text is empty
    string(SUBSTRING "${rest}" ${middle} -1 rest)
    string(FIND "${rest}" "\n>>>>\n" end)
    if(end EQUAL -1)
      message(FATAL_ERROR "${mutant}: '====' without '>>>>'")
    endif()
    if(end EQUAL 0)
      set(new "")
    else()
      math(EXPR length "${end} - 1")
      string(SUBSTRING "${rest}" 1 ${length} new)
    endif()
    math(EXPR end "${end} + 6")
    string(SUBSTRING "${rest}" ${end} -1 rest)

    string(FIND "${text_${key}}" "${old}" first)
    string(FIND "${text_${key}}" "${old}" last REVERSE)
    if(first EQUAL -1)
      message(FATAL_ERROR "${mutant}: does not apply, ${file} has no such text:\n${old}")
    elseif(NOT first EQUAL last)
      message(FATAL_ERROR "${mutant}: ambiguous, ${file} has this text more than once:\n${old}")
    endif()
    string(REPLACE "${old}" "${new}" text_${key} "${text_${key}}")
    set(done_${key} TRUE)
  elseif(NOT line MATCHES "^(why:.*|[ ]+.*|)$")
    message(FATAL_ERROR "${mutant}: unexpected line: ${line}")
  endif()
endwhile()

if(NOT changed)
  message(FATAL_ERROR "${mutant}: names no header")
endif()
file(REMOVE_RECURSE ${OUTPUT})
foreach(file IN LISTS changed)
  string(MAKE_C_IDENTIFIER ${file} key)
  if(NOT done_${key})
    message(FATAL_ERROR "${mutant}: changes nothing in ${file}")
  endif()
  file(WRITE ${OUTPUT}/${file} "${text_${key}}")
endforeach()
