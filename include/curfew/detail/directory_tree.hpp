// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Making and removing a directory that programs which are not trusted have written into: links in it are removed,
/// never followed; a tree of any depth takes a constant number of descriptors and no recursion; a directory that its
/// owner made unreadable is made readable first. POSIX only.

#ifndef CURFEW_DETAIL_DIRECTORY_TREE_HPP
#define CURFEW_DETAIL_DIRECTORY_TREE_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_spawn.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Opens a directory under \p parent, not through a link. With \p repair, access that its owner took away is given back
/// on the inode that was found, never through its name. Empty on failure, with errno set.
inline owned_fd open_directory(int parent, const char* name, bool repair) noexcept {
  constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  if (repair) {
#if defined(__linux__)
    const owned_fd place(::openat(parent, name, O_PATH | flags));
    if (!place) return {};
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", place.get());
    ::chmod(link, S_IRWXU);  // a failure shows in the open below
#else
    ::fchmodat(parent, name, S_IRWXU, AT_SYMLINK_NOFOLLOW);
#endif
  }
  return owned_fd(::openat(parent, name, O_RDONLY | flags));
}

/// A directory stream over a descriptor of its own. Skips "." and "..".
class directory_stream {
 public:
  explicit directory_stream(owned_fd fd) noexcept : stream_(fd ? ::fdopendir(fd.get()) : nullptr) {
    if (stream_ != nullptr) fd.release();  // the stream owns it now
  }
  directory_stream(const directory_stream&) = delete;
  directory_stream& operator=(const directory_stream&) = delete;
  ~directory_stream() {
    if (stream_ != nullptr) ::closedir(stream_);
  }
  explicit operator bool() const noexcept { return stream_ != nullptr; }
  int fd() const noexcept { return ::dirfd(stream_); }
  void rewind() noexcept { ::rewinddir(stream_); }
  const char* next() noexcept {
    while (const dirent* entry = ::readdir(stream_))
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) return entry->d_name;
    return nullptr;
  }

 private:
  DIR* stream_;
};

inline constexpr std::chrono::seconds removal_limit{2};

/// Removes `name` under \p parent with all that is in it. True when it is gone, also when it was never there.
///
/// Works without recursion: whatever cannot be removed at once is a directory with entries, and its own directories are
/// moved up to the top, where later passes meet them. Each pass takes a level away, so the depth costs time, not
/// descriptors or stack. A program that is still there may add to the tree faster than it is taken away, so this gives
/// up after a while, and leaves what is left.
inline bool remove_tree(int parent, const char* name) noexcept {
  const auto unlinked = [](int at, const char* entry) {
    return ::unlinkat(at, entry, 0) == 0 || ::unlinkat(at, entry, AT_REMOVEDIR) == 0 || errno == ENOENT;
  };
  if (unlinked(parent, name)) return true;
  directory_stream top(open_directory(parent, name, true));
  if (!top) return errno == ENOENT;
  std::uint64_t moved = 0;
  const auto enough = std_sync::clock::now() + removal_limit;
  const auto in_time = [enough] { return std_sync::clock::now() < enough; };
  for (bool progress = true; progress && in_time();) {
    progress = false;
    bool empty = true;
    top.rewind();
    for (const char* entry = top.next(); entry != nullptr && in_time(); entry = top.next()) {
      empty = false;
      if (unlinked(top.fd(), entry)) {
        progress = true;
        continue;
      }
      directory_stream inner(open_directory(top.fd(), entry, true));
      if (!inner) continue;
      for (const char* child = inner.next(); child != nullptr && in_time(); child = inner.next()) {
        if (unlinked(inner.fd(), child)) {
          progress = true;
          continue;
        }
        open_directory(inner.fd(), child, true);  // for the access: moving a directory rewrites its ".."
        for (unsigned tries = 0; tries < 1000; ++tries) {
          char fresh[32];
          std::snprintf(fresh, sizeof fresh, "~%llu", static_cast<unsigned long long>(moved++));
          if (::renameat(inner.fd(), child, top.fd(), fresh) == 0) {
            progress = true;
            break;
          }
          if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) break;  // else the name is taken: the next one
        }
      }
      if (::unlinkat(top.fd(), entry, AT_REMOVEDIR) == 0) progress = true;
    }
    if (empty) break;
  }
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

/// Makes `name` under \p parent, empty and mode 0700, and holds it under an advisory lock for as long as the returned
/// descriptor is open. A directory that a dead process left there is cleared away; one that a living process holds is
/// not touched. Empty on failure, with errno set: EWOULDBLOCK when it is held.
inline owned_fd claim_directory(int parent, const char* name) noexcept {
  for (int tries = 0; tries < 100; ++tries) {
    const bool made = ::mkdirat(parent, name, S_IRWXU) == 0;
    if (!made && errno != EEXIST) return {};
    owned_fd claim = open_directory(parent, name, false);
    if (!claim) {
      const int error = errno;
      if (error == ENOENT) continue;  // cleared away by somebody between the two calls
      if (made) ::unlinkat(parent, name, AT_REMOVEDIR);
      errno = error;
      if (made || error == EMFILE || error == ENFILE || !remove_tree(parent, name)) return {};
      continue;  // a link, a file or an unreadable directory was in the way
    }
    if (::flock(claim.get(), LOCK_EX | LOCK_NB) != 0) return {};
    struct stat held {
    }, found{};
    const bool current = ::fstat(claim.get(), &held) == 0 &&
                         ::fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && held.st_dev == found.st_dev &&
                         held.st_ino == found.st_ino;
    if (!current) continue;  // locked a directory that somebody had removed meanwhile
    if (made) return claim;
    if (!remove_tree(parent, name)) return {};
  }
  errno = EEXIST;
  return {};
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DIRECTORY_TREE_HPP
