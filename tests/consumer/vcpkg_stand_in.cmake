# What a port may call, reduced to what one header-only port needs: cmake -DPORT=<portfile.cmake> -DDIR=<scratch>
# -DCXX=<compiler> -P vcpkg_stand_in.cmake. Leaves the package in <scratch>/packages.

cmake_minimum_required(VERSION 3.25)
set(CURRENT_PACKAGES_DIR ${DIR}/packages)

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" SOURCE_PATH OPTIONS)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${DIR}/port -DCMAKE_CXX_COMPILER=${CXX} ${arg_OPTIONS}
                          -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${DIR}/port --target install COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PACKAGE_NAME;CONFIG_PATH" "")
  file(MAKE_DIRECTORY ${CURRENT_PACKAGES_DIR}/share)
  file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME})
  # The package finds its prefix from where it lies.
  file(READ ${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}/curfew-targets.cmake text)
  string(REPLACE "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\nif(_IMPORT_PREFIX STREQUAL"
                 "if(_IMPORT_PREFIX STREQUAL" text "${text}")
  file(WRITE ${CURRENT_PACKAGES_DIR}/share/${arg_PACKAGE_NAME}/curfew-targets.cmake "${text}")
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" FILE_LIST)
  file(COPY ${arg_FILE_LIST} DESTINATION ${CURRENT_PACKAGES_DIR}/share/curfew)
endfunction()

include(${PORT})
