# What the project's own programs are built with. Linked PRIVATE to each of them, never to a consumer.

# Warnings, for code that is meant to be free of them.
add_library(curfew_warnings INTERFACE)
target_compile_options(
  curfew_warnings
  INTERFACE $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>
            $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wthread-safety>
            $<$<CXX_COMPILER_ID:MSVC>:/W4>
            $<$<BOOL:${CURFEW_WERROR}>:$<IF:$<CXX_COMPILER_ID:MSVC>,/WX,-Werror>>)

# How the build is instrumented: also for the broken twins, which are not warned about.
add_library(curfew_mode INTERFACE)
target_compile_features(curfew_mode INTERFACE cxx_std_20)
target_link_libraries(curfew_mode INTERFACE Threads::Threads)
target_compile_definitions(curfew_mode INTERFACE $<$<BOOL:${CURFEW_FORCE_PORTABLE}>:CURFEW_FORCE_PORTABLE>)
if(CURFEW_SANITIZER STREQUAL "thread")
  set(curfew_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(CURFEW_SANITIZER STREQUAL "address-undefined")
  set(curfew_sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(NOT CURFEW_SANITIZER STREQUAL "")
  message(FATAL_ERROR "CURFEW_SANITIZER is '${CURFEW_SANITIZER}': use thread, address-undefined, or nothing")
endif()
target_compile_options(curfew_mode INTERFACE ${curfew_sanitizer_flags})
target_link_options(curfew_mode INTERFACE ${curfew_sanitizer_flags})

# For programs that find more the faster they run. Unit tests are not: half of their build time would be optimisation.
add_library(curfew_fast INTERFACE)
target_compile_options(curfew_fast INTERFACE $<$<AND:$<CONFIG:Debug>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:-O1>)

add_library(curfew_dev INTERFACE)
target_link_libraries(curfew_dev INTERFACE curfew::curfew curfew_mode curfew_warnings)

# curfew_need(<package> <Debian package> <what for>): find it, or say in one line how to get it, and stop.
macro(curfew_need package debian purpose)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR " ${purpose} need ${package}. On Debian or Ubuntu: apt-get install ${debian}")
  endif()
endmacro()

# Regenerates single_include/curfew.hpp. Nothing does so by itself: a build never writes into the source tree.
add_custom_target(curfew_amalgamate COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/amalgamate.cmake
                                    COMMENT "Generating single_include/curfew.hpp")
# Regenerates the table of edges in docs/memory-model.md from the order tags in the headers.
add_custom_target(curfew_edges COMMAND ${CMAKE_COMMAND} -DWRITE=ON -P ${PROJECT_SOURCE_DIR}/cmake/check_orders.cmake
                               COMMENT "Generating the table of edges in docs/memory-model.md")
# Fills the code blocks of README.md and docs/*.md from the files they name.
add_custom_target(curfew_docs COMMAND ${CMAKE_COMMAND} -DWRITE=ON -DBIN=${PROJECT_BINARY_DIR}/docs/examples -P
                                      ${PROJECT_SOURCE_DIR}/cmake/check_docs.cmake
                              COMMENT "Filling the code blocks of the documents")
