"""conan create cmake/packaging/conan: packages the checkout that this file is a part of."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load


class Curfew(ConanFile):
    name = "curfew"
    license = "MIT"
    description = "Who may come in, who is still inside, who is shut down, in what order, exactly once"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._checkout, "include", "curfew", "version.hpp"))
        parts = (re.search(rf"CURFEW_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
        self.version = ".".join(parts)

    def export_sources(self):
        copy(self, "include/*", self._checkout, self.export_sources_folder)
        copy(self, "LICENSE", self._checkout, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def package(self):
        for headers in ("*.hpp", "*.cppm"):
            copy(self, headers, os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.set_property("cmake_file_name", "curfew")
        self.cpp_info.set_property("cmake_target_name", "curfew::curfew")
