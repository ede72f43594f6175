# curfew_add_stress(<scenario> [TWINS <mutant>...])
#
# Builds <scenario>_stress.cpp and registers it for a second (label stress) and for a minute (label long). Each twin is
# the same source against a copy of the headers broken by mutants/<mutant>.mut: it passes when the break was noticed and
# is reported as skipped when time ran out first. A stress test whose twins all live proves nothing.
function(curfew_add_stress scenario)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" TWINS)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${scenario}_stress.cpp)
  set(common SKIP_RETURN_CODE 77 RUN_SERIAL ON)

  add_executable(${scenario}_stress ${source})
  target_include_directories(${scenario}_stress PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${scenario}_stress PRIVATE curfew_dev curfew_fast)
  add_test(NAME stress.${scenario} COMMAND ${scenario}_stress --seconds 1)
  set_tests_properties(stress.${scenario} PROPERTIES LABELS stress TIMEOUT 120 ${common})
  add_test(NAME long.${scenario} COMMAND ${scenario}_stress --seconds 60)
  set_tests_properties(long.${scenario} PROPERTIES LABELS long TIMEOUT 600 ${common})

  if(NOT CURFEW_BUILD_TWINS)
    return()
  endif()
  foreach(mutant IN LISTS arg_TWINS)
    set(patch ${CMAKE_CURRENT_SOURCE_DIR}/mutants/${mutant}.mut)
    set(overlay ${CMAKE_CURRENT_BINARY_DIR}/mutants/${mutant})
    if(NOT TARGET mutant_${mutant})
      # Only the broken headers are written, in a directory that comes before include/.
      add_custom_command(
        OUTPUT ${overlay}/stamp
        COMMAND ${CMAKE_COMMAND} -DMUTANT=${patch} -DINCLUDE=${PROJECT_SOURCE_DIR}/include -DOUTPUT=${overlay} -P
                ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake
        COMMAND ${CMAKE_COMMAND} -E touch ${overlay}/stamp
        DEPENDS ${patch} ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake ${curfew_header_paths}
        VERBATIM
        COMMENT "Breaking a copy of the headers: ${mutant}")
      add_custom_target(mutant_${mutant} DEPENDS ${overlay}/stamp)
    endif()

    set(twin ${scenario}_twin_${mutant})
    add_executable(${twin} ${source})
    add_dependencies(${twin} mutant_${mutant})
    target_compile_definitions(${twin} PRIVATE CURFEW_STRESS_TWIN=1)
    target_include_directories(${twin} PRIVATE ${overlay} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
    target_link_libraries(${twin} PRIVATE curfew_mode curfew_fast)
    add_test(NAME twin.${scenario}.${mutant} COMMAND ${twin} --seconds 5)
    set_tests_properties(twin.${scenario}.${mutant} PROPERTIES LABELS stress TIMEOUT 120 ${common})
  endforeach()
endfunction()

list(TRANSFORM CURFEW_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/ OUTPUT_VARIABLE curfew_header_paths)
