# What gdb shows of the kit's objects: cmake -DGDB=<gdb> -DPROGRAM=<shown> -P check_printers.cmake

cmake_minimum_required(VERSION 3.25)
set(printers ${CMAKE_CURRENT_LIST_DIR}/../../cmake/gdb/curfew.py)
set(objects opened closed drained compact traced pools unused ended *lifespan *one_pass)
set(commands "")
foreach(object IN LISTS objects)
  list(APPEND commands -ex "print ${object}")
endforeach()
execute_process(
  COMMAND
    ${GDB} -batch -nx -iex "set auto-load no" -iex "set debuginfod enabled off" -ex "source ${printers}" -ex
    "set print pretty off" -ex "set width 0" -ex "break look_here" -ex run -ex up ${commands} -ex kill ${PROGRAM}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE shown
  ERROR_VARIABLE shown)
if(shown MATCHES "ptrace|not permitted|Python scripting is not supported|Couldn't get registers")
  message(STATUS "skipped: gdb cannot run a program here, or has no Python\n${shown}")
  return()
endif()

set(expected
    "= admission_fence \"opened\": open, 2 inside"
    "= admission_fence \"closed\": closed, 1 inside"
    "= admission_fence \"drained\": drained, 0 inside"
    "= compact_admission_fence \"compact\": closed, 1 inside"
    "= traced_admission_fence \"traced\": open, 1 inside = {"
    "shown.cpp:38 (int main()), thread 0x"
    "= guarded_singleton \"pools\": one instance, 1 handles, generation 1, 2 made, 1 torn down = {"
    "connections = 42"
    "= guarded_singleton \"unused\": no instance"
    "= guarded_singleton \"ended\": sealed, generation 1, 1 made, 1 torn down"
    "= ordered_lifespan \"service\": running, 2 stages = {"
    "{database = start, http = start, stop, on_controller}"
    "= pass of \"opened\", which is open")
foreach(text IN LISTS expected)
  string(FIND "${shown}" "${text}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "gdb did not show: ${text}")
    set(wrong TRUE)
  endif()
endforeach()
if(wrong)
  message(FATAL_ERROR "gdb showed:\n${shown}")
endif()
