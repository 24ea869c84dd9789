#include "libactor/file.hpp"

#include "libactor/assert.hpp"
#include "libactor/id.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace troupe {
namespace {

constexpr int kMaxDepth = 256;  ///< of a tree that is removed: one descriptor a level

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

Result<void> remove_at(int folder_fd, const std::string& name, int depth);

Result<void> remove_children(DIR* folder, int depth) {
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(folder);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (auto removed = remove_at(::dirfd(folder), name, depth); !removed) return removed;
  }
  if (errno != 0) return make_error(Errc::io, std::string("list: ") + std::strerror(errno));
  return {};
}

Result<void> remove_at(int folder_fd, const std::string& name, int depth) {
  if (::unlinkat(folder_fd, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return errno_error("remove", name);
  if (depth == kMaxDepth)
    return make_error(Errc::io, "remove " + name + ": more than " + std::to_string(kMaxDepth) +
                                    " folders inside each other; remove it by hand");
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int fd = ::openat(folder_fd, name.c_str(), flags);
  if (fd < 0) return errno_error("open", name);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(fd), &::closedir);
  TROUPE_ASSERT(folder != nullptr, name);
  if (auto removed = remove_children(folder.get(), depth + 1); !removed)
    return with_context(removed.error(), name);
  if (::unlinkat(folder_fd, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return errno_error("remove", name);
  return {};
}

}  // namespace

Error errno_error(std::string_view doing, const std::filesystem::path& path) {
  const int code = errno;
  return make_error(code == ENOENT ? Errc::not_found : Errc::io,
                    std::string(doing) + " " + path.string() + ": " + std::strerror(code));
}

Result<Fd> open_folder(const std::filesystem::path& folder) {
  // A trailing slash would make the kernel follow a link.
  const std::filesystem::path path = folder.has_filename() ? folder : parent_of(folder);
  Fd file(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (file) return file;
  struct stat info {};
  if (errno == ENOTDIR && ::lstat(path.c_str(), &info) == 0)
    return make_error(
        Errc::corrupt,
        path.string() + (S_ISLNK(info.st_mode) ? ": is a symbolic link where a folder must be"
                                               : ": is not a folder"));
  return errno_error("open", path);
}

Result<Fd> open_regular(int folder_fd, const std::string& name, const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in its place must not hold us up.
  Fd file(::openat(folder_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file && errno == ELOOP)
    return make_error(Errc::corrupt, path.string() + ": is a symbolic link where a file must be");
  if (!file || ::fstat(file.value(), &info) != 0) return errno_error("open", path);
  if (!S_ISREG(info.st_mode))
    return make_error(Errc::corrupt, path.string() + ": is not a regular file");
  return file;
}

bool write_fully(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

bool write_fully_at(int fd, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
  return true;
}

Result<void> write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes,
                              WriteOptions options) {
  auto folder = open_folder(parent_of(path));
  if (!folder) return folder.error();
  const std::string name = path.filename().string();
  const std::string temp = "." + name + ".tmp-" + random_id();
  Fd file(::openat(folder->value(), temp.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return errno_error("create", path);
  const bool published =
      write_fully(file.value(), bytes) && (!options.durable || ::fsync(file.value()) == 0) &&
      ::renameat(folder->value(), temp.c_str(), folder->value(), name.c_str()) == 0;
  if (!published) {
    const Error error = errno_error("write", path);
    ::unlinkat(folder->value(), temp.c_str(), 0);
    return error;
  }
  if (options.durable && ::fsync(folder->value()) != 0)
    return errno_error("write to disk", parent_of(path));
  return {};
}

Result<void> write_atomically(const std::filesystem::path& path, std::string_view text,
                              WriteOptions options) {
  return write_atomically(path, std::as_bytes(std::span(text)), options);
}

Result<void> fsync_folder(const std::filesystem::path& folder) {
  auto file = open_folder(folder);
  if (!file) return file.error();
  if (::fsync(file->value()) != 0) return errno_error("write to disk", folder);
  return {};
}

Result<std::string> read_bounded(const std::filesystem::path& path, std::int64_t max_bytes) {
  auto file = open_regular(AT_FDCWD, path.string(), path);
  if (!file) return file.error();
  std::string text;
  std::array<char, 65536> chunk{};
  while (true) {
    const ssize_t got = ::read(file->value(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", path);
    if (got == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (static_cast<std::int64_t>(text.size()) > max_bytes)
      return make_error(Errc::corrupt,
                        path.string() + ": is longer than " + std::to_string(max_bytes) + " bytes");
  }
}

Result<void> remove_tree_at(int folder_fd, const std::string& name) {
  return remove_at(folder_fd, name, 0);
}

Result<void> remove_tree(const std::filesystem::path& path) {
  const std::filesystem::path clean = path.has_filename() ? path : parent_of(path);
  auto folder = open_folder(parent_of(clean));
  if (!folder && code_of(folder.error()) == Errc::not_found) return {};
  if (!folder) return folder.error();
  return remove_tree_at(folder->value(), clean.filename().string());
}

}  // namespace troupe
