# Install rules: headers, CMake package, pkg-config file. Everything is independent of the architecture.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(curfew_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/curfew)

install(
  TARGETS curfew
  EXPORT curfew-targets
  FILE_SET HEADERS
  FILE_SET opt_in)
install(
  EXPORT curfew-targets
  NAMESPACE curfew::
  DESTINATION ${curfew_package_dir})

# The module interface, for whoever builds it: a compiled one is good for one compiler only.
install(FILES include/curfew/curfew.cppm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/curfew)

install(FILES cmake/gdb/curfew.py DESTINATION ${CMAKE_INSTALL_DATADIR}/gdb)

configure_package_config_file(cmake/curfew-config.cmake.in ${PROJECT_BINARY_DIR}/curfew-config.cmake
                              INSTALL_DESTINATION ${curfew_package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/curfew-config-version.cmake
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/curfew-config.cmake ${PROJECT_BINARY_DIR}/curfew-config-version.cmake
        DESTINATION ${curfew_package_dir})

configure_file(cmake/curfew.pc.in ${PROJECT_BINARY_DIR}/curfew.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/curfew.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
