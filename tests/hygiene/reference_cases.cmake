# What docs/reference/generate.cpp must notice: cmake -DGENERATOR=<program> -DDIR=<scratch> -P reference_cases.cmake

cmake_minimum_required(VERSION 3.25)
set(ROOT ${CMAKE_CURRENT_LIST_DIR}/../..)

# In a copy of the tree, with `from` replaced by `to` in `file`; the complaint contains `expected`.
function(reference_case name file from to expected)
  set(tree ${DIR}/${name})
  file(REMOVE_RECURSE ${tree})
  file(COPY ${ROOT}/include DESTINATION ${tree})
  file(COPY ${ROOT}/docs/reference DESTINATION ${tree}/docs)
  file(COPY ${ROOT}/cmake/headers.cmake DESTINATION ${tree}/cmake)
  file(READ ${tree}/${file} text)
  string(REPLACE "${from}" "${to}" changed "${text}")
  if(changed STREQUAL text)
    message(SEND_ERROR "${name}: ${file} has no '${from}' any more")
    return()
  endif()
  file(WRITE ${tree}/${file} "${changed}")
  execute_process(COMMAND ${GENERATOR} ${tree} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(FIND "${said}" "${expected}" at)
  if(status EQUAL 0 OR at EQUAL -1)
    message(SEND_ERROR "${name}: ended with ${status}, expected '${expected}':\n${said}")
  endif()
endfunction()

reference_case(undocumented_function include/curfew/signals.hpp "CURFEW_END_NAMESPACE"
               "inline void unheard_of() {}\n\nCURFEW_END_NAMESPACE" "nothing is said about 'unheard_of'")
reference_case(undocumented_member include/curfew/signals.hpp " private:" "\n  void unheard_of();\n\n private:"
               "nothing is said about 'unheard_of'")
reference_case(name_gone include/curfew/signals.hpp "shutdown_owned" "shutdown_had"
               "docs/reference/signals.md:1: differs from what the headers say")
reference_case(module_too include/curfew/signals.hpp "shutdown_owned" "shutdown_had"
               "include/curfew/curfew.cppm:1: differs from what the headers say")
reference_case(text_changed docs/reference/teardown.md "The shutdown flag, done right" "The shutdown flag, done"
               "docs/reference/teardown.md:1: differs from what the headers say")
reference_case(new_enumerator include/curfew/teardown.hpp "completed, " "completed, half, "
               "docs/reference/teardown.md:1: differs from what the headers say")
reference_case(on_no_page include/curfew/detail/text.hpp "namespace detail {" "/// New.\nclass novelty {};\nnamespace detail {"
               "'novelty' is on no page of the reference")
reference_case(new_macro include/curfew/version.hpp "#endif" "#define CURFEW_NOVELTY 1\n#endif"
               "the macro CURFEW_NOVELTY is not in docs/reference/macros.md")
reference_case(stale_macro docs/reference/macros.md "`CURFEW_POSIX`" "`CURFEW_POSIX`, `CURFEW_GONE`"
               "no header knows CURFEW_GONE")
