# An overlay port: vcpkg install curfew --overlay-ports=<checkout>/cmake/packaging/vcpkg. It installs the checkout that it
# is a part of; CURFEW_SOURCE names another one.
if(NOT CURFEW_SOURCE)
  get_filename_component(CURFEW_SOURCE ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
endif()
set(VCPKG_BUILD_TYPE release) # there is nothing to compile

vcpkg_cmake_configure(
  SOURCE_PATH ${CURFEW_SOURCE}
  OPTIONS -DCURFEW_INSTALL=ON -DCURFEW_BUILD_TESTS=OFF -DCURFEW_BUILD_STRESS=OFF -DCURFEW_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME curfew CONFIG_PATH share/cmake/curfew)
vcpkg_install_copyright(FILE_LIST ${CURFEW_SOURCE}/LICENSE)
