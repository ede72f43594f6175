# One outside project: cmake -DKIND=<kind> -DCXX=<compiler> -DSOURCE=<checkout> -DBUILD=<its build> -DDIR=<scratch>
#                            -DVERSION=<x.y.z> -P run.cmake

cmake_minimum_required(VERSION 3.25)
set(here ${CMAKE_CURRENT_LIST_DIR})
set(compile ${CXX} -std=c++20 -O0 -Wall -Wextra -Werror -pthread)

include(${CMAKE_CURRENT_LIST_DIR}/../support/programs.cmake)

# A program that the kind needs: sets <variable>, or ends the test as skipped (see SKIP_REGULAR_EXPRESSION).
macro(need variable)
  find_program(${variable} NAMES ${ARGN})
  if(NOT ${variable})
    message("skipped: ${variable} is not installed")
    return()
  endif()
endmacro()

file(REMOVE_RECURSE ${DIR})
file(MAKE_DIRECTORY ${DIR})

if(KIND STREQUAL "include_path")
  run(${compile} -I ${SOURCE}/include ${here}/modules.cpp -o program)
  run(${DIR}/program)

elseif(KIND STREQUAL "single")
  # The one file alone in a directory, as somebody would vendor it.
  file(COPY ${SOURCE}/single_include/curfew.hpp DESTINATION ${DIR}/vendor)
  run(${compile} -I vendor ${here}/single.cpp -o program)
  run(${DIR}/program)

elseif(KIND STREQUAL "both")
  # One translation unit with both, in either order; and two units of one program, one with each.
  set(both -I ${SOURCE}/include -I ${SOURCE}/single_include)
  run(${compile} ${both} -include curfew.hpp ${here}/modules.cpp -o single_first)
  run(${DIR}/single_first)
  run(${compile} ${both} -include curfew/admission_fence.hpp -include curfew/ordered_lifespan.hpp ${here}/single.cpp -o
      modules_first)
  run(${DIR}/modules_first)
  run(${compile} ${both} ${here}/modules.cpp ${here}/other_unit.cpp -DCURFEW_TEST_OTHER_UNIT -o linked)
  run(${DIR}/linked)

elseif(KIND STREQUAL "versions")
  # The same kit, but of another version.
  file(READ ${SOURCE}/include/curfew/version.hpp text)
  string(REPLACE "VERSION_MINOR 1" "VERSION_MINOR 99" text "${text}")
  string(REPLACE "VERSION_MINOR != 1" "VERSION_MINOR != 99" text "${text}")
  file(WRITE ${DIR}/other/curfew/version.hpp "${text}")
  file(WRITE ${DIR}/empty.cpp "int main() {}\n")
  set(error "two different versions of the kit meet")
  run(${compile} -I other -include curfew/version.hpp empty.cpp -o program)
  refuse(${error} ${compile} -I other -I ${SOURCE}/single_include -include curfew/version.hpp -include curfew.hpp
         empty.cpp)
  refuse(${error} ${compile} -I other -I ${SOURCE}/single_include -include curfew.hpp -include curfew/version.hpp
         empty.cpp)

elseif(KIND STREQUAL "subdir")
  run(${CMAKE_COMMAND} -S ${here}/subdir -B build -DCMAKE_CXX_COMPILER=${CXX} -DCURFEW_SOURCE=${SOURCE})
  run(${CMAKE_COMMAND} --build build)
  run(${DIR}/build/program)

elseif(KIND STREQUAL "install")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${DIR}/prefix)
  # What is installed is what is needed: the prefix is moved, so that nothing can lean on the checkout or the first path.
  file(RENAME ${DIR}/prefix ${DIR}/moved)
  set(configure ${CMAKE_COMMAND} -S ${here}/install -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${DIR}/moved)
  string(REGEX REPLACE "^([0-9]+)\\.([0-9]+)\\..*$" "\\1.\\2" minor ${VERSION})
  run(${configure} -B build -DWANTED=${minor})
  run(${CMAKE_COMMAND} --build build)
  run(${DIR}/build/program)
  refuse("considered but not accepted" ${configure} -B build-other -DWANTED=${minor}9)
  find_program(pkg_config NAMES pkg-config pkgconf)
  if(pkg_config)
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${DIR}/moved/share/pkgconfig ${pkg_config} --cflags --libs "curfew = ${VERSION}"
      OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    run(${CXX} -std=c++20 ${here}/modules.cpp ${flags} -o by_pkg_config)
    run(${DIR}/by_pkg_config)
  endif()

