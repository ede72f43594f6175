# Running other programs in ${DIR}, and judging how they end.

# Must succeed.
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

# Must fail, and say so.
function(refuse expect)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${DIR} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  string(FIND "${output}" "${expect}" at)
  if(status EQUAL 0 OR at EQUAL -1)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nshould fail and say '${expect}', but ended with ${status}:\n${output}")
  endif()
endfunction()
