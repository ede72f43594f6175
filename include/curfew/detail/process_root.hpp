// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The directory under which a process keeps one directory for each of its children. A private one has a random name
/// and goes away with everything in it; a named one may be shared between processes and keeps what others put there.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_ROOT_HPP
#define CURFEW_DETAIL_PROCESS_ROOT_HPP

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/directory_tree.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/process_spawn.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// An environment variable of the host, or \p otherwise when it is not set or empty.
inline std::string host_variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

class process_root {
 public:
  /// Makes nothing yet. \p path empty: `${TMPDIR:-/tmp}/curfew-<uid>-<pid>-<random>`. The environment and the working
  /// directory are read here, once: a later getenv() could race with a setenv(), a later chdir() would move the place.
  explicit process_root(std::string path) : path_(std::move(path)), private_(path_.empty()) {
    if (private_)
      path_ = host_variable("TMPDIR", "/tmp") + "/curfew-" + std::to_string(::getuid()) + "-" +
              std::to_string(process_id()) + "-" + random_id();
    if (path_.find('\0') != std::string::npos) throw std::invalid_argument("NUL in the root directory");
    if (path_.front() == '/') return;
    std::array<char, 4096> here{};
    if (::getcwd(here.data(), here.size()) == nullptr)
      throw std::invalid_argument("relative root directory without a working directory: " + path_);
    path_ = std::string(here.data()) + "/" + path_;
  }

  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_.get(); }

  /// Makes the directory unless that was done already. Returns the call that failed, with errno set; null on success.
  /// Not for two threads at once.
  const char* open() noexcept {
    if (fd_) return nullptr;
    const bool made = ::mkdir(path_.c_str(), S_IRWXU) == 0;
    if (!made && (errno != EEXIST || private_)) return "mkdir of the root directory";
    fd_ = owned_fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd_) {
      made_ = made;
      return nullptr;
    }
    const int error = errno;
    if (made) ::rmdir(path_.c_str());
    errno = error;
    return "open of the root directory";
  }

  /// Removes the directory if this object made it: a private one with everything in it, unless \p in_use says that
  /// somebody still works there, a named one when it is empty.
  void dismiss(bool in_use) noexcept {
    if (!std::exchange(made_, false)) return;
    if (private_ && !in_use)
      remove_tree(AT_FDCWD, path_.c_str());
    else
      ::rmdir(path_.c_str());
  }

 private:
  std::string path_;
  bool private_;
  bool made_ = false;
  owned_fd fd_;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_ROOT_HPP