elseif(KIND STREQUAL "primitive")
  # One primitive and what it needs, in a file of its own; it mixes with the whole kit.
  set(text "")
  foreach(primitive IN ITEMS admission_fence teardown guarded_singleton ordered_lifespan)
    run(${CMAKE_COMMAND} -DPRIMITIVE=${primitive} -DOUTPUT=${DIR}/vendor/${primitive}.hpp -P
        ${SOURCE}/cmake/amalgamate.cmake)
    string(APPEND text "#include <${primitive}.hpp>\n")
  endforeach()
  file(WRITE ${DIR}/all.cpp "${text}int main() {}\n")
  run(${compile} -fsyntax-only -I vendor all.cpp)
  run(${compile} -I vendor -I ${SOURCE}/include -include admission_fence.hpp ${here}/door.cpp -o program)
  run(${DIR}/program)

elseif(KIND STREQUAL "fetch")
  run(${CMAKE_COMMAND} -S ${here}/fetch -B build -DCMAKE_CXX_COMPILER=${CXX} -DFETCHCONTENT_SOURCE_DIR_CURFEW=${SOURCE})
  run(${CMAKE_COMMAND} --build build)
  run(${DIR}/build/program)

elseif(KIND STREQUAL "make")
  need(make make gmake)
  need(pkg_config pkg-config pkgconf)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${DIR}/prefix)
  run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${DIR}/prefix/share/pkgconfig ${make} -f ${here}/make/Makefile
      SOURCE=${here} CXX=${CXX} program)
  run(${DIR}/program)

elseif(KIND STREQUAL "meson")
  need(meson meson)
  need(ninja ninja)
  # As Meson would lay it out after it has fetched the kit: only what the wrap's overlay needs.
  file(COPY ${here}/meson/meson.build DESTINATION ${DIR})
  file(COPY_FILE ${here}/door.cpp ${DIR}/main.cpp)
  file(COPY ${SOURCE}/cmake/packaging/meson/ DESTINATION ${DIR}/subprojects)
  file(COPY ${SOURCE}/include DESTINATION ${DIR}/subprojects/curfew)
  file(COPY ${DIR}/subprojects/packagefiles/curfew/meson.build DESTINATION ${DIR}/subprojects/curfew)
  run(${CMAKE_COMMAND} -E env CXX=${CXX} ${meson} setup --wrap-mode=forcefallback build)
  run(${ninja} -C build)
  run(${DIR}/build/program)

elseif(KIND STREQUAL "vcpkg")
  set(port ${SOURCE}/cmake/packaging/vcpkg)
  file(READ ${port}/vcpkg.json manifest)
  string(JSON version GET "${manifest}" version)
  if(NOT version STREQUAL VERSION)
    message(FATAL_ERROR "cmake/packaging/vcpkg/vcpkg.json says ${version}, the kit ${VERSION}")
  endif()
  run(${CMAKE_COMMAND} -DPORT=${port}/portfile.cmake -DDIR=${DIR} -DCXX=${CXX} -P ${here}/vcpkg_stand_in.cmake)
  run(${CMAKE_COMMAND} -S ${here}/install -B build -DPROGRAM=../door.cpp -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${DIR}/packages)
  run(${CMAKE_COMMAND} --build build)
  run(${DIR}/build/program)

elseif(KIND STREQUAL "conan")
  need(conan conan)
  run(${CMAKE_COMMAND} -E env CONAN_HOME=${DIR}/home ${conan} profile detect)
  run(${CMAKE_COMMAND} -E env CONAN_HOME=${DIR}/home ${conan} create ${SOURCE}/cmake/packaging/conan -s compiler.cppstd=20)

else()
  message(FATAL_ERROR "no such kind of consumer: ${KIND}")
endif()
